// Native sums and their adjoints at odd shapes, each array exactly as long as it must be, against plain loops in long
// double. Compiled with sanitizers by tests/test_native_build.py, together with precision.cc for float and double.
#include <cstdio>
#include <random>
#include "work.h"

using namespace particleflow;

namespace particleflow {
bool sum_all(const std::vector<Problem<float>> &, const Workers &);
bool sum_all(const std::vector<Problem<double>> &, const Workers &);
bool pull_all(const std::vector<Adjoint<float>> &, const Workers &);
bool pull_all(const std::vector<Adjoint<double>> &, const Workers &);
}  // namespace particleflow

typedef long double Long;
static std::mt19937 generator(7);
static int number(int most) { return std::uniform_int_distribution<int>(0, most)(generator); }

template <class T> std::vector<T> normals(size_t count, double width) {
  std::normal_distribution<double> normal(0, width);
  std::vector<T> numbers(count);
  for (T &each : numbers) each = T(normal(generator));
  return numbers;
}

// The score of a pair; `size` is raised to that of the terms it is the sum of, which are what is rounded.
template <class T> Long score(const Problem<T> &p, int i, int j, Long &size) {
  Long inner = p.log_weights[j], square = 0, terms = 0;
  for (int c = 0; c < p.features; c++) {
    const Long x = p.query_features[(size_t)i * p.features + c], y = p.key_features[(size_t)j * p.features + c];
    if (c < p.inner) inner += x * y, terms += std::fabs(x * y);
    else square += (x - y) * (x - y);
  }
  const Long r2 = square * p.scale * p.scale, r = std::sqrt(r2);
  if (p.banded()) {
    const Long lag = (Long)p.query_positions[i] - p.key_positions[j];
    if (!(lag > p.least && lag < p.most)) return -INFINITY;
    inner -= p.slope * std::fabs(lag), terms += p.slope * std::fabs(lag);
  }
  if (!std::isinf(inner)) {
    if (p.profile == GAUSSIAN) terms += r2;
    if (p.profile == EXPONENTIAL || p.profile == POWER) terms += r;
    if (p.profile >= PARABOLA && r < 1) terms += 1 / (1 - r);  // what log(1 - r) makes of a rounding of r
    size = std::max(size, terms);
  }
  switch (p.profile) {
    case GAUSSIAN: return inner - r2;
    case EXPONENTIAL: return inner - r;
    case POWER: return inner - p.power * std::log1p(r2);
    case BALL: return square < p.power ? inner : -INFINITY;
    case PARABOLA: return r2 < 1 ? inner + std::log(1 - r2) : -INFINITY;
    case TRIANGLE: return r < 1 ? inner + std::log(1 - r) : -INFINITY;
    default: return inner;
  }
}

template <class T> double worst_case() {
  const int far = number(99) == 0 ? 2500 : 70;  // more than the second-level cache holds
  const int m = number(70), n = far - number(70), features = number(9) ? number(70) : 0, k = number(70);
  const Profile profile = (Profile)number(6);
  const int inner = profile == NO_PROFILE ? features : number(features);
  const bool banded = number(2) == 0;
  const double width = number(3) ? 0.3 : 6.0;
  const double tolerance = (m + n) % 2 ? -1 : 1e-15;  // by boxes, which leave out less than is rounded
  auto q = normals<T>((size_t)m * features, width), s = normals<T>((size_t)n * features, 1.0);
  auto z = normals<T>((size_t)n * k, 1.0), b = normals<T>(n, 1.0);
  auto t = normals<T>(m, 10.0), u = normals<T>(n, 10.0);
  for (T &each : b) if (number(9) == 0) each = -std::numeric_limits<T>::infinity();
  std::vector<T> mass(m), shift(m), mean((size_t)m * k);
  const T power = profile == BALL ? T(4) : T(1.7), scale = profile >= PARABOLA ? T(0.05) : T(0.4);
  Problem<T> p{m, n, features, inner, k, profile, q.data(), s.data(), z.data(), b.data(), banded ? t.data() : nullptr,
               banded ? u.data() : nullptr, power, T(-5), T(9), T(0.1), scale, tolerance, 4 + m % 13, m % 3 > 0,
               mass.data(), shift.data(), mean.data()};
  if (!banded) p.least = -INFINITY, p.most = INFINITY, p.slope = 0;
  const Workers workers{2, [](std::function<void()> task) { task(); }};
  if (m == 0) return 0;
  if (!sum_all(std::vector<Problem<T>>(number(1) + 1, p), workers)) return INFINITY;
  double worst = 0;
  std::vector<T> less(m), rates = normals<T>((size_t)m * k, 1.0), own = normals<T>(m, 1.0), none(n);
  std::vector<Long> weights((size_t)m * n);
  for (int i = 0; i < m; i++) {
    Long top = -INFINITY, total = 0, size = 1;
    for (int j = 0; j < n; j++) top = std::max(top, score(p, i, j, size));
    for (int j = 0; j < n; j++) {
      Long &weight = weights[(size_t)i * n + j];
      weight = std::isinf(top) ? 0 : std::exp(score(p, i, j, size) - top), total += weight;
    }
    const double log_mass = std::log((double)mass[i]) + shift[i], expected = total > 0 ? top + std::log(total) : -INFINITY;
    if (log_mass != expected) worst = std::max(worst, std::fabs(log_mass - expected) / (double)(1 + size));
    less[i] = total > 0 ? T(-expected) : -std::numeric_limits<T>::infinity();
    for (int c = 0; c < k; c++) {
      Long value = 0;
      for (int j = 0; j < n; j++) value += weights[(size_t)i * n + j] * z[(size_t)j * k + c];
      value = total > 0 ? value / total : 0;
      worst = std::max(worst, (double)std::fabs(mean[(size_t)i * k + c] - value) / (double)(1 + size));
    }
    for (int j = 0; j < n; j++) weights[(size_t)i * n + j] /= total > 0 ? total : 1;
  }
  std::vector<T> carried((size_t)m * features), totals(m), weighted((size_t)m * k), lengths(2 * (size_t)m);
  const Adjoint<T> a{p, less.data(), rates.data(), own.data(), none.data(), s.data(), carried.data(), totals.data(),
                     weighted.data(), lengths.data()};
  if (!pull_all(std::vector<Adjoint<T>>(1, a), workers)) return INFINITY;
  for (int i = 0; i < m; i++) {
    Long expected = 0, size = 1, terms = 1;
    for (int j = 0; j < n; j++) {
      score(p, i, j, terms);
      Long rate = own[i];
      for (int c = 0; c < k; c++) rate += (Long)rates[(size_t)i * k + c] * z[(size_t)j * k + c];
      expected += weights[(size_t)i * n + j] * rate, size = std::max(size, std::fabs(rate));
    }
    worst = std::max(worst, (double)(std::fabs(totals[i] - expected) / size / (1 + terms)));
  }
  return worst;
}

int main(int, char **arguments) {
  const int count = std::atoi(arguments[1]);
  double single = 0, twice = 0;
  for (int i = 0; i < count; i++) single = std::max(single, worst_case<float>()), twice = std::max(twice, worst_case<double>());
  std::printf("float %.3g double %.3g\n", single, twice);
  return single < 1e-6 && twice < 4e-15 ? 0 : 1;
}
