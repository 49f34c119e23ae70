// Work: whole sums, shared out over threads that somebody else owns.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <sched.h>
#include <vector>
#include "adjoint.h"

namespace particleflow {

// How to hand a task to another thread, and how many there are, this one included.
struct Workers {
  int count;
  std::function<void(std::function<void()>)> schedule;

  // Do items 0 ... items - 1, each once. The caller works, too, and waits only for items that somebody has begun: it
  // cannot wait for ever, whatever the other threads are busy with. False if an item fails.
  bool share(int items, const std::function<bool(int)> &work) const {
    if (std::min(count, items) == 1) {
      FlushedDenormals flushed;
      bool done = true;
      for (int item = 0; item < items; item++) done &= work(item);
      return done;
    }
    struct Shared {
      std::atomic<int> next{0}, done{0};
      std::atomic<bool> failed{false};
    };
    auto shared = std::make_shared<Shared>();
    // A task that comes too late finds no item left and touches nothing but `shared`.
    auto some = [shared, items, &work]() {
      FlushedDenormals flushed;
      for (int item; (item = shared->next.fetch_add(1, std::memory_order_relaxed)) < items;) {
        if (!work(item)) shared->failed.store(true, std::memory_order_relaxed);
        shared->done.fetch_add(1, std::memory_order_release);
      }
    };
    for (int thread = 1; thread < std::min(count, items); thread++) schedule(some);
    some();
    for (int spin = 0; shared->done.load(std::memory_order_acquire) < items; spin++)
      if (spin > 2000) sched_yield();
    return !shared->failed.load();
  }

  Workers alone() const { return {1, {}}; }
};

// Below so many cycles, roughly, waking another thread costs more than it saves.
constexpr double WORTH_SHARING = 120e3;

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
          p.power, p.least, p.most, p.slope, p.scale, nullptr, nullptr, nullptr};
}

template <class T> bool sum_one(const Problem<T> &p, const Workers &workers) {
  const Bounds<T> bounds(p);
  if (sizeof(T) < sizeof(double) && !bounds.fit()) {
    Widened<T> wide;
    Problem<double> same = widened(p, wide);
    same.mass = wide.room(p.queries), same.shift = wide.room(p.queries);
    same.mean = wide.room((size_t)p.queries * p.columns);
    if (!sum(same, workers)) return false;
    for (int i = 0; i < p.queries; i++) {  // a mass that single precision cannot hold goes into the shift
      const bool some = same.mass[i] > 0;
      p.mass[i] = some ? T(1) : T(same.mass[i]), p.shift[i] = T(same.shift[i] + (some ? std::log(same.mass[i]) : 0.0));
    }
    std::copy(same.mean, same.mean + (size_t)p.queries * p.columns, p.mean);
    return true;
  }
  T *memory = scratch<T, 1>(Cloud<T>::size(p));
  if (!memory) return false;
  const Cloud<T> cloud(p, bounds, memory);
  const Cut<T> cut(p.queries, tiles_at_once(p));
  return workers.share(cut.items(), [&](int item) {
    return cut.is_large(item) ? sum_tiles<T, QUERIES>(p, bounds, cloud, cut.first(item), cut.tiles(item))
                              : sum_tiles<T, 1>(p, bounds, cloud, cut.first(item), 1);
  });
}

template <class T> bool pull_one(const Adjoint<T> &a, const Workers &workers) {
  const Problem<T> &p = a.problem;
  const Bounds<T> bounds(p);
  if (sizeof(T) < sizeof(double) && !bounds.fit()) {
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
  const Workers mine = cycles * count < WORTH_SHARING ? workers.alone() : workers;
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
