// Far sums: an object of their own, compiled beside those of all pairs.
#include "far.h"

namespace particleflow {

bool far_sum(const FarProblem &problem, const Workers &workers) {
  const size_t rows = (size_t)problem.queries * problem.columns * (problem.kind == GRADIENTS ? problem.dims : 1);
  std::fill_n(problem.results, rows, 0.0);
  if (!problem.queries || !problem.sources) return true;
  const auto finite = [&](const double *numbers, size_t count) {
    return std::all_of(numbers, numbers + count, [](double x) { return std::isfinite(x); });
  };
  const size_t d = problem.dims;
  if (!finite(problem.query_points, d * problem.queries) || !finite(problem.key_points, d * problem.sources) ||
      !std::isfinite(problem.law.power) || !std::isfinite(problem.law.softening)) {
    std::fill_n(problem.results, rows, NAN);
    return true;
  }
  FarSum(problem).sum(workers);
  return true;
}

}  // namespace particleflow
