// Sums of slowly decaying kernels in near-linear time: cells of points far from each other interact through polynomials
// (polynomials.h), near ones point by point.
//
//     SUMS        f_i = sum_j K(x_i - y_j) c_j
//     GRADIENTS   the derivative of f_i by x_i            DIPOLES   sum_j (c_j . d/dy_j) K(x_i - y_j)
//
// Of two cells the larger is divided until their cubes, seen at the level of the larger, are two sides apart or more, or both
// hold few points. Work is shared out by cells of queries, each of which writes to its own rows alone; it does not depend
// on the number of threads.
#pragma once
#include <memory>
#include <unordered_map>
#include "cells.h"
#include "far_pairs.h"
#include "far_problem.h"
#include "polynomials.h"
#include "rows.h"
#include "tiles.h"
#include "workers.h"

namespace particleflow {

// Costs, measured: operations of a pair beside those for coordinates and columns; and in such operations, a product of a
// translation and moving a number to and from it.
constexpr double PAIR_OPERATIONS = 14, OPERATIONS_AFTER_STEPS[] = {3, 6, 9}, PRODUCT = 2.0, MOVE = 40.0;

class FarSum {
  using Lanes = Vector<double>;
  static constexpr int WIDE = WIDTH<double>, TILES = REGISTERS == 32 ? 4 : 2, ROWS_AT_ONCE = 4;

  const FarProblem &p;
  const Cells tree;
  const int given, wanted, paired;  // columns of charges, of results, and of sums over pairs
  const AddPairs adder;  // null where near pairs are summed by passes over blocks
  std::vector<double> charges, results;  // by row of the tree
  std::unique_ptr<Fits> fits;
  std::unique_ptr<Monomials> basis;
  std::vector<std::vector<double>> moments;  // of large cells
  int few = 0;  // pairs of cells with no more points each are summed point by point

  struct Pair {
    int ours, theirs, level;
    std::array<int, 3> apart;
    auto key() const { return std::make_pair(level, apart); }
  };

  // What one cell of queries and its descendants collect.
  struct Item {
    int first;
    std::vector<Pair> far, near;
    std::unordered_map<int, std::vector<double>> moments, locals;
  };

public:
  explicit FarSum(const FarProblem &p)
      : p(p), tree(p.dims, p.query_points, p.queries, p.key_points, p.sources),
        given(p.kind == DIPOLES ? p.columns * p.dims : p.columns),
        wanted(p.kind == GRADIENTS ? p.columns * p.dims : p.columns),
        paired(p.kind == SUMS_OF_KERNEL ? p.columns : p.columns * (1 + p.dims)),
        adder(p.kind == SUMS_OF_KERNEL && !p.law.logarithmic ? pairs_adder(p.dims, p.columns, p.law.power, p.error)
                                                             : nullptr) {}

  void sum(const Workers &workers) {
    charges.assign(tree.keys.size() / p.dims * given, 0.0), results.assign(tree.queries.size() / p.dims * wanted, 0.0);
    for (int j = 0; j < p.sources; j++)
      for (int c = 0; c < given; c++) charges[(size_t)tree.key_rows[j] * given + c] += p.charges[(size_t)j * given + c];
    prepare();
    collect_moments(workers);
    const std::vector<int> items = shares(workers);
    workers.share((int)items.size(), [&](int i) {
      do_item(items[i]);
      return true;
    });
    workers.rows(p.queries, [&](int first, int end) {
      for (int i = first; i < end; i++)
        std::copy_n(&results[(size_t)tree.query_rows[i] * wanted], wanted, p.results + (size_t)i * wanted);
    });
  }

private:
  // How many nodes a fit needs: measured for powers 1/2 to 5/2, with some to spare.
  int nodes() const {
    const double digits = std::log10(1 / p.error) + std::max(0.0, 2 * p.law.power - 1);
    const double per_digit = p.dims == 1 ? 2.1 : p.dims == 2 ? 3.2 : 4.2;
    const int most = p.dims == 1 ? 60 : p.dims == 2 ? 36 : 22;
    return std::min(most, 6 + (int)std::ceil(per_digit * digits));
  }

  void prepare() {
    const int more = p.kind == SUMS_OF_KERNEL ? 0 : 2;
    fits = std::make_unique<Fits>(p.dims, p.law, 2 * tree.radius, p.error, more, nodes());
    const int level = first_level();
    int order = 1, classes = 0;
    double products = 0;
    const int flat = p.dims < 2 ? 0 : 3, deep = p.dims < 3 ? 0 : 3;
    for (int i = 2; i <= 3; i++)
      for (int j = 0; j <= std::min(i, flat); j++)
        for (int k = 0; k <= std::min(j, deep); k++) {
          const int found = fits->fit(level, {i, j, k}).order;
          order = std::max(order, found);
          if (found >= 0) products += translation(found), classes++;
        }
    basis = std::make_unique<Monomials>(p.dims, order);
    // As much for the points of a cell as for its translations, of which there are 3^d (2^d - 1) for each 3^d near cells,
    // in the middle of the sizes that cells have, between `few` and 2^-d of it.
    const double balanced = ((1 << p.dims) - 1) * products / std::max(classes, 1) / pair_operations();
    few = (int)std::clamp(std::sqrt((1 << p.dims) * balanced), 48.0, 2048.0);
  }

  // The coarsest level on which cells can be two sides apart: softened kernels take the highest orders there.
  int first_level() const {
    std::array<double, 3> least, most;
    least.fill(INFINITY), most.fill(-INFINITY);
    for (const std::vector<double> *points : {&tree.queries, &tree.keys})
      for (size_t i = 0; i < points->size(); i++) {
        const int a = (int)(i % p.dims);
        least[a] = std::min(least[a], (*points)[i]), most[a] = std::max(most[a], (*points)[i]);
      }
    for (int level = 0; level < DEEPEST; level++)
      for (int a = 0; a < p.dims; a++) {
        const double side = 2 * tree.half_side(level);
        if (std::floor((most[a] + tree.radius) / side) - std::floor((least[a] + tree.radius) / side) >= 2) return level;
      }
    return DEEPEST;
  }

  double pair_operations() const {
    if (!adder) return p.dims * 2 + paired + PAIR_OPERATIONS;
    return p.dims * 2 + paired + OPERATIONS_AFTER_STEPS[steps_for(p.error, (int)(2 * p.law.power))];
  }
  // What a translation takes in operations of a pair: C(q + 2d, 2d) products for every column, and moving the numbers.
  double translation(int order) const {
    double products = 1, terms = 1;
    for (int i = 1; i <= 2 * p.dims; i++) products *= (order + i) / (double)i;
    for (int i = 1; i <= p.dims; i++) terms *= (order + i) / (double)i;
    return p.columns * (PRODUCT * products + MOVE * terms);
  }

  // Cells of queries that are divided among threads: the largest with a part of all queries each.
  std::vector<int> shares(const Workers &workers) const {
    const int part = std::max(few, (int)(tree.queries.size() / p.dims) / (4 * workers.count) + 1);
    std::vector<int> chosen, left{0};
    while (!left.empty()) {
      const Cell &cell = tree.cells[left.back()];
      const int index = left.back();
      left.pop_back();
      if (!cell.queries()) continue;
      if (cell.queries() <= part || !cell.children) chosen.push_back(index);
      else
        for (int c = cell.children - 1; c >= 0; c--) left.push_back(cell.child + c);
    }
    return chosen;
  }

  // The moments of the sources of a cell about a centre, in units of a side.
  void moments_of(const Cell &cell, std::vector<double> &sums) const {
    const int count = basis->count();
    const auto centre = tree.centre(cell);
    const double side = 2 * tree.half_side(cell.level);
    std::vector<Lanes> values(count), totals((size_t)count * given, Lanes{});
    for (int first = cell.key; first < cell.key_end; first += WIDE) {
      Lanes t[3] = {}, weights[64];
      const int here = std::min(WIDE, cell.key_end - first);
      for (int i = 0; i < here; i++)
        for (int a = 0; a < p.dims; a++) t[a][i] = (centre[a] - tree.keys[(size_t)(first + i) * p.dims + a]) / side;
      basis->at(t, values.data());
      for (int begin = 0; begin < given; begin += 64) {
        const int columns = std::min(64, given - begin);
        for (int c = 0; c < columns; c++) {
          weights[c] = Lanes{};
          for (int i = 0; i < here; i++) weights[c][i] = charges[(size_t)(first + i) * given + begin + c];
        }
        for (int n = 0; n < count; n++)
          for (int c = 0; c < columns; c++) totals[(size_t)n * given + begin + c] += values[n] * weights[c];
      }
    }
    sums.assign((size_t)count * p.columns, 0.0);
    const auto total = [&](int n, int c) {
      double sum = 0;
      for (int i = 0; i < WIDE; i++) sum += totals[(size_t)n * given + c][i];
      return sum;
    };
    for (int n = 0; n < count; n++)
      for (int c = 0; c < p.columns; c++) {
        if (p.kind != DIPOLES) sums[n * p.columns + c] = total(n, c);
        else
          for (int a = 0; a < p.dims; a++)  // dt/dy = -1/side
            if (basis->down[n][a] >= 0) sums[n * p.columns + c] -= total(basis->down[n][a], c * p.dims + a) / side;
      }
  }

  // Moments brought to the cube that holds a cell at a higher level.
  void raise(const Cell &cell, int level, std::vector<double> &numbers) const {
    if (cell.level == level) return;
    double shift[3];
    const double side = 2 * tree.half_side(level);
    for (int a = 0; a < p.dims; a++)
      shift[a] = (tree.centre(level, cell.place[a] >> (cell.level - level)) - tree.centre(cell.level, cell.place[a])) / side;
    basis->move_moments(std::ldexp(1.0, level - cell.level), shift, p.columns, numbers.data());
  }

  // An expansion of the cube of a level brought to a cell inside it.
  void lower(int level, const Cell &cell, std::vector<double> &numbers) const {
    if (cell.level == level) return;
    double shift[3];
    const double side = 2 * tree.half_side(level);
    for (int a = 0; a < p.dims; a++)
      shift[a] = (tree.centre(cell.level, cell.place[a]) - tree.centre(level, cell.place[a] >> (cell.level - level))) / side;
    basis->move_locals(std::ldexp(1.0, level - cell.level), shift, p.columns, numbers.data());
  }

  bool is_large(const Cell &cell) const { return cell.children && cell.keys() > few; }

  // Moments of all cells with many sources, from those of their children, and of these children.
  void collect_moments(const Workers &workers) {
    moments.resize(tree.cells.size());
    std::vector<int> from_points;
    std::vector<std::vector<int>> from_children(DEEPEST + 1);
    for (int index = 0; index < (int)tree.cells.size();) {
      const Cell &cell = tree.cells[index];
      if (is_large(cell)) {
        from_children[cell.level].push_back(index);
        for (int c = 0; c < cell.children; c++)
          if (const Cell &child = tree.cells[cell.child + c]; child.keys() && !is_large(child)) from_points.push_back(cell.child + c);
      }
      index++;
    }
    workers.share((int)from_points.size(), [&](int i) {
      moments_of(tree.cells[from_points[i]], moments[from_points[i]]);
      return true;
    });
    for (int level = DEEPEST; level >= 0; level--)
      workers.share((int)from_children[level].size(), [&](int i) {
        const Cell &cell = tree.cells[from_children[level][i]];
        std::vector<double> &sums = moments[from_children[level][i]], part;
        sums.assign((size_t)basis->count() * p.columns, 0.0);
        for (int c = cell.child; c < cell.child + cell.children; c++) {
          if (!tree.cells[c].keys()) continue;
          part = moments[c];
          raise(tree.cells[c], cell.level, part);
          for (size_t i = 0; i < sums.size(); i++) sums[i] += part[i];
        }
        return true;
      });
  }

  const std::vector<double> &moments_for(int index, Item &item) const {
    if (!moments[index].empty()) return moments[index];
    std::vector<double> &own = item.moments[index];
    if (own.empty()) moments_of(tree.cells[index], own);
    return own;
  }

  void do_item(int first) {
    Item item{first, {}, {}, {}, {}};
    visit(first, 0, item);
    const auto by_place = [](const Pair &one, const Pair &other) { return one.key() < other.key(); };
    std::stable_sort(item.far.begin(), item.far.end(), by_place);
    std::vector<double> coefficients(basis->volume());
    for (size_t begin = 0, end; begin < item.far.size(); begin = end) {
      const Pair &one = item.far[begin];
      for (end = begin; end < item.far.size() && item.far[end].key() == one.key();) end++;
      fits->coefficients(one.level, one.apart, *basis, coefficients);
      translate_all(&item.far[begin], (int)(end - begin), order_of(one.level, one.apart), coefficients, item);
    }
    expand(item);
    const auto by_queries = [](const Pair &one, const Pair &other) { return one.ours < other.ours; };
    std::stable_sort(item.near.begin(), item.near.end(), by_queries);
    for (size_t begin = 0, end; begin < item.near.size(); begin = end) {
      for (end = begin; end < item.near.size() && item.near[end].ours == item.near[begin].ours;) end++;
      add_near(&item.near[begin], (int)(end - begin));
    }
  }

  // The order of the polynomial for cubes that are so far apart, -1 where there is none.
  int order_of(int level, const std::array<int, 3> &apart) const {
    std::array<int, 3> lengths{std::abs(apart[0]), std::abs(apart[1]), std::abs(apart[2])};
    std::sort(lengths.begin(), lengths.end(), std::greater<int>());
    if (lengths[0] < 2 || lengths[0] > 7) return -1;
    const int order = fits->fit(level, lengths).order;
    return order <= basis->order ? order : -1;
  }

  void visit(int ours, int theirs, Item &item) const {
    const Cell &one = tree.cells[ours], &other = tree.cells[theirs];
    const double pairs = (double)one.queries() * other.keys();
    if (pairs == 0) return;
    const int level = std::min(one.level, other.level);
    std::array<int, 3> apart{};
    int64_t furthest = 0;
    for (int a = 0; a < p.dims; a++) {
      const int64_t steps = (one.place[a] >> (one.level - level)) - (other.place[a] >> (other.level - level));
      furthest = std::max<int64_t>(furthest, std::abs(steps)), apart[a] = (int)std::clamp<int64_t>(steps, -100, 100);
    }
    if (furthest >= 2 && furthest <= 7) {
      const int order = order_of(level, apart);
      if (order >= 0) {
        const bool worth = pairs * pair_operations() > translation(order);
        return (worth ? item.far : item.near).push_back({ours, theirs, level, apart});
      }
    }
    const bool ours_splits = one.children > 0, theirs_splits = other.children > 0;
    if (std::max(one.queries(), other.keys()) <= few || (!ours_splits && !theirs_splits)) return item.near.push_back({ours, theirs, level, apart});
    const bool ours_first = one.level != other.level ? one.level < other.level : one.queries() >= other.keys();
    if (ours_splits && (ours_first || !theirs_splits)) {
      for (int c = 0; c < one.children; c++) visit(one.child + c, theirs, item);
    } else {
      for (int c = 0; c < other.children; c++) visit(ours, other.child + c, item);
    }
  }

  // L += c M for pairs of cells that are equally far apart, as many at once as lanes hold.
  void translate_all(const Pair *pairs, int count, int order, const std::vector<double> &coefficients, Item &item) const {
    const int each = std::max(1, TILES * WIDE / p.columns);
    for (int begin = 0; begin < count; begin += each)
      for (int column = 0; column < p.columns; column += TILES * WIDE)
        translate(pairs + begin, std::min(each, count - begin), column, order, coefficients, item);
  }

  void translate(const Pair *pairs, int count, int column, int order, const std::vector<double> &coefficients, Item &item) const {
    const int columns = std::min(p.columns - column, TILES * WIDE), terms = basis->up_to(order), lanes = count * columns;
    const int tiles = (lanes + WIDE - 1) / WIDE, stride = tiles * WIDE;
    std::vector<double> from((size_t)terms * stride + WIDE, 0.0), to((size_t)(terms + ROWS_AT_ONCE) * stride + WIDE);
    double *given = aligned(from), *found = aligned(to);
    std::vector<double> moved;
    for (int i = 0; i < count; i++) {
      const Cell &cell = tree.cells[pairs[i].theirs];
      const std::vector<double> *numbers = &moments_for(pairs[i].theirs, item);
      if (cell.level != pairs[i].level) moved = *numbers, raise(cell, pairs[i].level, moved), numbers = &moved;
      for (int n = 0; n < terms; n++)
        for (int c = 0; c < columns; c++) given[n * stride + i * columns + c] = (*numbers)[n * p.columns + column + c];
    }
    if (tiles == 1) multiply<1>(order, coefficients, given, found);
    else if (tiles == 2) multiply<2>(order, coefficients, given, found);
    else if (tiles == 3) multiply<TILES == 4 ? 3 : 2>(order, coefficients, given, found);
    else multiply<TILES>(order, coefficients, given, found);
    for (int i = 0; i < count; i++) {
      const Cell &cell = tree.cells[pairs[i].ours];
      std::vector<double> &locals = item.locals[pairs[i].ours];
      if (locals.empty()) locals.assign((size_t)basis->count() * p.columns, 0.0);
      double *into = locals.data();
      if (cell.level != pairs[i].level) moved.assign(locals.size(), 0.0), into = moved.data();
      for (int n = 0; n < terms; n++)
        for (int c = 0; c < columns; c++) into[n * p.columns + column + c] += found[n * stride + i * columns + c];
      if (cell.level == pairs[i].level) continue;
      lower(pairs[i].level, cell, moved);
      for (size_t n = 0; n < moved.size(); n++) locals[n] += moved[n];
    }
  }

  static double *aligned(std::vector<double> &numbers) {
    return (double *)(((uintptr_t)numbers.data() + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES);
  }

  // found_k = sum of c_{k+l} given_l over |k| + |l| <= order, four k at a time: coefficients beyond the order are 0.
  template <int V>
  NOINLINE void multiply(int order, const std::vector<double> &coefficients, const double *given, double *found) const {
    const int terms = basis->up_to(order);
    const int *dense = basis->dense.data();
    for (int k = 0; k < terms; k += ROWS_AT_ONCE) {
      int degree = 0;
      while (basis->up_to(degree) <= k) degree++;
      const int end = basis->up_to(order - degree);
      const double *rows[ROWS_AT_ONCE];
      UNROLL for (int r = 0; r < ROWS_AT_ONCE; r++) rows[r] = coefficients.data() + dense[std::min(k + r, terms - 1)];
      Lanes sums[ROWS_AT_ONCE][V] = {};
      const Lanes *source = (const Lanes *)given;
      for (int l = 0; l < end; l++, source += V) {
        Lanes x[V];
        UNROLL for (int v = 0; v < V; v++) {
          x[v] = source[v];
          IN_REGISTER(x[v]);
        }
        UNROLL for (int r = 0; r < ROWS_AT_ONCE; r++) {
          const double factor = rows[r][dense[l]];
          UNROLL for (int v = 0; v < V; v++) sums[r][v] += x[v] * factor;
        }
      }
      UNROLL for (int r = 0; r < ROWS_AT_ONCE; r++)
        UNROLL for (int v = 0; v < V; v++) ((Lanes *)found)[(k + r) * V + v] = sums[r][v];
    }
  }

  // Expansions handed down from cell to cell, and evaluated at the queries of cells with few.
  void expand(Item &item) {
    const Cell &top = tree.cells[item.first];
    for (int index = item.first; index < top.end; index = index == item.first ? std::max(top.child, index + 1) : index + 1) {
      const auto found = item.locals.find(index);
      if (found == item.locals.end()) continue;
      const Cell &cell = tree.cells[index];
      if (cell.queries() <= few || !cell.children) {
        evaluate(cell, found->second);
      } else {
        const std::vector<double> own = std::move(found->second);
        for (int c = cell.child; c < cell.child + cell.children; c++) {
          if (!tree.cells[c].queries()) continue;
          std::vector<double> part = own;
          lower(cell.level, tree.cells[c], part);
          std::vector<double> &locals = item.locals[c];
          if (locals.empty()) locals = std::move(part);
          else
            for (size_t n = 0; n < part.size(); n++) locals[n] += part[n];
        }
      }
      item.locals.erase(index);
    }
  }

  void evaluate(const Cell &cell, const std::vector<double> &locals) {
    const int count = basis->count();
    const auto centre = tree.centre(cell);
    const double side = 2 * tree.half_side(cell.level);
    std::vector<double> slopes;
    const double *numbers = locals.data();
    if (p.kind == GRADIENTS) {
      slopes.assign((size_t)count * wanted, 0.0);
      for (int n = 0; n < count; n++)
        for (int a = 0; a < p.dims; a++)
          for (int c = 0; c < p.columns && basis->up[n][a] >= 0; c++)
            slopes[(size_t)n * wanted + c * p.dims + a] = locals[(size_t)basis->up[n][a] * p.columns + c] / side;
      numbers = slopes.data();
    }
    std::vector<Lanes> values(count);
    for (int first = cell.query; first < cell.query_end; first += WIDE) {
      Lanes s[3] = {};
      const int here = std::min(WIDE, cell.query_end - first);
      for (int i = 0; i < here; i++)
        for (int a = 0; a < p.dims; a++) s[a][i] = (tree.queries[(size_t)(first + i) * p.dims + a] - centre[a]) / side;
      basis->at(s, values.data());
      for (int begin = 0; begin < wanted; begin += 8) {
        Lanes sums[8] = {};
        const int columns = std::min(8, wanted - begin);
        for (int n = 0; n < count; n++)
          for (int c = 0; c < columns; c++) sums[c] += values[n] * numbers[(size_t)n * wanted + begin + c];
        for (int c = 0; c < columns; c++)
          for (int i = 0; i < here; i++) results[(size_t)(first + i) * wanted + begin + c] += sums[c][i];
      }
    }
  }

  void add_near(const Pair *pairs, int count) {
    const Cell &cell = tree.cells[pairs[0].ours];
    int first = cell.query;
    if (adder)
      for (; cell.query_end - first > WIDE; first += PAIRS_AT_ONCE * WIDE) add_in_registers(pairs, count, first);
    for (; cell.query_end - first > 2 * WIDE; first += QUERIES * WIDE) add_tile<QUERIES>(pairs, count, first);
    for (; first < cell.query_end; first += WIDE) add_tile<1>(pairs, count, first);
  }

  void add_in_registers(const Pair *pairs, int count, int first) {
    const Cell &cell = tree.cells[pairs[0].ours];
    const int rows = std::min(PAIRS_AT_ONCE * WIDE, cell.query_end - first);
    const double softening = std::max(p.law.softening, least_base());
    Lanes features[3 * PAIRS_AT_ONCE], sums[4 * PAIRS_AT_ONCE], totals[8 * PAIRS_AT_ONCE] = {};
    spread_rows<double, PAIRS_AT_ONCE>(tree.queries.data() + (size_t)first * p.dims, 0, rows, p.dims, features);
    for (int i = 0; i < count; i++) {
      const Cell &other = tree.cells[pairs[i].theirs];
      for (int begin = other.key; begin < other.key_end; begin += BLOCK) {
        const int here = std::min(BLOCK, other.key_end - begin);
        adder(here, softening, features, &tree.keys[(size_t)begin * p.dims], &charges[(size_t)begin * given], sums);
        for (int n = 0; n < p.columns * PAIRS_AT_ONCE; n++) add_exactly<double>(totals[2 * n], totals[2 * n + 1], sums[n]);
      }
    }
    for (int c = 0; c < p.columns; c++)
      for (int i = 0; i < rows; i++) {
        const Lanes *total = &totals[2 * (c * PAIRS_AT_ONCE + i / WIDE)];
        results[(size_t)(first + i) * wanted + c] += total[0][i % WIDE] + total[1][i % WIDE];
      }
  }

  // On a point the kernel would be infinite: there it is at most e^638, which outweighs all others.
  double least_base() const {
    const double power = p.law.power + (p.kind == SUMS_OF_KERNEL ? 0 : 1);
    return std::max(2.2250738585072014e-308, std::exp(-638 / power));
  }

  // Sums over all pairs of a tile of queries and of the sources of some cells.
  template <int V> void add_tile(const Pair *pairs, int count, int first) {
    const Cell &cell = tree.cells[pairs[0].ours];
    const int rows = std::min(V * WIDE, cell.query_end - first);
    const auto centre = tree.centre(cell);
    std::vector<Lanes> features((size_t)p.dims * V), totals((size_t)2 * paired * V, Lanes{});
    std::vector<double> carried(p.kind == SUMS_OF_KERNEL ? 0 : (size_t)BLOCK * paired);
    alignas(64) Lanes weights[BLOCK * V];
    spread_rows<double, V>(tree.queries.data() + (size_t)first * p.dims, 0, rows, p.dims, features.data());
    for (int i = 0; i < count; i++) {
      const Cell &other = tree.cells[pairs[i].theirs];
      for (int begin = other.key; begin < other.key_end; begin += BLOCK) {
        const int here = std::min(BLOCK, other.key_end - begin);
        const double *points = &tree.keys[(size_t)begin * p.dims], *columns = &charges[(size_t)begin * given];
        products<double, V, true>(here, p.dims, p.dims, features.data(), points, nullptr, weights);
        if (p.kind != SUMS_OF_KERNEL) carry(here, points, columns, centre, carried.data()), columns = carried.data();
        weigh<V>(here, weights);
        add_all_columns<double, V>(here, paired, weights, columns, totals.data());
      }
    }
    for (int i = 0; i < rows; i++) write(first + i, centre, [&](int c) {
      const Lanes *total = &totals[2 * (size_t)(c * V + i / WIDE)];
      return total[0][i % WIDE] + total[1][i % WIDE];
    });
  }

  // Beside the charges their products with the coordinates of the sources, about a centre.
  void carry(int count, const double *points, const double *numbers, const std::array<double, 3> &centre, double *to) const {
    for (int j = 0; j < count; j++, numbers += given, points += p.dims, to += paired) {
      std::copy_n(numbers, given, to);
      double *products = to + given;
      for (int c = 0; c < p.columns; c++) {
        if (p.kind == DIPOLES) products[c] = 0;
        for (int a = 0; a < p.dims; a++) {
          const double y = points[a] - centre[a];
          if (p.kind == GRADIENTS) products[c * p.dims + a] = y * numbers[c];
          else products[c] += y * numbers[c * p.dims + a];
        }
      }
    }
  }

  // The sums of pairs added to a row: dK/dx = -2 power (r2 + softening)^(-power - 1) (x - y), and dK/dy its negative.
  template <class Total> void write(int row, const std::array<double, 3> &centre, Total total) {
    double *to = &results[(size_t)row * wanted];
    const double *x = &tree.queries[(size_t)row * p.dims], factor = 2 * p.law.power;
    for (int c = 0; c < p.columns; c++) {
      if (p.kind == SUMS_OF_KERNEL) to[c] += total(c);
      for (int a = 0; a < p.dims; a++) {
        if (p.kind == GRADIENTS) to[c * p.dims + a] -= factor * ((x[a] - centre[a]) * total(c) - total(given + c * p.dims + a));
        if (p.kind == DIPOLES) to[c] += factor * (x[a] - centre[a]) * total(c * p.dims + a);
      }
      if (p.kind == DIPOLES) to[c] -= factor * total(given + c);
    }
  }

  // Squares of distances become what they weigh: the kernel, or its derivative by the square, which is 0 on a point.
  template <int V> void weigh(int count, Lanes *squares) const {
    const double twice = 2 * p.law.power + (p.kind == SUMS_OF_KERNEL ? 0 : 2);
    switch (p.law.logarithmic ? 0 : (int)twice == twice ? (int)twice : 0) {
      case 1: return weigh<V, 1>(count, squares);
      case 2: return weigh<V, 2>(count, squares);
      case 3: return weigh<V, 3>(count, squares);
      case 4: return weigh<V, 4>(count, squares);
      case 5: return weigh<V, 5>(count, squares);
      default: return weigh<V, 0>(count, squares);
    }
  }

  // The power is TWICE/2; 0 for any other.
  template <int V, int TWICE> NOINLINE void weigh(int count, Lanes *squares) const {
    const bool slopes = p.kind != SUMS_OF_KERNEL;
    const double power = p.law.power + slopes, softening = p.law.softening;
    const Lanes least = all<double>(least_base());
    for (int j = 0; j < count; j++, squares += V)
      UNROLL for (int v = 0; v < V; v++) {
        const Lanes given = squares[v] + softening, base = given < least ? least : given;
        Lanes value;
        if constexpr (TWICE > 0) {
          const Lanes root = inverse_root(base);
          value = TWICE % 2 ? root : all<double>(1);
          if (TWICE > 1) {
            const Lanes inverse = root * root;
            UNROLL for (int n = 0; n < TWICE / 2; n++) value *= inverse;
          }
        } else {
          const Lanes logarithm = log_lanes<double>(base);
          value = logarithm * -power;
          exp_lanes<double, 1, true>(&value);
          if (p.law.logarithmic) value *= -logarithm;
        }
        squares[v] = slopes ? (given < least ? Lanes{} : value) : value;
      }
  }

  static INLINE Lanes inverse_root(Lanes x) {
#if defined(__AVX512F__)
    Lanes y = (Lanes)_mm512_rsqrt14_pd((__m512d)x);
    const Lanes rest = 1.0 - (x * y) * y;  // less than 2^-13, so that its fourth power is beyond the digits
    return y + (y * rest) * (0.5 + rest * (0.375 + rest * 0.3125));
#else
    return 1.0 / sqrt_lanes<double>(x);
#endif
  }
};

}  // namespace particleflow
