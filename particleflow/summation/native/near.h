// Near: which sources a tile of queries has to sum, so that what it leaves out is less than a stated part of every mass.
//
// An inner product is a Gaussian of a distance, <q, s> = |x|^2 + |y|^2 - |x - y|^2 for x = q/sqrt(2c), y = s sqrt(c/2): the
// first term is the same for all sources of a query, the second one tilts their weights. So a box around a tile and one
// around a leaf of sources bound all their scores, and with the weight of the leaf the mass it can add. Leaves are summed
// from the largest bound down, in few rounds, until the bounds of all others are together less than `allowed` times the
// least mass of the tile: the error is at most the tolerance, whatever the points are.
#pragma once
#include <cstdint>
#include <limits>
#include "boxes.h"
#include "sight.h"

namespace particleflow {

// The places of a problem's queries and sources, whose distances bound its scores: score_ij <= query_offset_i +
// key_offset_j - |x_i - y_j|^2 (inner columns) + profile(|x_i - y_j|^2) (the others).
struct Places {
  Numbers queries, keys, query_offsets, key_offsets;
  double blur;  // by how much rounding may have moved a coordinate

  Places(const Problem<double> &p, const Bounds<double> &bounds, const Workers &workers)
      : queries((size_t)p.queries * p.features), keys((size_t)p.sources * p.features), query_offsets(p.queries),
        key_offsets(p.sources) {
    const double ratio = bounds.query_reach / bounds.reach, c = ratio > 0 && std::isfinite(ratio) ? ratio : 1;
    const double root = std::sqrt(c / 2), scale = p.profile == BALL ? 1 : std::fabs(p.scale), eps = 2.3e-16;
    Numbers centre(p.inner);  // amid the sources: their tilts are then small numbers
    for (int j = 0; j < p.sources; j++)
      for (int k = 0; k < p.inner; k++) centre[k] += p.key_features[(size_t)j * p.features + k] / p.sources;
    const double furthest = root * (bounds.query_reach / c + bounds.reach) + scale * bounds.distance;
    const auto place = [&](const double *row, double less, double *to) {
      double square = 0;
      for (int k = 0; k < p.inner; k++) to[k] = (row[k] / less - centre[k]) * root, square += to[k] * to[k];
      for (int k = p.inner; k < p.features; k++) to[k] = row[k] * scale;
      return square;
    };
    const auto along_centre = [&](const double *row) {
      double product = 0;
      for (int k = 0; k < p.inner; k++) product += row[k] * centre[k];
      return product;
    };
    workers.rows(p.queries, [&](int first, int end) {
      for (int i = first; i < end; i++) {
        const double *row = p.query_features + (size_t)i * p.features;
        query_offsets[i] = place(row, c, queries.data() + (size_t)i * p.features) + along_centre(row);
      }
    });
    const double own = along_centre(centre.data());
    const double slack = bounds.highest + 16 * eps * bounds.spread;  // what rounding may take from a bound is added to it
    workers.rows(p.sources, [&](int first, int end) {
      for (int j = first; j < end; j++) {
        const double *row = p.key_features + (size_t)j * p.features;
        const double square = place(row, 1, keys.data() + (size_t)j * p.features);
        key_offsets[j] = p.log_weights[j] - bounds.base + square + c * (along_centre(row) - own) + slack;
      }
    });
    blur = 8 * eps * furthest;
  }
};

// The order in which queries and sources of a problem are summed, and the boxes of its sources.
class Scene {
  static constexpr int TILE = QUERIES * WIDTH<double>;
  static constexpr double LOWEST = -std::numeric_limits<double>::max();
  const int inner, dimension, leaf;
  const Profile profile;
  const double power, allowed, blur;

 public:
  const std::vector<int> key_order, query_order;
  const Numbers queries, query_offsets;
  const Boxes leaves, groups;

  // Compact kernels are summed exactly: only what is zero is left out.
  Scene(const Problem<double> &p, const Places &places, const Workers &workers)
      : inner(p.inner), dimension(p.features), leaf(leaf_size(p.packet)), profile(p.profile), power(p.power),
        allowed(p.profile >= BALL ? 0 : p.tolerance / 2 - (is_rough(p) ? ROUGHNESS : 0)), blur(places.blur),
        key_order(Order(places.keys, p.sources, dimension, leaf, workers).index),
        query_order(order_of_queries(p, places, key_order, workers)),
        queries(picked_rows(places.queries, query_order, workers)),
        query_offsets(picked_rows(places.query_offsets, query_order, workers)),
        leaves(Boxes::around(picked_rows(places.keys, key_order, workers),
                             picked_rows(places.key_offsets, key_order, workers), leaf, dimension, workers)),
        groups(leaves.grouped()) {}

  // Numbers a thread needs: bounds of groups and leaves, exponentials of the former, and a box.
  size_t memory() const { return 2 * (size_t)(groups.padded + dimension) + leaves.padded; }

  // Call add(first, count, bound) for stretches of the sources, in the scene's order, that `count` queries from `first`
  // on have to sum; least() is the logarithm of the least mass so far, less the offset of its query.
  void visit(int first, int count, double *room, const std::function<void(int, int, double)> &add,
             const std::function<double()> &least) const;

 private:
  // At most a packet, and such that a tile of queries is a branch of the tree of sources, too.
  static int leaf_size(int packet) {
    int size = TILE;
    while (size > packet && size % 2 == 0) size /= 2;
    return size;
  }

  // Where the queries are the sources there is no second tree, which would take a twelfth of the time.
  static std::vector<int> order_of_queries(const Problem<double> &p, const Places &places, const std::vector<int> &keys,
                                           const Workers &workers) {
    bool same = p.queries == p.sources;
    for (size_t i = 0; same && i < places.keys.size(); i++)
      same = std::fabs(places.keys[i] - places.queries[i]) <= places.blur;
    return same ? keys : Order(places.queries, p.queries, p.features, TILE, workers).index;
  }

  // The logarithms of what boxes may add to the mass of any query in a box; the highest of them.
  double bound(const Boxes &boxes, int first, int count, const double *low, const double *high, double *bounds) const;
  Vector<double> log_kernel(Vector<double> inner_square, Vector<double> square) const;
  static double add_exponentials(int count, double top, double floor, const double *bounds);
  static uint64_t among(double from, double to, const double *bounds);
  double cut(double floor, double summed, double top, double least, const double *group_bounds, const double *bounds) const;
};

INLINE Vector<double> Scene::log_kernel(Vector<double> inner_square, Vector<double> square) const {
  switch (profile) {
    case GAUSSIAN: return -square - inner_square;
    case EXPONENTIAL: return log_profile<double, EXPONENTIAL>(square, 1, power) - inner_square;
    case POWER: return log_profile<double, POWER>(square, 1, power) - inner_square;
    case BALL: return log_profile<double, BALL>(square, 1, power) - inner_square;
    case PARABOLA: return log_profile<double, PARABOLA>(square, 1, power) - inner_square;
    case TRIANGLE: return log_profile<double, TRIANGLE>(square, 1, power) - inner_square;
    default: return -inner_square;
  }
}

inline double Scene::bound(const Boxes &boxes, int first, int count, const double *low, const double *high,
                           double *bounds) const {
  constexpr int LANES = WIDTH<double>;
  Vector<double> most = all<double>(-INFINITY);
  for (int box = first; box < first + count; box += LANES) {
    const auto square = [&](int c, int end) {  // of the distance in some coordinates
      Vector<double> sum{};
      for (; c < end; c++) {
        const size_t at = (size_t)c * boxes.padded + box;
        const Vector<double> above = loaded(boxes.low.data() + at) - (high[c] + blur);
        const Vector<double> below = (low[c] - blur) - loaded(boxes.high.data() + at);
        Vector<double> gap = above > below ? above : below;
        gap = gap > Vector<double>{} ? gap : Vector<double>{};
        sum += gap * gap;
      }
      return sum;
    };
    const Vector<double> found = log_kernel(square(0, inner), square(inner, dimension)) + loaded(boxes.weight.data() + box);
    std::memcpy(bounds + box - first, &found, sizeof found);
    most = found > most ? found : most;
  }
  return highest<double>(most);
}

// The sum of e^(bound - top) over the bounds below `floor`.
inline double Scene::add_exponentials(int count, double top, double floor, const double *bounds) {
  Vector<double> sum{};
  for (int box = 0; box < count; box += WIDTH<double>) {
    const Vector<double> bound = loaded(bounds + box);
    Vector<double> x = bound - top;
    exp_lanes<double, 1, true>(&x);
    sum += bound < all<double>(floor) ? x : Vector<double>{};
  }
  double total = 0;
  UNROLL for (int i = 0; i < WIDTH<double>; i++) total += sum[i];
  return total;
}

// Which of a group's bounds are at least `from` and less than `to`, one bit each.
inline uint64_t Scene::among(double from, double to, const double *bounds) {
  static_assert(GROUPED == 64, "a group is a word");
  Bits<double> bit, found{};
  UNROLL for (int i = 0; i < WIDTH<double>; i++) bit[i] = (uint64_t)1 << i;
  for (int box = 0; box < GROUPED; box += WIDTH<double>, bit <<= WIDTH<double>) {
    const Vector<double> bound = loaded(bounds + box);
    found |= (Bits<double>)((bound >= all<double>(from)) & (bound < all<double>(to))) & bit;
  }
  uint64_t word = 0;
  UNROLL for (int i = 0; i < WIDTH<double>; i++) word |= found[i];
  return word;
}

// The lowest bound of leaves to be summed, so that all others together are less than `allowed` times the least mass, in
// units of e^top; infinity where even what is below `floor` is more. Leaves are counted in bins of their bounds, each as
// if it had the highest of its bin: this needs no exponential a leaf, and adds some hundredths to what they can add.
inline double Scene::cut(double floor, double summed, double top, double least, const double *group_bounds,
                         const double *bounds) const {
  constexpr int LANES = WIDTH<double>, BINS = 254;
  // Bounds so far below the floor, or with an exponential that underflows, are in the lowest bin.
  constexpr double DEEPER = 8, DEEPEST = 690;
  const double begin = std::max(floor - DEEPER, top - DEEPEST), width = (summed - begin) / BINS, inverse = 1 / width;
  if (!(least > 1e-250 && width > 0)) return INFINITY;
  const Vector<double> none{}, last = all<double>(BINS + 1);
  uint32_t bins[LANES][BINS + 2] = {};  // a table a lane: neighbours in one bin do not wait for each other
  for (int group = 0; group < groups.count; group++) {
    if (group_bounds[group] < floor) continue;
    for (int i = group * GROUPED; i < (group + 1) * GROUPED; i += LANES) {
      const Vector<double> bound = loaded(bounds + i);
      Vector<double> bin = (bound - begin) * inverse;
      bin = bin > none ? bin : none;
      const Bits<double> places = (Bits<double>)((bound < all<double>(summed) ? bin : last) + Lane<double>::round);
      UNROLL for (int lane = 0; lane < LANES; lane++) bins[lane][(uint32_t)places[lane]]++;  // the nearest whole number
    }
  }
  const double most = allowed * least;
  double rest = add_exponentials(groups.padded, top, floor, group_bounds);
  double each = std::exp(begin + width / 2 - top) * (1 + 1e-9), ratio = std::exp(width);
  int bin = 0;
  for (; bin <= BINS; bin++, each *= ratio) {
    double here = 0;
    for (int lane = 0; lane < LANES; lane++) here += bins[lane][bin];
    if (!(rest + here * each <= most)) break;
    rest += here * each;
  }
  const double from = begin + (bin - 0.5) * width - 1e-9;  // what rounding has put into the bin below is summed, too
  return from >= floor ? std::min(from, summed) : INFINITY;
}

inline void Scene::visit(int first, int count, double *room, const std::function<void(int, int, double)> &add,
                         const std::function<double()> &least) const {
  double *bounds = room + groups.padded, *low = bounds + leaves.padded, *high = low + dimension;
  std::fill(low, high, INFINITY), std::fill(high, high + dimension, -INFINITY);
  for (int i = first; i < first + count; i++)
    for (int c = 0; c < dimension; c++) {
      const double x = queries[(size_t)i * dimension + c];
      low[c] = std::min(low[c], x), high[c] = std::max(high[c], x);
    }
  const double top = bound(groups, 0, groups.padded, low, high, room);
  if (!(top > -INFINITY)) return;
  double opened = INFINITY, summed = INFINITY, best = -INFINITY;
  // Leaves of open groups with bounds from `from` to `summed`, neighbours together.
  const auto sum_from = [&](double from) {
    const int most = std::max(1, BLOCK / leaf);
    for (int group = 0; group < groups.count; group++) {
      if (room[group] < opened) continue;
      const double *own = bounds + group * GROUPED;
      for (uint64_t left = among(from, summed, own); left;) {
        const int begin = __builtin_ctzll(left), whole = ~(left >> begin) ? __builtin_ctzll(~(left >> begin)) : GROUPED;
        const int length = std::min(whole, most), source = (group * GROUPED + begin) * leaf;
        const int end = std::min(source + length * leaf, (int)key_order.size());
        add(source, end - source, *std::max_element(own + begin, own + begin + length));
        left &= begin + length < GROUPED ? ~(uint64_t)0 << (begin + length) : 0;
      }
    }
    summed = from;
  };
  for (double depth = 10 - std::log(std::min(allowed, 1.0));; depth *= 4) {
    const double floor = allowed > 0 && depth < 3000 ? top - depth : LOWEST;
    for (int group = 0; group < groups.count; group++)
      if (room[group] >= floor && room[group] < opened)
        best = std::max(best, bound(leaves, group * GROUPED, GROUPED, low, high, bounds + group * GROUPED));
    opened = floor;
    if (floor > LOWEST) {
      if (std::isinf(summed)) sum_from(std::max(floor, best - 4));
      const double from = cut(floor, summed, top, std::exp(least() - top), room, bounds);
      if (from <= summed) return sum_from(from);
    }
    sum_from(floor);
    if (floor == LOWEST) return;
  }
}

// The least mass of the queries of a tile, as a logarithm, less their offsets.
template <int V> double least_mass(const Vector<double> *mass, const Vector<double> *shift, const Vector<double> *offsets) {
  Vector<double> most = all<double>(-INFINITY);
  UNROLL for (int v = 0; v < V; v++) {
    const Vector<double> less = offsets[v] - shift[v] - log_lanes<double>(mass[v]);
    most = less > most ? less : most;
  }
  return -highest<double>(most);
}

// The moments of a tile of queries of a problem in the scene's order; false where there is no memory.
template <int V>
NOINLINE bool sum_near(const Problem<double> &p, const Bounds<double> &bounds, const Cloud<double> &cloud,
                       const Scene &scene, int first) {
  const size_t each = Sums<double, V>::size(p), scores = Tile<double, V>::ROOM_FOR_SCORES;
  double *memory = scratch<double, 0>(each + scores + scene.memory());
  if (!memory) return false;
  Sums<double, V> sums(p, bounds, nullptr, first, memory, memory + each);
  const int rows = std::min(Tile<double, V>::ROWS, p.queries - first);
  Vector<double> offsets[V];
  spread_rows<double, V>(scene.query_offsets.data(), first, rows, 1, offsets);
  double safe = bounds.fit() ? INFINITY : -INFINITY;  // up to this bound, scores cannot overflow with the shift there is
  const auto add = [&](int begin, int count, double bound) {
    sums.add(p, bounds, cloud, begin, count, false, bound > safe);
    if (bound <= safe) return;
    Vector<double> most = all<double>(-INFINITY);
    UNROLL for (int v = 0; v < V; v++) {
      const Vector<double> gap = offsets[v] - sums.shift[v];
      most = gap > most ? gap : most;
    }
    safe = ROOM<double> - highest<double>(most);
  };
  scene.visit(first, rows, memory + each + scores, add, [&] {
    Vector<double> mass[V];
    UNROLL for (int v = 0; v < V; v++) mass[v] = sums.mass[2 * v] + sums.mass[2 * v + 1];
    return least_mass<V>(mass, sums.shift, offsets);
  });
  write<double, V>(p, bounds.base, first, sums.shift, sums.mass, sums.totals);
  return true;
}

}  // namespace particleflow
