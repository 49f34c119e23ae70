// Near pairs of a power law, summed in registers: distances, kernel and sums of columns in one pass over the sources.
//
// Against passes over blocks of numbers in memory it takes half of the time (three dimensions, four columns, AVX-512).
// The kernel is (r2 + softening)^(-TWICE/2). The reciprocals that processors estimate are off by a relative 2^-14 at most,
// and as much as the sum allows is left of it: STEPS = 0 takes them as they are, 1 squares the error, 2 rounds alone is left.
#pragma once
#include <algorithm>
#include <cmath>
#include "lanes.h"

namespace particleflow {

// What powers of estimates may be off by, of 2^-14 in the estimate and of what one step leaves of it.
constexpr double ESTIMATE_ERROR = 6.2e-5, STEP_ERROR = 6e-9;

inline int steps_for(double error, int twice) {
  return error >= twice * ESTIMATE_ERROR ? 0 : error >= twice * STEP_ERROR ? 1 : 2;
}

// 1/x and 1/sqrt(x), of positive numbers.
template <int STEPS> INLINE Vector<double> reciprocal(Vector<double> x) {
#if defined(__AVX512F__)
  const Vector<double> y = (Vector<double>)_mm512_rcp14_pd((__m512d)x);
  if constexpr (STEPS == 0) return y;
  const Vector<double> rest = 1.0 - x * y, once = y + y * rest;
  if constexpr (STEPS == 1) return once;
  return once + once * (rest * rest);  // its fourth power is beyond the digits
#else
  return 1.0 / x;
#endif
}

template <int STEPS> INLINE Vector<double> reciprocal_root(Vector<double> x) {
#if defined(__AVX512F__)
  const Vector<double> y = (Vector<double>)_mm512_rsqrt14_pd((__m512d)x);
  if constexpr (STEPS == 0) return y;
  const Vector<double> rest = 1.0 - (x * y) * y;
  if constexpr (STEPS == 1) return y + y * rest * 0.5;
  return y + (y * rest) * (0.5 + rest * (0.375 + rest * 0.3125));
#else
  return 1.0 / sqrt_lanes<double>(x);
#endif
}

template <int TWICE, int STEPS> INLINE Vector<double> power_of(Vector<double> base) {
  if constexpr (TWICE == 1) return reciprocal_root<STEPS>(base);
  else if constexpr (TWICE == 2) return reciprocal<STEPS>(base);
  else {
    const Vector<double> root = reciprocal_root<STEPS>(base);
    return root * (root * root);
  }
}

// sums[column][V] += sum_j K(x - y_j) c_j[column] for V vectors of queries x[axis][V].
template <int D, int C, int TWICE, int STEPS, int V>
NOINLINE void add_pairs(int count, double softening, const Vector<double> *queries, const double *__restrict points,
                        const double *__restrict columns, Vector<double> *__restrict sums) {
  Vector<double> x[D][V], s[C][V];
  UNROLL for (int a = 0; a < D; a++) UNROLL for (int v = 0; v < V; v++) x[a][v] = queries[a * V + v];
  UNROLL for (int c = 0; c < C; c++) UNROLL for (int v = 0; v < V; v++) s[c][v] = Vector<double>{};
  const Vector<double> least = all<double>(softening);
  for (int j = 0; j < count; j++, points += D, columns += C) {
    Vector<double> weight[V];
    UNROLL for (int v = 0; v < V; v++) {
      Vector<double> square = least;
      UNROLL for (int a = 0; a < D; a++) {
        const Vector<double> step = x[a][v] - points[a];
        square += step * step;
      }
      weight[v] = power_of<TWICE, STEPS>(square);
    }
    UNROLL for (int c = 0; c < C; c++)
      UNROLL for (int v = 0; v < V; v++) s[c][v] += weight[v] * columns[c];
  }
  UNROLL for (int c = 0; c < C; c++) UNROLL for (int v = 0; v < V; v++) sums[c * V + v] = s[c][v];
}

constexpr int PAIRS_AT_ONCE = 2;  // vectors of queries
using AddPairs = void (*)(int, double, const Vector<double> *, const double *, const double *, Vector<double> *);

template <int D, int TWICE> AddPairs pairs_adder(int steps) {
  if (steps == 0) return add_pairs<D, D + 1, TWICE, 0, PAIRS_AT_ONCE>;
  return steps == 1 ? add_pairs<D, D + 1, TWICE, 1, PAIRS_AT_ONCE> : add_pairs<D, D + 1, TWICE, 2, PAIRS_AT_ONCE>;
}

template <int D> AddPairs pairs_adder(int twice, int steps) {
  if (twice == 1) return pairs_adder<D, 1>(steps);
  if (twice == 2) return pairs_adder<D, 2>(steps);
  return twice == 3 ? pairs_adder<D, 3>(steps) : nullptr;
}

// For points that are their own values, beside a column of masses, in the plane and in space, and powers 1/2, 1 and 3/2;
// null for any other sum, and where vectors are too few to hold it.
inline AddPairs pairs_adder(int dims, int columns, double power, double error) {
  const int twice = (int)(2 * power);
  if (REGISTERS < 32 || columns != dims + 1 || twice != 2 * power) return nullptr;
  const int steps = steps_for(error, twice);
  return dims == 2 ? pairs_adder<2>(twice, steps) : dims == 3 ? pairs_adder<3>(twice, steps) : nullptr;
}

}  // namespace particleflow
