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
// whose scores are too coarse is summed in double precision. The queries may be some of many, all of whose features
// are `bounding`: scores are then bounded by all of them, so that a sum does not depend on which of them it is made with.
template <class T> struct Problem {
  int queries, sources, features, inner, columns;
  Profile profile;
  const T *query_features, *key_features, *values, *log_weights, *query_positions, *key_positions;
  T power, least, most, slope, scale;
  double tolerance;
  int packet;
  bool widen;
  T *mass, *shift, *mean;
  const T *bounding = nullptr;
  int bounding_rows = 0;

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

  // The problem of at most `rows` queries from `first` on, bounded by all; results have room for these alone.
  Problem some_queries(int first, int rows) const {
    first = first < queries ? first : queries;
    Problem some = *this;
    some.bounding = query_features, some.bounding_rows = queries;
    some.queries = queries - first < rows ? queries - first : rows, some.query_features += (size_t)first * features;
    if (banded()) some.query_positions += first;
    return some;
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
