// Work: whole sums, shared out over threads.
#pragma once
#include <deque>
#include <new>
#include <vector>
#include "adjoint.h"
#include "workers.h"

namespace particleflow {

template <class T> double cycles(const Problem<T> &p, int a_pair) {
  return (double)p.queries * p.sources * a_pair / WIDTH<T> / 2;
}

// Tiles of QUERIES vectors of queries, `together` of them an item of work; the rest, if it is short, in tiles of one
// vector.
template <class T> struct Cut {
  static constexpr int LARGE = QUERIES * WIDTH<T>, SMALL = WIDTH<T>;
  int large, small, together, groups;

  explicit Cut(int queries, int together = 1) : together(together) {
    large = queries / LARGE, small = (queries % LARGE + SMALL - 1) / SMALL;
    if (small > 2) large++, small = 0;
    groups = (large + together - 1) / together;
  }

  int items() const { return groups + small; }
  bool is_large(int item) const { return item < groups; }
  int first(int item) const { return is_large(item) ? item * together * LARGE : large * LARGE + (item - groups) * SMALL; }
  int tiles(int item) const { return is_large(item) ? std::min(together, large - item * together) : 1; }
};

// A single-precision problem whose scores spread too far is summed in double precision.
bool sum(const Problem<double> &problem, const Workers &workers);
bool pull(const Adjoint<double> &adjoint, const Workers &workers);

template <class T> struct Widened {
  std::vector<std::vector<double>> kept;

  const double *operator()(const T *numbers, size_t count) {
    if (!numbers) return nullptr;
    kept.emplace_back(numbers, numbers + count);
    if (!count) kept.back().resize(1);
    return kept.back().data();
  }
  double *room(size_t count) {
    kept.emplace_back(count + 1);
    return kept.back().data();
  }
};

template <class T> Problem<double> widened(const Problem<T> &p, Widened<T> &wide) {
  const size_t m = p.queries, n = p.sources;
  return {p.queries, p.sources, p.features, p.inner, p.columns, p.profile,
          wide(p.query_features, m * p.features), wide(p.key_features, n * p.features), wide(p.values, n * p.columns),
          wide(p.log_weights, n), wide(p.query_positions, m), wide(p.key_positions, n),
          p.power, p.least, p.most, p.slope, p.scale, p.tolerance, p.packet, p.widen, nullptr, nullptr, nullptr,
          wide(p.bounding, (size_t)p.bounding_rows * p.features), p.bounding_rows};
}

// Whether a problem is summed by its boxes; what is not finite is left to the sum of all pairs, which shows it.
template <class T> bool is_near(const Problem<T> &p, const Bounds<T> &bounds) {
  return p.tolerance >= 0 && p.queries > 0 && p.sources > 0 && p.features > 0 && std::isfinite(bounds.spread);
}

// Whether a problem in single precision is summed in double precision: because of its scores, or of its boxes.
template <class T> bool is_widened(const Problem<T> &p, const Bounds<T> &bounds) {
  return sizeof(T) < sizeof(double) && (is_coarse(p, bounds.spread) || is_near(p, bounds));
}

// A problem's rows in another order, and room for results that go back to where they belong.
struct Sorted {
  const Workers &workers;
  std::deque<Numbers> kept;

  const double *operator()(const double *numbers, const std::vector<int> &index, int columns) {
    if (!numbers) return nullptr;
    double *to = room(index.size() * columns);
    pick_rows(numbers, index, columns, workers, to);
    return to;
  }
  double *room(size_t count) {
    kept.emplace_back(count + 1);
    return kept.back().data();
  }
  void back(const double *sorted, const std::vector<int> &index, int columns, double *numbers) const {
    if (!numbers) return;
    workers.rows((int)index.size(), [&](int first, int end) {
      for (int i = first; i < end; i++)
        std::copy_n(sorted + (size_t)i * columns, columns, numbers + (size_t)index[i] * columns);
    });
  }
  Problem<double> operator()(const Problem<double> &p, const Scene &scene) {
    const auto &ours = scene.query_order, &theirs = scene.key_order;
    Problem<double> same = p;
    same.query_features = (*this)(p.query_features, ours, p.features);
    same.key_features = (*this)(p.key_features, theirs, p.features);
    same.values = (*this)(p.values, theirs, p.columns), same.log_weights = (*this)(p.log_weights, theirs, 1);
    same.query_positions = (*this)(p.query_positions, ours, 1), same.key_positions = (*this)(p.key_positions, theirs, 1);
    return same;
  }
};

inline bool sum_by_boxes(const Problem<double> &p, const Bounds<double> &bounds, const Workers &workers) {
  const Scene scene(p, Places(p, bounds, workers), workers);
  Sorted sorted{workers, {}};
  Problem<double> same = sorted(p, scene);
  same.mass = sorted.room(p.queries), same.shift = sorted.room(p.queries);
  same.mean = sorted.room((size_t)p.queries * p.columns);
  double *memory = scratch<double, 1>(Cloud<double>::size(p));
  if (!memory) return false;
  const Cloud<double> cloud(same, bounds, memory);
  const Cut<double> cut(p.queries);
  const bool done = workers.share(cut.items(), [&](int item) {
    return cut.is_large(item) ? sum_near<QUERIES>(same, bounds, cloud, scene, cut.first(item))
                              : sum_near<1>(same, bounds, cloud, scene, cut.first(item));
  });
  sorted.back(same.mass, scene.query_order, 1, p.mass), sorted.back(same.shift, scene.query_order, 1, p.shift);
  sorted.back(same.mean, scene.query_order, p.columns, p.mean);
  return done;
}

inline bool pull_by_boxes(const Adjoint<double> &a, const Bounds<double> &bounds, const Workers &workers) {
  const Problem<double> &p = a.problem;
  const Scene scene(p, Places(p, bounds, workers), workers);
  const auto &ours = scene.query_order, &theirs = scene.key_order;
  const size_t m = p.queries;
  Sorted sorted{workers, {}};
  const Adjoint<double> same = {sorted(p, scene), sorted(a.offset, ours, 1), sorted(a.rates, ours, p.columns),
                                sorted(a.own, ours, 1), sorted(a.given, theirs, 1), sorted(a.carriers, theirs, p.features),
                                sorted.room(m * p.features), sorted.room(m),
                                a.weighted ? sorted.room(m * p.columns) : nullptr, sorted.room(2 * m)};
  double *memory = scratch<double, 1>(Cloud<double>::size(p));
  if (!memory) return false;
  const Cloud<double> cloud(same.problem, bounds, memory);
  const Cut<double> cut(p.queries);
  const bool done = workers.share(cut.items(), [&](int item) {
    return cut.is_large(item) ? pull_tile<double, QUERIES>(same, bounds, cloud, cut.first(item), &scene)
                              : pull_tile<double, 1>(same, bounds, cloud, cut.first(item), &scene);
  });
  sorted.back(same.carried, ours, p.features, a.carried), sorted.back(same.total, ours, 1, a.total);
  sorted.back(same.weighted, ours, p.columns, a.weighted), sorted.back(same.lengths, ours, 2, a.lengths);
  return done;
}

// The sum of all pairs, tile by tile.
template <class T>
bool sum_pairs(const Problem<T> &p, const Bounds<T> &bounds, const Sight<T> *sight, const Workers &workers) {
  T *memory = scratch<T, 1>(Cloud<T>::size(p));
  if (!memory) return false;
  const Cloud<T> cloud(p, bounds, memory);
  const Cut<T> cut(p.queries, tiles_at_once(p));
  return workers.share(cut.items(), [&](int item) {
    return cut.is_large(item) ? sum_tiles<T, QUERIES>(p, bounds, sight, cloud, cut.first(item), cut.tiles(item))
                              : sum_tiles<T, 1>(p, bounds, sight, cloud, cut.first(item), 1);
  });
}

// The sum in double precision of those queries that are `wanted`.
template <class T, class Wanted> bool sum_widened(const Problem<T> &p, const Workers &workers, Wanted wanted) {
  Widened<T> wide;
  Problem<double> same = widened(p, wide);
  same.mass = wide.room(p.queries), same.shift = wide.room(p.queries);
  same.mean = wide.room((size_t)p.queries * p.columns);
  if (!sum(same, workers)) return false;
  for (int i = 0; i < p.queries; i++) {
    if (!wanted(i)) continue;
    const bool some = same.mass[i] > 0;  // a mass that single precision cannot hold goes into the shift
    p.mass[i] = some ? T(1) : T(same.mass[i]), p.shift[i] = T(same.shift[i] + (some ? std::log(same.mass[i]) : 0.0));
    std::copy_n(same.mean + (size_t)i * p.columns, p.columns, p.mean + (size_t)i * p.columns);
  }
  return true;
}

// Queries under a band of positions, each in the precision that the scores of the sources it sees need. Those in double
// precision are cut into tiles as all of them would be: a tile of another width might round otherwise.
template <class T> bool sum_in_sight(const Problem<T> &p, const Workers &workers) {
  const Sight<T> sight(p);
  const auto wide = [&](int i) { return is_coarse(p, sight.spread[i]); };
  int narrow = 0, first = p.queries;
  for (int i = p.queries - 1; i >= 0; i--)
    if (wide(i)) first = i;
    else narrow++;
  if ((narrow > 0 || p.queries == 0) && !sum_pairs(p, Bounds<T>(sight.base), &sight, workers)) return false;
  if (narrow == p.queries) return true;
  const int begin = first / Cut<double>::LARGE * Cut<double>::LARGE;
  return sum_widened(p.queries_from(begin), workers, [&](int i) { return wide(begin + i); });
}

template <class T> bool sum_one(const Problem<T> &p, const Workers &workers) {
  if (p.banded() && p.tolerance < 0) return sum_in_sight(p, workers);
  const Bounds<T> bounds(p);
  if constexpr (sizeof(T) == sizeof(double))
    if (is_near(p, bounds)) return sum_by_boxes(p, bounds, workers);
  if (is_widened(p, bounds))
    return sum_widened(p, workers, [](int) { return true; });
  return sum_pairs<T>(p, bounds, nullptr, workers);
}

template <class T> bool pull_one(const Adjoint<T> &a, const Workers &workers) {
  const Problem<T> &p = a.problem;
  const Bounds<T> bounds(p);
  if constexpr (sizeof(T) == sizeof(double))
    if (is_near(p, bounds)) return pull_by_boxes(a, bounds, workers);
  if (is_widened(p, bounds)) {
    Widened<T> wide;
    const size_t m = p.queries, n = p.sources, features = m * p.features, columns = m * p.columns;
    const Adjoint<double> same = {widened(p, wide), wide(a.offset, m), wide(a.rates, m * p.columns), wide(a.own, m),
                                  wide(a.given, n), wide(a.carriers, n * p.features), wide.room(features), wide.room(m),
                                  a.weighted ? wide.room(columns) : nullptr, wide.room(2 * m)};
    if (!pull(same, workers)) return false;
    std::copy(same.carried, same.carried + features, a.carried);
    std::copy(same.total, same.total + m, a.total);
    std::copy(same.lengths, same.lengths + 2 * m, a.lengths);
    if (a.weighted) std::copy(same.weighted, same.weighted + columns, a.weighted);
    return true;
  }
  T *memory = scratch<T, 1>(Cloud<T>::size(p));
  if (!memory) return false;
  const Cloud<T> cloud(p, bounds, memory);
  const Cut<T> cut(p.queries);
  return workers.share(cut.items(), [&](int item) {
    return cut.is_large(item) ? pull_tile<T, QUERIES>(a, bounds, cloud, cut.first(item))
                              : pull_tile<T, 1>(a, bounds, cloud, cut.first(item));
  });
}

// Many problems of one size: whole problems are shared out where there are enough of them, else the tiles of each.
template <class Job, class One> bool do_all(const std::vector<Job> &jobs, const Workers &workers, double cycles, One one) {
  const int count = (int)jobs.size();
  const Workers mine = cycles * count < workers.worth_sharing ? workers.alone() : workers;
  if (count == 1 || count < mine.count) {
    for (const Job &job : jobs)
      if (!one(job, mine)) return false;
    return true;
  }
  const int together = std::max(1, count / (8 * mine.count));
  return mine.share((count + together - 1) / together, [&](int item) {
    for (int i = item * together; i < std::min(count, (item + 1) * together); i++)
      if (!one(jobs[i], mine.alone())) return false;
    return true;
  });
}

}  // namespace particleflow
