// Problems: what is summed, as arrays in the caller's memory, and the curves that native code knows by number.
#pragma once
#include <cstddef>

namespace particleflow {

constexpr int BLOCK = 120;  // sources a block: their scores, 30 KiB, fit beside the operands

// Curves of the square r2 of a distance, in units of a width.
enum Profile { NO_PROFILE = 0, GAUSSIAN = 1, EXPONENTIAL = 2, POWER = 3, BALL = 4, PARABOLA = 5, TRIANGLE = 6 };

// One cloud of sources and its queries. Features are inner products in their first `inner` columns, and coordinates of
// distances in the rest. Positions are null where there is no band. Where `tolerance` is not negative, that part of every
// mass may be left out (near.h), in boxes of at most about `packet` sources. With `widen`, a problem in single precision
// whose scores are too coarse is summed in double precision.
template <class T> struct Problem {
  int queries, sources, features, inner, columns;
  Profile profile;
  const T *query_features, *key_features, *values, *log_weights, *query_positions, *key_positions;
  T power, least, most, slope, scale;
  double tolerance;
  int packet;
  bool widen;
  T *mass, *shift, *mean;

  int coordinates() const { return features - inner; }
  bool banded() const { return query_positions != nullptr; }
  int blocks() const { return (sources + BLOCK - 1) / BLOCK; }

  // The problem of the queries from `first` on.
  Problem queries_from(int first) const {
    Problem rest = *this;
    rest.queries -= first, rest.query_features += (size_t)first * features, rest.mean += (size_t)first * columns;
    if (banded()) rest.query_positions += first;
    rest.mass += first, rest.shift += first;
    return rest;
  }
};

// `problem.values` are the g_j, `problem.log_weights` the offsets of the other side. `carriers` y are its features, with
// coordinates about an origin in their midst: far from it, sums of differences would lose digits.
template <class T> struct Adjoint {
  Problem<T> problem;
  const T *offset, *rates, *own, *given, *carriers;
  T *carried, *total, *weighted, *lengths;
};

}  // namespace particleflow
