// Polynomials of total degree q: the moments of sources, local expansions, and the kernel between two cubes.
//
// For points x and y of two cubes of side a, whose centres are D sides apart, x - y = a (D + s + t) with s = (x - c)/a and
// t = (c' - y)/a, all between -1/2 and 1/2. Where the kernel is nearly a polynomial of s + t,
//
//     K(x - y) = sum_n c_n (s + t)^n / n! = sum_k s^k/k! sum_l c_{k+l} t^l/l!,    |k| + |l| <= q,
//
// so that a cube of sources needs only its moments sum_j w_j t_j^l/l!, and a cube of queries the sums L_k = sum_l c_{k+l} M_l.
// The polynomial is Chebyshev's interpolation, cut to the least total degree at which its error, relative to the kernel,
// is small enough; it is measured on a grid with the corners of the cube.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <vector>
#include "far_problem.h"
#include "lanes.h"

namespace particleflow {

// The monomials t^n/n! of degree up to `order`, those of low degree first.
struct Monomials {
  static constexpr int SPARE = 6;  // degrees beyond the order whose coefficients are 0
  int dims, order, stride;
  std::vector<std::array<int, 3>> powers;
  std::vector<int> first;   // where a degree begins
  std::vector<int> dense;   // the place of a monomial in a cube of `stride` numbers a side
  std::vector<std::array<int, 3>> up, down;  // t^n t_a and t^n / t_a, -1 for none
  struct Step {
    int from, axis;
    double factor;
  };
  std::vector<Step> steps;  // each monomial from one of less degree

  Monomials(int dims, int order) : dims(dims), order(order), stride(order + SPARE) {
    std::vector<int> index((size_t)stride * stride * stride, -1);
    for (int degree = 0; degree <= order; degree++) {
      first.push_back((int)powers.size());
      for (int i = 0; i <= degree; i++)
        for (int j = 0; i + j <= degree; j++) {
          const int k = degree - i - j;
          if ((dims < 3 && k > 0) || (dims < 2 && j > 0)) continue;
          index[place({i, j, k})] = (int)powers.size();
          powers.push_back({i, j, k}), dense.push_back(place({i, j, k}));
        }
    }
    first.push_back((int)powers.size());
    for (const auto &n : powers) {
      std::array<int, 3> above{-1, -1, -1}, below{-1, -1, -1};
      for (int a = 0; a < dims; a++) {
        auto m = n;
        m[a]++, above[a] = index[place(m)], m[a] -= 2;
        if (m[a] >= 0) below[a] = index[place(m)];
      }
      up.push_back(above), down.push_back(below);
      const int a = n[0] ? 0 : n[1] ? 1 : 2;
      steps.push_back({below[a], a, 1.0 / std::max(n[a], 1)});
    }
  }

  int count() const { return (int)powers.size(); }
  int up_to(int degree) const { return degree < 0 ? 0 : first[std::min(degree, order) + 1]; }
  int place(const std::array<int, 3> &n) const {
    return dims == 1 ? n[0] : dims == 2 ? n[0] * stride + n[1] : (n[0] * stride + n[1]) * stride + n[2];
  }
  size_t volume() const { return dims == 1 ? stride : dims == 2 ? (size_t)stride * stride : (size_t)stride * stride * stride; }

  // All monomials of the points in the lanes of t.
  void at(const Vector<double> *t, Vector<double> *values) const {
    values[0] = all<double>(1);
    for (int i = 1; i < count(); i++) values[i] = values[steps[i].from] * (t[steps[i].axis] * steps[i].factor);
  }

  // M_n <- sum_m ratio^|m| M_m shift^(n-m)/(n-m)!: the moments about another centre, in a larger cube.
  void move_moments(double ratio, const double *shift, int columns, double *moments) const {
    shrink(ratio, columns, moments);
    for (int a = 0; a < dims; a++)
      for (int i = count() - 1; i > 0; i--) {
        double factor = 1;
        for (int j = 1, from = down[i][a]; from >= 0; j++, from = down[from][a]) {
          factor *= shift[a] / j;
          for (int c = 0; c < columns; c++) moments[i * columns + c] += factor * moments[from * columns + c];
        }
      }
  }

  // L_m <- ratio^|m| sum_n L_n shift^(n-m)/(n-m)!: the expansion about another centre, in a smaller cube.
  void move_locals(double ratio, const double *shift, int columns, double *locals) const {
    for (int a = 0; a < dims; a++)
      for (int i = 0; i < count(); i++) {
        double factor = 1;
        for (int j = 1, from = up[i][a]; from >= 0; j++, from = up[from][a]) {
          factor *= shift[a] / j;
          for (int c = 0; c < columns; c++) locals[i * columns + c] += factor * locals[from * columns + c];
        }
      }
    shrink(ratio, columns, locals);
  }

private:
  void shrink(double ratio, int columns, double *numbers) const {
    double factor = 1;
    for (int degree = 0; degree <= order; degree++, factor *= ratio)
      for (int i = first[degree] * columns; i < first[degree + 1] * columns; i++) numbers[i] *= factor;
  }
};

// The kernel between two cubes as a polynomial: its order, -1 where none is good enough, and its coefficients c_n in a cube
// of `side` numbers a side.
struct Fit {
  int order = -1, side = 0;
  std::vector<double> coefficients;
};

// Chebyshev nodes of [-1, 1] and what turns values there into coefficients.
struct Nodes {
  static constexpr int PROBES = 4;
  int dims, count;
  std::vector<double> at, transform, powers, probes;

  Nodes(int dims, int count) : dims(dims), count(count) {
    at.resize(count), transform.resize(count * count), powers.assign(count * count, 0.0);
    probes.resize(count * PROBES);
    for (int i = 0; i < count; i++) at[i] = std::cos((2 * i + 1) * M_PI / (2 * count));
    for (int k = 0; k < count; k++) {
      for (int i = 0; i < count; i++)
        transform[k * count + i] = (k ? 2.0 : 1.0) / count * std::cos(k * (2 * i + 1) * M_PI / (2 * count));
      for (int p = 0; p < PROBES; p++) probes[k * PROBES + p] = std::cos(k * std::acos(probe(p)));
      // T_k = 2 t T_{k-1} - T_{k-2}
      for (int n = 0; n <= k; n++) {
        const double before = n > 0 && k > 0 ? powers[(k - 1) * count + n - 1] : 0.0;
        powers[k * count + n] = k == 0 ? 1.0 : k == 1 ? (n == 1) : 2 * before - powers[(k - 2) * count + n];
      }
    }
  }

  static double probe(int p) { return -1 + 2.0 * p / (PROBES - 1); }
  int volume(int side) const { return dims == 1 ? side : dims == 2 ? side * side : side * side * side; }

  // Every fibre of a cube of numbers along every axis times a matrix; `transposed`: from columns to rows.
  void along_axes(const std::vector<double> &matrix, bool transposed, std::vector<double> &cube) const {
    std::vector<double> turned(cube.size());
    const int plane = (int)cube.size() / count;
    for (int a = 0; a < dims; a++) {  // the first axis becomes the last, so that all have their turn
      std::fill(turned.begin(), turned.end(), 0.0);
      std::vector<double> sums(plane);
      for (int k = 0; k < count; k++) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int i = 0; i < count; i++) {
          const double factor = matrix[transposed ? i * count + k : k * count + i], *row = &cube[(size_t)i * plane];
          if (factor != 0)
            for (int j = 0; j < plane; j++) sums[j] += factor * row[j];
        }
        for (int j = 0; j < plane; j++) turned[(size_t)j * count + k] = sums[j];
      }
      cube.swap(turned);
    }
  }
};

// Fits for cubes of every level that are `apart` (sorted, the largest first) sides from each other, made when they are used.
class Fits {
  static constexpr int CLASSES = 8 * 8 * 8, LEVELS = 64;
  PowerLaw law, plain;
  int dims;
  double side, error;
  int more;
  std::vector<Nodes> nodes;  // few to many
  std::vector<Fit> fits;
  std::vector<std::once_flag> made;

public:
  // Parameters: the side of the first cube; the error of the kernel, relative; how many degrees `more` than it needs.
  Fits(int dims, PowerLaw law, double side, double error, int more, int count)
      : law(law), plain{law.power, law.softening, false}, dims(dims), side(side), error(error), more(more),
        fits(CLASSES * LEVELS), made(CLASSES * LEVELS) {
    for (int some = 8; some < count; some += 4) nodes.emplace_back(dims, some);
    nodes.emplace_back(dims, count);
  }

  const Fit &fit(int level, const std::array<int, 3> &apart) {
    const int place = (law.scale_free() ? 0 : level) * CLASSES + (apart[0] * 8 + apart[1]) * 8 + apart[2];
    std::call_once(made[place], [&] { fits[place] = fitted(law.scale_free() ? 1.0 : std::ldexp(side, -level), apart); });
    return fits[place];
  }
  // What the coefficients of a level are multiplied by.
  double scale(int level) const { return law.scale_free() ? std::pow(std::ldexp(side, -level), -2 * law.power) : 1.0; }

  // The coefficients c_n n! of cubes that are `apart` with signs and in any order, on the dense places of monomials.
  void coefficients(int level, const std::array<int, 3> &apart, const Monomials &basis, std::vector<double> &dense) {
    std::array<int, 3> order{0, 1, 2}, lengths{};
    for (int a = 0; a < dims; a++) lengths[a] = std::abs(apart[a]);
    std::stable_sort(order.begin(), order.begin() + dims, [&](int i, int j) { return lengths[i] > lengths[j]; });
    std::array<int, 3> turned{};
    for (int a = 0; a < dims; a++) turned[a] = lengths[order[a]];
    const Fit &found = fit(level, turned);
    const double factor = scale(level);
    std::fill(dense.begin(), dense.end(), 0.0);
    for (int i = 0; i < basis.up_to(found.order); i++) {
      std::array<int, 3> n{};
      double sign = factor;
      for (int a = 0; a < dims; a++) {
        n[a] = basis.powers[i][order[a]];
        if (apart[order[a]] < 0 && n[a] % 2) sign = -sign;
      }
      dense[basis.dense[i]] = sign * found.coefficients[place(n, found.side)];
    }
  }

private:
  int place(const std::array<int, 3> &n, int side) const {
    return dims == 1 ? n[0] : dims == 2 ? n[0] * side + n[1] : (n[0] * side + n[1]) * side + n[2];
  }

  std::vector<double> sampled(const PowerLaw &kernel, double width, const std::array<int, 3> &apart,
                              const std::vector<double> &places) const {
    const int count = (int)places.size(), all = nodes[0].volume(count);
    std::vector<double> values(all);
    for (int i = 0; i < all; i++) {
      double square = 0;
      for (int a = dims - 1, rest = i; a >= 0; a--, rest /= count) {
        const double u = width * (apart[a] + places[rest % count]);
        square += u * u;
      }
      values[i] = kernel(square);
    }
    return values;
  }

  std::array<int, 3> powers_of(int i, int side) const {
    std::array<int, 3> n{};
    for (int a = dims - 1; a >= 0; a--, i /= side) n[a] = i % side;
    return n;
  }

  // The fit by the fewest nodes that leave some degrees to spare, so that what they alias is small.
  Fit fitted(double width, const std::array<int, 3> &apart) const {
    for (const Nodes &some : nodes) {
      Fit found = fitted(some, width, apart);
      if (found.order >= 0) return found;
    }
    return {};
  }

  Fit fitted(const Nodes &nodes, double width, const std::array<int, 3> &apart) const {
    Fit found;
    found.side = nodes.count;
    std::vector<double> cube = sampled(plain, width, apart, nodes.at);
    nodes.along_axes(nodes.transform, false, cube);
    found.order = order_of(nodes, width, apart, cube);
    if (found.order < 0) return found;
    found.order += more;
    if (law.logarithmic) {
      cube = sampled(law, width, apart, nodes.at);
      nodes.along_axes(nodes.transform, false, cube);
    }
    for (int i = 0; i < (int)cube.size(); i++) {
      const auto n = powers_of(i, nodes.count);
      if (n[0] + n[1] + n[2] > found.order) cube[i] = 0;
    }
    nodes.along_axes(nodes.powers, true, cube);
    std::vector<double> factorials(nodes.count, 1.0);
    for (int n = 1; n < nodes.count; n++) factorials[n] = n * factorials[n - 1];
    for (int i = 0; i < (int)cube.size(); i++)
      for (int power : powers_of(i, nodes.count)) cube[i] *= factorials[power];
    found.coefficients = std::move(cube);
    return found;
  }

  // The least order from which on the error is small enough at all probes; -1 for none.
  int order_of(const Nodes &nodes, double width, const std::array<int, 3> &apart, const std::vector<double> &cube) const {
    std::vector<double> places(Nodes::PROBES);
    for (int p = 0; p < Nodes::PROBES; p++) places[p] = Nodes::probe(p);
    const std::vector<double> exact = sampled(plain, width, apart, places);
    const int probes = (int)exact.size(), degrees = nodes.dims * (nodes.count - 1) + 1;
    std::vector<double> parts((size_t)degrees * probes, 0.0);
    std::vector<double> outer(probes);
    for (int i = 0; i < (int)cube.size(); i++) {
      const auto n = powers_of(i, nodes.count);
      if (i % nodes.count == 0)  // the product of all factors but that of the last axis
        for (int at = 0; at < probes; at++) {
          outer[at] = 1;
          for (int a = nodes.dims - 2, rest = at / Nodes::PROBES; a >= 0; a--, rest /= Nodes::PROBES)
            outer[at] *= nodes.probes[n[a] * Nodes::PROBES + rest % Nodes::PROBES];
        }
      double *part = &parts[(size_t)(n[0] + n[1] + n[2]) * probes];
      const double *last = &nodes.probes[n[nodes.dims - 1] * Nodes::PROBES];
      for (int at = 0; at < probes; at += Nodes::PROBES)
        for (int q = 0; q < Nodes::PROBES; q++) part[at + q] += outer[at + q] * (cube[i] * last[q]);
    }
    std::vector<double> sum(probes, 0.0);
    int best = -1;
    for (int degree = 0; degree <= nodes.count - 3 - more; degree++) {
      double worst = 0;
      for (int at = 0; at < probes; at++) {
        sum[at] += parts[(size_t)degree * probes + at];
        worst = std::max(worst, std::fabs(sum[at] / exact[at] - 1));
      }
      if (!(worst <= error)) best = -1;
      else if (best < 0) best = degree;
    }
    return best;
  }
};

}  // namespace particleflow
