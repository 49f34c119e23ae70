// The sums of one precision, PRECISION: float and double are two objects, so that two processes can compile them side
// by side.
#include "work.h"

namespace particleflow {

bool sum(const Problem<PRECISION> &problem, const Workers &workers) { return sum_one(problem, workers); }
bool pull(const Adjoint<PRECISION> &adjoint, const Workers &workers) { return pull_one(adjoint, workers); }

bool sum_all(const std::vector<Problem<PRECISION>> &problems, const Workers &workers) {
  if (problems.empty()) return true;
  const double each = cycles(problems[0], problems[0].features + problems[0].columns + 14);
  return do_all(problems, workers, each, [](const auto &problem, const Workers &w) { return sum_one(problem, w); });
}

bool pull_all(const std::vector<Adjoint<PRECISION>> &adjoints, const Workers &workers) {
  if (adjoints.empty()) return true;
  const Problem<PRECISION> &first = adjoints[0].problem;
  const double each = cycles(first, 2 * first.features + 2 * first.columns + 16);
  return do_all(adjoints, workers, each, [](const auto &adjoint, const Workers &w) { return pull_one(adjoint, w); });
}

}  // namespace particleflow
