// Moments: log-mass and mean of a kernel, seen from every query, at any number of points and any size of logits.
//
//     score_ij = log K(x_i, y_j) + log w_j = <q_i, s_j> + profile(|u_i - v_j|^2) + band(t_i - p_j) + bias_j
//     mass_i = sum_j e^(score_ij - shift_i),    mean_i = sum_j e^(score_ij - shift_i) z_j / mass_i
//
// Sums of blocks are joined without rounding (TwoSum), so that errors do not grow with the number of sources. A tile of
// queries is summed in one order on any thread, so that results do not depend on the number of threads.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <new>
#include "rows.h"
#include "tiles.h"

namespace particleflow {

// How far scores may spread below a bound of theirs: beyond it exponentials would underflow.
template <class T> constexpr T ROOM = sizeof(T) == 4 ? T(55) : T(620);

// Whether scores in single precision that spread so far are too coarse for a mean that is right to 3e-7; NaN is.
template <class T> bool is_coarse(const Problem<T> &p, T spread) {
  return sizeof(T) < sizeof(double) && p.widen && !(spread <= T(12));
}

// Whether a tolerance leaves room for rough exponentials: a fifteenth of it, for the mean, which they move by twice as much.
// They save a sixth of the sum of near pairs. Kernels that end at a radius are summed exactly.
template <class T> bool is_rough(const Problem<T> &p) { return p.tolerance >= 30 * ROUGHNESS && p.profile < BALL; }

// Memory of a thread, kept from call to call and grown when needed; null where there is none left.
template <class T, int PURPOSE> T *scratch(size_t count) {
  struct Memory {
    char *data = nullptr;
    size_t size = 0;
    ~Memory() { std::free(data); }
  };
  thread_local Memory memory;
  const size_t bytes = (count * sizeof(T) + 4095) / 4096 * 4096;
  if (bytes > memory.size) {
    std::free(memory.data);
    memory.data = (char *)std::aligned_alloc(4096, bytes);
    memory.size = memory.data ? bytes : 0;
  }
  return (T *)memory.data;
}

// Bounds of the scores of every query, from those sources alone that it may see (sight.h).
template <class T> struct Sight;

// Bounds of the scores, from the lengths of features (Cauchy and Schwarz): score_ij <= reach |q_i| + highest. The largest
// log-weight, `base`, is no part of them: scores of equal weights are then small, and rounded little.
template <class T> struct Bounds {
  T base, reach{}, query_reach{}, distance{}, highest{}, spread{};
  bool vanishing;  // some scores may be -infinity

  explicit Bounds(T base) : base(base), vanishing(true) {}  // where every query has bounds of its own

  explicit Bounds(const Problem<T> &p) {
    const Range<T> weights(p.log_weights, p.sources);
    auto length = [&](const T *rows, int count, bool inner) {
      return std::sqrt(inner ? largest_square(rows, count, p.features, p.inner)
                             : largest_square(rows + p.inner, count, p.features, p.coordinates()));
    };
    const T *bounding = p.bounding ? p.bounding : p.query_features;
    const int bounding_rows = p.bounding ? p.bounding_rows : p.queries;
    reach = length(p.key_features, p.sources, true);
    query_reach = length(bounding, bounding_rows, true);
    base = std::isinf(weights.high) ? T(0) : weights.high, highest = 0;
    spread = 2 * reach * query_reach + (weights.high - weights.low);
    distance = 0;  // so far are coordinates from each other, at most
    if (p.coordinates() > 0) {
      distance = length(p.key_features, p.sources, false) + length(bounding, bounding_rows, false);
      spread += drop(p, distance * p.scale);
    }
    vanishing = weights.infinite || p.banded() || p.profile >= BALL;
    if (p.banded()) {
      const Range<T> times(p.query_positions, p.queries), positions(p.key_positions, p.sources);
      const T lag = std::max(times.high - positions.low, positions.high - times.low);
      const T most = std::max(std::fabs(p.least), std::fabs(p.most));
      if (p.slope != 0) spread += std::fabs(p.slope) * std::min(lag, most);
      if (p.slope < 0) highest += std::fabs(p.slope) * std::min(lag, most);
    }
  }

  // By how much the logarithm of a profile may fall over a distance.
  static T drop(const Problem<T> &p, T distance) {
    switch (p.profile) {
      case GAUSSIAN: return distance * distance;
      case EXPONENTIAL: return distance;
      case POWER: return p.power * std::log1p(distance * distance);
      case PARABOLA:
      case TRIANGLE: return Lane<T>::mantissa;  // 1 - r is 0, or at least 2^-mantissa
      default: return distance - distance;          // 0, or NaN
    }
  }

  bool fit() const { return spread <= ROOM<T>; }  // NaN does not
};

// What all tiles read of the sources of a problem besides their features, made once.
template <class T> struct Cloud {
  T *bias, *earliest, *latest;

  static size_t size(const Problem<T> &p) { return (size_t)p.sources + 2 * p.blocks(); }

  Cloud(const Problem<T> &p, const Bounds<T> &bounds, T *memory) {
    bias = memory, earliest = bias + p.sources, latest = earliest + p.blocks();
    for (int j = 0; j < p.sources; j++) bias[j] = p.log_weights[j] - bounds.base;
    for (int block = 0; p.banded() && block < p.blocks(); block++) {
      const T *first = p.key_positions + block * BLOCK;
      const Range<T> range(first, std::min(BLOCK, p.sources - block * BLOCK));
      earliest[block] = range.low, latest[block] = range.high;
    }
  }
};

// What a tile of V vectors of queries works with.
template <class T, int V> struct Tile {
  static constexpr int ROWS = V * WIDTH<T>;
  Vector<T> *features, *scores, *squares, times[V];
  T earliest, latest;

  static size_t size(int features) { return (size_t)ROWS * features; }
  static constexpr size_t ROOM_FOR_SCORES = (size_t)ROWS * 2 * BLOCK;  // several tiles may share it, one after the other

  Tile(const Problem<T> &p, int first, T *memory, T *room, bool keep_squares) {
    features = (Vector<T> *)memory, scores = (Vector<T> *)room;
    // Scores that are only a profile may take the place of their squares; with inner products beside them they cannot.
    squares = keep_squares || p.inner > 0 ? scores + BLOCK * V : scores;
    const int count = std::min(ROWS, p.queries - first);
    spread_rows<T, V>(p.query_features, first, count, p.features, features);
    if (!p.banded()) return;
    const Range<T> range(p.query_positions + first, count);
    earliest = range.low, latest = range.high;
    spread_rows<T, V>(p.query_positions, first, count, 1, times);
  }

  // Whether the tile sees a block at all; NaN sees everything.
  bool sees(const Problem<T> &p, const Cloud<T> &cloud, int block) const {
    return !p.banded() || !(latest - cloud.earliest[block] <= p.least || earliest - cloud.latest[block] >= p.most);
  }

  // The scores of `count` sources; `alike`: there is a band, but they all are inside of it.
  void score(const Problem<T> &p, const Cloud<T> &cloud, int first, int count, bool alike) {
    const T *bias = cloud.bias + first, *keys = p.key_features + (size_t)first * p.features;
    if (p.inner > 0 || p.profile == NO_PROFILE)
      products<T, V, false>(count, p.features, p.inner, features, keys, bias, scores);
    if (p.profile != NO_PROFILE) {
      const Vector<T> *places = features + (size_t)p.inner * V;
      products<T, V, true>(count, p.features, p.coordinates(), places, keys + p.inner, bias, squares);
      add_profile<T, V>(p.profile, count, p.inner == 0, p.scale * p.scale, p.power, bias, squares, scores);
    }
    if (p.banded() && !alike)
      add_band<T, V>(count, p.least, p.most, p.slope, times, p.key_positions + first, scores);
  }

  // Whether a block is seen by every query of the tile, and all of it alike.
  bool inside(const Problem<T> &p, const Cloud<T> &cloud, int block) const {
    return p.banded() && p.slope == 0 && earliest - cloud.latest[block] > p.least && latest - cloud.earliest[block] < p.most;
  }
};

// An upper bound of every query's scores: reach |q| + highest, with |q| <= (|q|^2/r + r)/2 for any r, which has no root.
template <class T, int V> void bound_scores(const Problem<T> &p, const Bounds<T> &bounds, Tile<T, V> &tile, Vector<T> *top) {
  const T r = bounds.query_reach > 0 ? bounds.query_reach : T(1);
  UNROLL for (int v = 0; v < V; v++) {
    Vector<T> square{};
    for (int c = 0; c < p.inner; c++) square += tile.features[c * V + v] * tile.features[c * V + v];
    top[v] = (square * (T(0.5) / r) + T(0.5) * r) * bounds.reach + bounds.highest;
  }
}

// Raise the shift of every query that is not bounded to its largest score in this block, and bring the sums so far to it.
template <class T, int V>
void raise_shift(int count, int columns, const Vector<T> *scores, const Integers<T> *bounded, Vector<T> *shift,
                 Vector<T> *mass, Vector<T> *totals) {
  Vector<T> top[V], scale[V];
  UNROLL for (int v = 0; v < V; v++) top[v] = shift[v];
  raise<T, V>(count, scores, top);
  bool raised = false;
  UNROLL for (int v = 0; v < V; v++) {
    top[v] = bounded[v] ? shift[v] : top[v];
    raised |= any<T>(top[v] > shift[v]);
  }
  if (!raised) return;
  UNROLL for (int v = 0; v < V; v++) {
    scale[v] = shift[v] - top[v];
    exp_lanes<T, 1, true>(scale + v);
    shift[v] = top[v];
    mass[2 * v] *= scale[v], mass[2 * v + 1] *= scale[v];
  }
  for (int c = 0; c < columns; c++)
    UNROLL for (int v = 0; v < V; v++)
      totals[2 * (c * V + v)] *= scale[v], totals[2 * (c * V + v) + 1] *= scale[v];
}

// mass, shift (with the base) and mean = total/mass; without mass the mean is 0. NaN counts as a mass, so that it shows.
template <class T, int V>
void write(const Problem<T> &p, T base, int first, const Vector<T> *shift, const Vector<T> *mass, const Vector<T> *totals) {
  Vector<T> sum[V], inverse[V], lifted[V];
  UNROLL for (int v = 0; v < V; v++) {
    sum[v] = mass[2 * v] + mass[2 * v + 1], lifted[v] = shift[v] + base;
    inverse[v] = T(1) / (sum[v] == Vector<T>{} ? all<T>(1) : sum[v]);
  }
  const int count = std::min(V * WIDTH<T>, p.queries - first);
  std::memcpy(p.mass + first, sum, count * sizeof(T));
  std::memcpy(p.shift + first, lifted, count * sizeof(T));
  gather_rows<T, V>(totals, inverse, first, count, p.columns, p.mean);
}

// A tile of queries and its sums so far.
template <class T, int V> struct Sums {
  Tile<T, V> tile;
  Vector<T> *totals, shift[V], mass[2 * V];
  Integers<T> bounded[V];  // queries whose shift is a bound of all their scores, and stays
  bool may_rise = false;

  static size_t size(const Problem<T> &p) {
    return Tile<T, V>::size(p.features) + (size_t)Tile<T, V>::ROWS * 2 * p.columns;
  }

  Sums(const Problem<T> &p, const Bounds<T> &bounds, const Sight<T> *sight, int first, T *memory, T *room)
      : tile(p, first, memory, room, false), totals((Vector<T> *)(memory + Tile<T, V>::size(p.features))) {
    std::fill(totals, totals + 2 * p.columns * V, Vector<T>{});
    std::fill(mass, mass + 2 * V, Vector<T>{});
    if (sight) sight->template bound<V>(first, std::min(Tile<T, V>::ROWS, p.queries - first), bounded, shift);
    else if (bounds.fit()) bound_scores<T, V>(p, bounds, tile, shift);
    UNROLL for (int v = 0; v < V; v++) {
      if (!sight) bounded[v] = Integers<T>{} - (bounds.fit() ? 1 : 0);
      shift[v] = bounded[v] ? shift[v] : all<T>(Lane<T>::nothing);
      may_rise |= any<T>(bounded[v] == 0);
    }
  }

  void add_block(const Problem<T> &p, const Bounds<T> &bounds, const Cloud<T> &cloud, int block) {
    if (!tile.sees(p, cloud, block)) return;
    const int begin = block * BLOCK, count = std::min(BLOCK, p.sources - begin);
    add(p, bounds, cloud, begin, count, tile.inside(p, cloud, block), may_rise);
  }

  void add(const Problem<T> &p, const Bounds<T> &bounds, const Cloud<T> &cloud, int begin, int count, bool alike,
           bool may_rise) {
    tile.score(p, cloud, begin, count, alike);
    if (may_rise) raise_shift<T, V>(count, p.columns, tile.scores, bounded, shift, mass, totals);
    Vector<T> sums[V];
    if (is_rough(p)) exponentials<T, V, true, true>(count, shift, tile.scores, sums);
    else if (bounds.fit() && !bounds.vanishing) exponentials<T, V, false>(count, shift, tile.scores, sums);
    else exponentials<T, V, true>(count, shift, tile.scores, sums);
    UNROLL for (int v = 0; v < V; v++) add_exactly<T>(mass[2 * v], mass[2 * v + 1], sums[v]);
    add_all_columns<T, V>(count, p.columns, tile.scores, p.values + (size_t)begin * p.columns, totals);
  }
};

// How many tiles go over the sources side by side: while a block of sources is in the second-level cache, each of them
// uses it. Only clouds that are larger than this cache gain by it (at N = 16,384, d = 64 in double precision a third of
// the time), and only if their rows are long: few columns take longer to compute with than to load.
constexpr int SIDE_BY_SIDE = 4;
constexpr size_t SECOND_LEVEL = 256 * 1024;

template <class T> int tiles_at_once(const Problem<T> &p) {
  const size_t row = (size_t)(p.features + p.columns) * sizeof(T);
  return row >= 64 && row * p.sources > SECOND_LEVEL ? SIDE_BY_SIDE : 1;
}

// The moments of the queries from `first` on, as many as `tiles` tiles hold; false where there is no memory.
template <class T, int V>
NOINLINE bool sum_tiles(const Problem<T> &p, const Bounds<T> &bounds, const Sight<T> *sight, const Cloud<T> &cloud,
                        int first, int tiles) {
  const size_t each = Sums<T, V>::size(p);
  T *memory = scratch<T, 0>(each * tiles + Tile<T, V>::ROOM_FOR_SCORES);
  if (!memory) return false;
  T *room = memory + each * tiles;
  alignas(Sums<T, V>) char places[SIDE_BY_SIDE * sizeof(Sums<T, V>)];
  Sums<T, V> *sums = (Sums<T, V> *)places;
  const auto begin = [&](int i) { return first + i * Tile<T, V>::ROWS; };
  for (int i = 0; i < tiles; i++) new (sums + i) Sums<T, V>(p, bounds, sight, begin(i), memory + i * each, room);
  for (int block = 0; block < p.blocks(); block++)
    for (int i = 0; i < tiles; i++) sums[i].add_block(p, bounds, cloud, block);
  for (int i = 0; i < tiles; i++)
    write<T, V>(p, bounds.base, begin(i), sums[i].shift, sums[i].mass, sums[i].totals);
  return true;
}

}  // namespace particleflow
