// Far problems: sums under a power law, as arrays in the caller's memory.
#pragma once
#include <algorithm>
#include <cmath>

namespace particleflow {

// (r2 + softening)^-power, the softening a square, or its derivative by the power.
struct PowerLaw {
  double power, softening;
  bool logarithmic;

  double operator()(double square) const {
    const double base = std::max(square + softening, 2.2250738585072014e-308);
    const double value = std::exp(-power * std::log(base));
    return logarithmic ? -value * std::log(base) : value;
  }
  bool scale_free() const { return softening == 0 && !logarithmic; }
};

enum FarKind { SUMS_OF_KERNEL = 0, GRADIENTS = 1, DIPOLES = 2 };

// The charges of a source are `columns` numbers, for dipoles each with `dims` coordinates. Results are `columns` numbers a
// query, for gradients each with `dims` coordinates.
struct FarProblem {
  int queries, sources, dims, columns;
  FarKind kind;
  PowerLaw law;
  double error;
  const double *query_points, *key_points, *charges;
  double *results;
};

}  // namespace particleflow
