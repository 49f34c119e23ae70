// Sight: bounds of the scores of every query, from the sources up to the last one that it sees.
//
// Where positions have a band, no source after the last one that a query sees may change a bit of its sum: not the shift
// of its exponentials, nor the precision they are made in, nor the weight that others are taken relative to. So each query
// has bounds of its own, score_ij <= top_i and >= top_i - spread_i, from the largest numbers among the sources up to the
// last one that it sees, in the order of their positions; and weights are relative to that of the earliest source.
#pragma once
#include <numeric>
#include <vector>
#include "moments.h"

namespace particleflow {

template <class T> struct Sight {
  T base = 0;
  std::vector<T> top, spread;

  explicit Sight(const Problem<T> &p) : top(p.queries), spread(p.queries) {
    const Range<T> positions(p.key_positions, p.sources);
    if (positions.low != positions.low) {  // there is no order with NaN: no query has a bound
      std::fill(spread.begin(), spread.end(), positions.low);
      return;
    }
    const Past past(p);
    base = past.base;
    const std::vector<T> inner = squares(p.query_features, p.queries, p.features, p.inner);
    const std::vector<T> places = squares(p.query_features + p.inner, p.queries, p.features, p.coordinates());
    for (int i = 0, seen = 0; i < p.queries; i++) {
      const T time = p.query_positions[i];
      seen = past.seen(p, time, seen);
      if (seen == 0) continue;
      const Largest &most = past.largest[seen - 1];
      const T product = std::sqrt(inner[i] * most.inner);
      const T lag = std::max(time - past.positions[0], past.positions[seen - 1] - time);
      const T furthest = std::min(lag, std::max(std::fabs(p.least), std::fabs(p.most)));
      const T slope = p.slope == 0 ? T(0) : std::fabs(p.slope) * furthest;
      top[i] = product + most.high + (p.slope < 0 ? slope : T(0));
      spread[i] = 2 * product + (most.high - most.low) + slope;
      if (p.coordinates() > 0)
        spread[i] += Bounds<T>::drop(p, (std::sqrt(places[i]) + std::sqrt(most.places)) * p.scale);
    }
  }

  // The bounds of a tile of queries, and which of them are near enough to be a shift.
  template <int V> void bound(int first, int count, Integers<T> *bounded, Vector<T> *shift) const {
    Vector<T> spreads[V];
    spread_rows<T, V>(top.data(), first, count, 1, shift);
    spread_rows<T, V>(spread.data(), first, count, 1, spreads);
    UNROLL for (int v = 0; v < V; v++) bounded[v] = spreads[v] <= all<T>(ROOM<T>);
  }

 private:
  // The largest squares of features and places of some sources, and the range of their weights but for zero; NaN stays.
  struct Largest {
    T inner = 0, places = 0, high = 0, low = 0;
  };

  static T larger(T a, T b) { return b > a || b != b ? b : a; }

  static std::vector<T> squares(const T *rows, int count, int stride, int columns) {
    std::vector<T> found(count + WIDTH<T>);
    if (columns > 0) all_squares(rows, count, stride, columns, found.data());
    return found;
  }

  // Sources in the order of their positions, and the largest numbers up to each.
  struct Past {
    T base = 0;
    std::vector<T> positions;
    std::vector<Largest> largest;

    explicit Past(const Problem<T> &p) : positions(p.key_positions, p.key_positions + p.sources), largest(p.sources) {
      std::vector<int> order(p.sources);
      std::iota(order.begin(), order.end(), 0);
      if (!std::is_sorted(positions.begin(), positions.end())) {
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return positions[a] < positions[b]; });
        std::sort(positions.begin(), positions.end());
      }
      const std::vector<T> inner = squares(p.key_features, p.sources, p.features, p.inner);
      const std::vector<T> places = squares(p.key_features + p.inner, p.sources, p.features, p.coordinates());
      const auto weightless = [&](int j) { return std::isinf(p.log_weights[j]) && p.log_weights[j] < 0; };
      const auto first = std::find_if_not(order.begin(), order.end(), weightless);
      if (first != order.end() && std::isfinite(p.log_weights[*first])) base = p.log_weights[*first];
      Largest so_far;
      for (int k = 0; k < p.sources; k++) {
        const int j = order[k];
        so_far.inner = larger(so_far.inner, inner[j]), so_far.places = larger(so_far.places, places[j]);
        if (!weightless(j)) {
          const T weight = p.log_weights[j] - base;
          so_far.high = larger(so_far.high, weight), so_far.low = -larger(-so_far.low, -weight);
        }
        largest[k] = so_far;
      }
    }

    // The number of sources up to the last one that is seen from a time; `guess`, that of the query before.
    int seen(const Problem<T> &p, T time, int guess) const {
      const auto is_seen = [&](T position) { return time - position > p.least; };
      const bool goes_on = guess == 0 || is_seen(positions[guess - 1]);
      if (goes_on && (guess == (int)positions.size() || !is_seen(positions[guess]))) return guess;
      if (goes_on && (guess + 1 == (int)positions.size() || !is_seen(positions[guess + 1]))) return guess + 1;
      return (int)(std::partition_point(positions.begin(), positions.end(), is_seen) - positions.begin());
    }
  };
};

}  // namespace particleflow
