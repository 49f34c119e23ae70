// The adjoint of the moments, as one pass that serves rows and columns.
//
//     P_ij = e^(score_ij + offset_i),    A_ij = P_ij (<f_i, g_j> + given_j + own_i)
//     carried_i = sum_j A_ij y_j,  total_i = sum_j A_ij,  weighted_i = sum_j P_ij g_j,
//     lengths_i = sum_j A_ij (|t_i - p_j|, |u_i - v_j|^2)
//
// Row pass: lanes are queries, f the derivatives with respect to means, g the values. Column pass: lanes are sources, and
// both sides change their roles. Of the forward pass only G and m are kept: scores are computed again.
#pragma once
#include "near.h"

namespace particleflow {

// weights = powers * rates, and their sums; `own` is added to the rates of every query.
template <class T, int V>
NOINLINE void weigh(int count, const Vector<T> *own, const Vector<T> *powers, Vector<T> *rates, Vector<T> *sums) {
  UNROLL for (int v = 0; v < V; v++) sums[v] = Vector<T>{};
  for (int j = 0; j < count; j++)
    UNROLL for (int v = 0; v < V; v++) {
      const Vector<T> weight = powers[j * V + v] * (rates[j * V + v] + own[v]);
      rates[j * V + v] = weight;
      sums[v] += weight;
    }
}

// sum_j weights_j |t - p_j|.
template <class T, int V>
NOINLINE void weigh_lags(int count, const Vector<T> *times, const T *positions, const Vector<T> *weights, Vector<T> *sums) {
  UNROLL for (int v = 0; v < V; v++) sums[v] = Vector<T>{};
  for (int j = 0; j < count; j++)
    UNROLL for (int v = 0; v < V; v++) {
      const Vector<T> lag = times[v] - positions[j];
      sums[v] += weights[j * V + v] * (lag < Vector<T>{} ? -lag : lag);
    }
}

// sum_j weights_j lengths_j.
template <class T, int V>
NOINLINE void weigh_lengths(int count, const Vector<T> *lengths, const Vector<T> *weights, Vector<T> *sums) {
  UNROLL for (int v = 0; v < V; v++) sums[v] = Vector<T>{};
  for (int j = 0; j < count; j++)
    UNROLL for (int v = 0; v < V; v++) sums[v] += weights[j * V + v] * lengths[j * V + v];
}

// The sums of a tile of rows; with a scene, in whose order all arrays are, over the near partners alone.
template <class T, int V>
NOINLINE bool pull_tile(const Adjoint<T> &a, const Bounds<T> &bounds, const Cloud<T> &cloud, int first,
                        const Scene *scene = nullptr) {
  const Problem<T> &p = a.problem;
  constexpr int ROWS = Tile<T, V>::ROWS;
  const size_t room = Tile<T, V>::size(p.features), places = room + Tile<T, V>::ROOM_FOR_SCORES;
  const size_t pairs = 2 * (p.features + p.columns + 3);
  const size_t before = places + (size_t)ROWS * (p.columns + BLOCK + pairs);
  T *memory = scratch<T, 0>(before + (scene ? scene->memory() : 0));
  if (!memory) return false;
  Tile<T, V> tile(p, first, memory, memory + room, true);
  const int rows = std::min(ROWS, p.queries - first);
  Vector<T> *rates = (Vector<T> *)(memory + places), *weights = rates + p.columns * V, *carried = weights + BLOCK * V;
  Vector<T> *weighted = carried + 2 * p.features * V, *total = weighted + 2 * p.columns * V, *lengths = total + 2 * V;
  std::fill(carried, lengths + 4 * V, Vector<T>{});
  Vector<T> own[V], shift[V], sums[V], mass[V] = {};
  spread_rows<T, V>(a.rates, first, rows, p.columns, rates);
  spread_rows<T, V>(a.own, first, rows, 1, own);
  spread_rows<T, V>(a.offset, first, rows, 1, shift);
  UNROLL for (int v = 0; v < V; v++) shift[v] = -(shift[v] + bounds.base);
  const auto add = [&](int begin, int count, bool alike) {
    tile.score(p, cloud, begin, count, alike);
    exponentials<T, V, true>(count, shift, tile.scores, sums);
    UNROLL for (int v = 0; v < V; v++) mass[v] += sums[v];
    if (a.weighted)
      add_all_columns<T, V>(count, p.columns, tile.scores, p.values + (size_t)begin * p.columns, weighted);
    const T *partners = p.values + (size_t)begin * p.columns;
    products<T, V, false>(count, p.columns, p.columns, rates, partners, a.given + begin, weights);
    weigh<T, V>(count, own, tile.scores, weights, sums);
    UNROLL for (int v = 0; v < V; v++) add_exactly<T>(total[2 * v], total[2 * v + 1], sums[v]);
    add_all_columns<T, V>(count, p.features, weights, a.carriers + (size_t)begin * p.features, carried);
    if (p.banded()) {
      weigh_lags<T, V>(count, tile.times, p.key_positions + begin, weights, sums);
      UNROLL for (int v = 0; v < V; v++) add_exactly<T>(lengths[2 * v], lengths[2 * v + 1], sums[v]);
    }
    if (p.profile != NO_PROFILE) {
      weigh_lengths<T, V>(count, tile.squares, weights, sums);
      UNROLL for (int v = 0; v < V; v++) add_exactly<T>(lengths[2 * (V + v)], lengths[2 * (V + v) + 1], sums[v]);
    }
  };
  if constexpr (sizeof(T) == sizeof(double))
    if (scene) {
      Vector<T> offsets[V];
      spread_rows<T, V>(scene->query_offsets.data(), first, rows, 1, offsets);
      const auto least = [&] { return least_mass<V>(mass, shift, offsets); };
      scene->visit(first, rows, memory + before, [&](int begin, int count, double) { add(begin, count, false); }, least);
    }
  for (int block = 0; !scene && block < p.blocks(); block++)
    if (tile.sees(p, cloud, block))
      add(block * BLOCK, std::min(BLOCK, p.sources - block * BLOCK), tile.inside(p, cloud, block));
  Vector<T> one[V];
  std::fill(one, one + V, all<T>(1));
  gather_rows<T, V>(carried, one, first, rows, p.features, a.carried);
  gather_rows<T, V>(total, one, first, rows, 1, a.total);
  gather_rows<T, V>(lengths, one, first, rows, 2, a.lengths);
  if (a.weighted) gather_rows<T, V>(weighted, one, first, rows, p.columns, a.weighted);
  return true;
}

}  // namespace particleflow
