// Boxes: points in an order in which neighbours come together, and boxes around pieces of it.
//
// A k-d tree without nodes: the points of a piece are parted at a multiple of the size of a leaf, along the coordinate in
// which they reach furthest, and so on with both parts. Left parts are powers of two, in leaves, so that GROUPED
// consecutive leaves, or any other power of two of them, are a branch, too. Ties are broken by index: the order is a
// function of the points alone.
#pragma once
#include <cmath>
#include <utility>
#include <vector>
#include "workers.h"

namespace particleflow {

constexpr int GROUPED = 64;

typedef std::vector<double> Numbers;

// The rows of an array, copied in another order.
inline void pick_rows(const double *rows, const std::vector<int> &index, int columns, const Workers &workers, double *to) {
  workers.rows((int)index.size(), [&](int first, int end) {
    for (int i = first; i < end; i++) std::copy_n(rows + (size_t)index[i] * columns, columns, to + (size_t)i * columns);
  });
}

inline Numbers picked_rows(const Numbers &rows, const std::vector<int> &index, const Workers &workers) {
  Numbers found(rows.size());
  pick_rows(rows.data(), index, (int)(rows.size() / index.size()), workers, found.data());
  return found;
}

class Order {
  typedef std::pair<int, int> Piece;
  typedef std::pair<double, int> Along;
  const Numbers &points;
  const int dimension, leaf;
  std::vector<Along> along;

 public:
  std::vector<int> index;

  Order(const Numbers &points, int count, int dimension, int leaf, const Workers &workers)
      : points(points), dimension(dimension), leaf(leaf), along(count), index(count) {
    for (int i = 0; i < count; i++) index[i] = i;
    std::vector<Piece> pieces{{0, count}}, parts;
    for (int level = 0; level < 4; level++, pieces.swap(parts)) {  // threads part the same pieces as one thread does
      parts.assign(2 * pieces.size(), {});
      workers.share((int)pieces.size(), [&](int i) {
        const auto [first, end] = pieces[i];
        const int middle = part(first, end);
        parts[2 * i] = {first, middle}, parts[2 * i + 1] = {middle, end};
        return true;
      });
    }
    workers.share((int)pieces.size(), [&](int i) {
      arrange(pieces[i].first, pieces[i].second);
      return true;
    });
  }

 private:
  void arrange(int first, int end) {
    if (end - first <= leaf) return;
    const int middle = part(first, end);
    arrange(first, middle), arrange(middle, end);
  }

  // The end of the left part; a leaf is no longer parted.
  int part(int first, int end) {
    if (end - first <= leaf) return end;
    const int leaves = (end - first + leaf - 1) / leaf, axis = widest(first, end);
    int left = 1;
    while (2 * left < leaves) left *= 2;
    const int middle = first + left * leaf;
    for (int i = first; i < end; i++) along[i] = {points[(size_t)index[i] * dimension + axis], index[i]};
    select(along.data() + first, along.data() + middle, along.data() + end);
    for (int i = first; i < end; i++) index[i] = along[i].second;
    return middle;
  }

  // The same as std::nth_element in half the time, without branches that processors mispredict; after too many bad pivots
  // std::nth_element takes over.
  static void select(Along *first, Along *nth, Along *end) {
    for (int round = 0; end - first > 32; round++) {
      if (round > 64) break;
      Along *middle = first + (end - first) / 2, *last = end - 1;
      if (*middle < *first) std::swap(*middle, *first);
      if (*last < *middle) std::swap(*last, *middle);
      if (*middle < *first) std::swap(*middle, *first);
      std::swap(*middle, *last);
      const Along pivot = *last;
      Along *less = first;
      for (Along *each = first; each < last; each++) {
        const Along found = *each;
        *each = *less, *less = found;
        less += (found.first < pivot.first) | ((found.first == pivot.first) & (found.second < pivot.second));
      }
      std::swap(*less, *last);
      if (less == nth) return;
      if (less < nth) first = less + 1;
      else end = less;
    }
    std::nth_element(first, nth, end);
  }

  int widest(int first, int end) const {
    constexpr int SOME = 8;  // coordinates at once: a row is read as few times as can be
    int axis = 0;
    double most = -1;
    for (int begin = 0; begin < dimension; begin += SOME) {
      const int count = std::min(SOME, dimension - begin);
      double low[SOME], high[SOME];
      std::fill(low, low + SOME, INFINITY), std::fill(high, high + SOME, -INFINITY);
      for (int i = first; i < end; i++) {
        const double *point = points.data() + (size_t)index[i] * dimension + begin;
        for (int c = 0; c < count; c++) low[c] = std::min(low[c], point[c]), high[c] = std::max(high[c], point[c]);
      }
      for (int c = 0; c < count; c++)
        if (high[c] - low[c] > most) most = high[c] - low[c], axis = begin + c;
    }
    return axis;
  }
};

// Boxes, stored coordinate by coordinate, and the log-weight in each; empty ones fill up the last group.
struct Boxes {
  int count, padded, dimension;
  Numbers low, high, weight;

  Boxes(int count, int dimension)
      : count(count), padded((count + GROUPED - 1) / GROUPED * GROUPED), dimension(dimension),
        low((size_t)padded * dimension, INFINITY), high((size_t)padded * dimension, INFINITY), weight(padded, -INFINITY) {}

  // Around every `size` rows.
  static Boxes around(const Numbers &rows, const Numbers &log_weights, int size, int dimension, const Workers &workers) {
    const int all = (int)log_weights.size();
    Boxes boxes((all + size - 1) / size, dimension);
    workers.rows(boxes.count, [&](int begin, int stop) {
      for (int box = begin; box < stop; box++) {
        const int first = box * size, end = std::min(all, first + size);
        for (int c = 0; c < dimension; c++)
          boxes.hold(box, c, end - first, &rows[(size_t)first * dimension + c], &rows[(size_t)first * dimension + c],
                     dimension);
        boxes.weigh(box, log_weights.data() + first, end - first);
      }
    });
    return boxes;
  }

  // Around GROUPED boxes each.
  Boxes grouped() const {
    Boxes groups((count + GROUPED - 1) / GROUPED, dimension);
    for (int group = 0; group < groups.count; group++) {
      const int first = group * GROUPED, members = std::min(GROUPED, count - first);
      for (int c = 0; c < dimension; c++)
        groups.hold(group, c, members, &low[(size_t)c * padded + first], &high[(size_t)c * padded + first], 1);
      groups.weigh(group, weight.data() + first, members);
    }
    return groups;
  }

 private:
  void hold(int box, int c, int members, const double *lows, const double *highs, int stride) {
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < members; i++) {
      least = std::min(least, lows[(size_t)i * stride]), most = std::max(most, highs[(size_t)i * stride]);
    }
    low[(size_t)c * padded + box] = least, high[(size_t)c * padded + box] = most;
  }

  void weigh(int box, const double *log_weights, int members) {
    const double top = *std::max_element(log_weights, log_weights + members);
    double sum = 0;
    for (int i = 0; i < members && top > -INFINITY; i++) sum += std::exp(log_weights[i] - top);
    weight[box] = sum > 0 ? top + std::log(sum) : -INFINITY;
  }
};

}  // namespace particleflow
