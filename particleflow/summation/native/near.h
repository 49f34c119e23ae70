// Near: which sources a tile of queries has to sum, so that what it leaves out is less than a stated part of every mass.
//
// An inner product is a Gaussian of a distance, <q, s> = |x|^2 + |y|^2 - |x - y|^2 for x = q/sqrt(2c), y = s sqrt(c/2): the
// first term is the same for all sources of a query, the second one tilts their weights. So a box around a tile and one
// around a leaf of sources bound all their scores, and with the weight of the leaf the mass it can add. Packets of leaves
// are summed from the largest bound down, in few rounds, until the bounds of all others are together less than `allowed`
// times the least mass of the tile: the error is what was asked for, whatever the points are.
#pragma once
#include <limits>
#include "boxes.h"
#include "moments.h"

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
  static constexpr int PACKED = 4;  // leaves a packet: bounds of its quarters save a tenth of the pairs
  const int inner, dimension, packet;
  const Profile profile;
  const double power, allowed, blur;

 public:
  const std::vector<int> key_order, query_order;
  const Numbers queries, query_offsets;
  const Boxes leaves, groups;

  // Compact kernels are summed exactly: only what is zero is left out.
  Scene(const Problem<double> &p, const Places &places, const Workers &workers)
      : inner(p.inner), dimension(p.features), packet(p.packet), profile(p.profile), power(p.power),
        allowed(p.profile >= BALL ? 0 : p.tolerance / 2 - (is_rough(p) ? ROUGHNESS : 0)), blur(places.blur),
        key_order(Order(places.keys, p.sources, dimension, packet / PACKED, workers).index),
        query_order(order_of_queries(p, places, key_order, workers)),
        queries(picked_rows(places.queries, query_order, workers)),
        query_offsets(picked_rows(places.query_offsets, query_order, workers)),
        leaves(Boxes::around(picked_rows(places.keys, key_order, workers),
                             picked_rows(places.key_offsets, key_order, workers), packet / PACKED, dimension, workers)),
        groups(leaves.grouped()) {}

  // Numbers a thread needs: bounds of groups and packets, their exponentials, those of the leaves of a group, and a box.
  size_t memory() const { return 2 * (size_t)(groups.padded + packets() + GROUPED + dimension); }

  // Call add(first, count, bound) for stretches of the sources, in the scene's order, that `count` queries from `first`
  // on have to sum; least() is the logarithm of the least mass so far, less the offset of its query.
  void visit(int first, int count, double *room, const std::function<void(int, int, double)> &add,
             const std::function<double()> &least) const;

 private:
  static constexpr int TILE = QUERIES * WIDTH<double>;
  static constexpr int TOGETHER = GROUPED / PACKED;  // packets a group
  static constexpr double LOWEST = -std::numeric_limits<double>::max();

  // Points that look at themselves need no second tree.
  static std::vector<int> order_of_queries(const Problem<double> &p, const Places &places, const std::vector<int> &keys,
                                           const Workers &workers) {
    bool same = p.queries == p.sources && p.packet == TILE;
    for (size_t i = 0; same && i < places.keys.size(); i++)
      same = std::fabs(places.keys[i] - places.queries[i]) <= places.blur;
    return same ? keys : Order(places.queries, p.queries, p.features, TILE, workers).index;
  }

  int packets() const { return leaves.padded / PACKED; }

  // The logarithms of what boxes may add to the mass of any query in a box; the highest of them.
  double bound(const Boxes &boxes, int first, int count, const double *low, const double *high, double *bounds) const;
  Vector<double> log_kernel(Vector<double> inner_square, Vector<double> square) const;
  static void add_exponentials(int count, double top, const double *bounds, double *masses);
  double open(int group, double top, const double *low, double *bounds, double *masses, double *room) const;
  double cut(double floor, double summed, double opened, double least, const double *room) const;
};

inline Vector<double> Scene::log_kernel(Vector<double> inner_square, Vector<double> square) const {
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
    Vector<double> squares[2] = {};
    for (int c = 0; c < dimension; c++) {
      const size_t at = (size_t)c * boxes.padded + box;
      const Vector<double> above = loaded(boxes.low.data() + at) - (high[c] + blur);
      const Vector<double> below = (low[c] - blur) - loaded(boxes.high.data() + at);
      Vector<double> gap = above > below ? above : below;
      gap = gap > Vector<double>{} ? gap : Vector<double>{};
      squares[c < inner ? 0 : 1] += gap * gap;
    }
    const Vector<double> found = log_kernel(squares[0], squares[1]) + loaded(boxes.weight.data() + box);
    std::memcpy(bounds + box - first, &found, sizeof found);
    most = found > most ? found : most;
  }
  return highest<double>(most);
}

inline void Scene::add_exponentials(int count, double top, const double *bounds, double *masses) {
  for (int box = 0; box < count; box += WIDTH<double>) {
    Vector<double> x = loaded(bounds + box) - top;
    exp_lanes<double, 1, true>(&x);
    std::memcpy(masses + box, &x, sizeof x);
  }
}

// The bounds of the packets of a group, each the highest of its leaves, and what all leaves of each may add; the highest.
inline double Scene::open(int group, double top, const double *box, double *bounds, double *masses, double *room) const {
  double *leaf_masses = room + GROUPED;
  const double most = bound(leaves, group * GROUPED, GROUPED, box, box + dimension, room);
  add_exponentials(GROUPED, top, room, leaf_masses);
  for (int i = 0; i < TOGETHER; i++) {
    const double *each = room + i * PACKED, *mass = leaf_masses + i * PACKED;
    bounds[group * TOGETHER + i] = std::max(std::max(each[0], each[1]), std::max(each[2], each[3]));
    masses[group * TOGETHER + i] = (mass[0] + mass[1]) + (mass[2] + mass[3]);
  }
  return most;
}

// The lowest bound of packets to be summed, so that all others together are less than `allowed` times the least mass, in
// units of the exponentials in `room`; infinity where even those below `floor` are more.
inline double Scene::cut(double floor, double summed, double opened, double least, const double *room) const {
  constexpr int BINS = 256;
  const double *group_masses = room + groups.padded, *bounds = group_masses + groups.padded;
  const double *masses = bounds + packets(), width = (summed - floor) / BINS;
  double rest = 0, bins[BINS + 1] = {};
  for (int group = 0; group < groups.count; group++) {
    if (room[group] < opened) {
      rest += group_masses[group];
      continue;
    }
    for (int i = group * TOGETHER; i < (group + 1) * TOGETHER; i++) {
      if (bounds[i] >= summed) continue;
      if (bounds[i] < floor) rest += masses[i];
      else bins[(int)((bounds[i] - floor) / width)] += masses[i];
    }
  }
  const double most = allowed * least;
  if (!(least > 1e-250 && rest <= most)) return INFINITY;
  int bin = 0;
  while (bin < BINS && rest + bins[bin] <= most) rest += bins[bin++];
  return floor + bin * width - 1e-9;  // what rounding has put into the bin below is summed, too
}

inline void Scene::visit(int first, int count, double *room, const std::function<void(int, int, double)> &add,
                         const std::function<double()> &least) const {
  double *masses = room + groups.padded, *bounds = masses + groups.padded;
  double *packet_masses = bounds + packets(), *leaf_room = packet_masses + packets();
  double *low = leaf_room + 2 * GROUPED, *high = low + dimension;
  std::fill(low, high, INFINITY), std::fill(high, high + dimension, -INFINITY);
  for (int i = first; i < first + count; i++)
    for (int c = 0; c < dimension; c++) {
      const double x = queries[(size_t)i * dimension + c];
      low[c] = std::min(low[c], x), high[c] = std::max(high[c], x);
    }
  const double top = bound(groups, 0, groups.padded, low, high, room);
  if (!(top > -INFINITY)) return;
  add_exponentials(groups.padded, top, room, masses);
  double opened = INFINITY, summed = INFINITY, best = -INFINITY;
  // Packets of open groups with bounds from `from` to `summed`, neighbours together.
  const auto sum_from = [&](double from) {
    const int most = std::max(1, BLOCK / packet);
    int begin = 0, length = 0;
    double highest_bound = -INFINITY;
    const auto flush = [&] {
      const int source = begin * packet, end = std::min((begin + length) * packet, (int)key_order.size());
      if (length) add(source, end - source, highest_bound);
      length = 0, highest_bound = -INFINITY;
    };
    for (int group = 0; group < groups.count; group++) {
      if (room[group] < opened) continue;
      for (int i = group * TOGETHER; i < (group + 1) * TOGETHER; i++) {
        if (!(bounds[i] >= from && bounds[i] < summed)) continue;
        if (length && (i != begin + length || length == most)) flush();
        if (!length) begin = i;
        length++, highest_bound = std::max(highest_bound, bounds[i]);
      }
    }
    flush();
    summed = from;
  };
  for (double depth = 10 - std::log(std::min(allowed, 1.0));; depth *= 4) {
    const double floor = allowed > 0 && depth < 3000 ? top - depth : LOWEST;
    for (int group = 0; group < groups.count; group++)
      if (room[group] >= floor && room[group] < opened)
        best = std::max(best, open(group, top, low, bounds, packet_masses, leaf_room));
    opened = floor;
    if (floor > LOWEST) {
      if (std::isinf(summed)) sum_from(std::max(floor, best - 4));
      const double from = cut(floor, summed, opened, std::exp(least() - top), room);
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
  Sums<double, V> sums(p, bounds, first, memory, memory + each);
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
