// Tiles: the loops that a sum spends its time in.
//
// Lanes are queries. A tile is QUERIES vectors of them against a block of sources, whose scores (logits, log K + log w)
// stay in the first-level cache: first the scores of the block, then their exponentials in place, then the sums of the
// value columns. Each loop works in registers, at nine tenths of the processor's peak.
#pragma once
#include "lanes.h"
#include "problem.h"

namespace particleflow {

// A register tile is QUERIES vectors by GROUP sources, or by as many columns: 24 or 12 sums at once hide the latency of
// the multiply-adds, and leave registers for the operands.
constexpr int QUERIES = REGISTERS == 32 ? 4 : 3;
constexpr int GROUP = REGISTERS == 32 ? 6 : 4;
static_assert(BLOCK % GROUP == 0, "blocks are whole groups");

// So many terms are added in registers before their sum joins that of the block: in single precision few, so that the
// rounding of a block's sum is that of 24 + 5 terms and not of 120.
template <class T> constexpr int TERMS = sizeof(T) == 8 ? BLOCK : 24;

// scores[source][V] = bias[source] + <q, s>, or |q - s|^2 without it, for `count` sources, which are rows of `columns`
// numbers `stride` apart. A group reads GROUP rows side by side; the last one repeats its last row, in scores that
// are never read.
template <class T, int V, bool DISTANCES>
NOINLINE void products(int count, int stride, int columns, const Vector<T> *__restrict queries,
                       const T *__restrict sources, const T *__restrict bias, Vector<T> *__restrict scores) {
  for (int first = 0; first < count; first += GROUP) {
    Vector<T> sums[GROUP][V];
    const T *rows[GROUP];
    UNROLL for (int j = 0; j < GROUP; j++) {
      const int row = first + j < count ? first + j : count - 1;
      rows[j] = sources + (size_t)row * stride;
      UNROLL for (int v = 0; v < V; v++) sums[j][v] = DISTANCES ? Vector<T>{} : all<T>(bias[row]);
    }
    for (int column = 0; column < columns; column++) {
      Vector<T> x[V];
      UNROLL for (int v = 0; v < V; v++) {
        x[v] = queries[column * V + v];
        IN_REGISTER(x[v]);
      }
      UNROLL for (int j = 0; j < GROUP; j++) {
        const T source = rows[j][column];
        UNROLL for (int v = 0; v < V; v++) {
          if (DISTANCES) {
            const Vector<T> difference = x[v] - source;
            sums[j][v] += difference * difference;
          } else {
            sums[j][v] += x[v] * source;
          }
        }
      }
    }
    UNROLL for (int j = 0; j < GROUP; j++)
      UNROLL for (int v = 0; v < V; v++) scores[(first + j) * V + v] = sums[j][v];
  }
}

// The logarithm of a profile at the square of a distance times `scale`; the ball has the square of its radius as `power`.
template <class T, int PROFILE> INLINE Vector<T> log_profile(Vector<T> square, T scale, T power) {
  if (PROFILE == GAUSSIAN) return square * -scale;
  if (PROFILE == BALL) return square < all<T>(power) ? Vector<T>{} : (square == square ? all<T>(-INFINITY) : square);
  const Vector<T> r2 = square * scale;
  if (PROFILE == EXPONENTIAL) return -sqrt_lanes<T>(r2);
  if (PROFILE == POWER) return log_lanes<T>(r2 + T(1)) * -power;
  if (PROFILE == PARABOLA) return log_lanes<T>(all<T>(1) - r2);
  return log_lanes<T>(all<T>(1) - sqrt_lanes<T>(r2));
}

// scores += the logarithm of the profile of squares; `plain`: there were no scores, they begin here with the bias.
template <class T, int V, int PROFILE>
NOINLINE void add_profile(int count, bool plain, T scale, T power, const T *bias, const Vector<T> *squares,
                          Vector<T> *scores) {
  for (int j = 0; j < count; j++)
    UNROLL for (int v = 0; v < V; v++) {
      const Vector<T> before = plain ? all<T>(bias[j]) : scores[j * V + v];
      scores[j * V + v] = log_profile<T, PROFILE>(squares[j * V + v], scale, power) + before;
    }
}

template <class T, int V>
void add_profile(Profile profile, int count, bool plain, T scale, T power, const T *bias, const Vector<T> *squares,
                 Vector<T> *scores) {
  switch (profile) {
    case GAUSSIAN: return add_profile<T, V, GAUSSIAN>(count, plain, scale, power, bias, squares, scores);
    case EXPONENTIAL: return add_profile<T, V, EXPONENTIAL>(count, plain, scale, power, bias, squares, scores);
    case POWER: return add_profile<T, V, POWER>(count, plain, scale, power, bias, squares, scores);
    case BALL: return add_profile<T, V, BALL>(count, plain, scale, power, bias, squares, scores);
    case PARABOLA: return add_profile<T, V, PARABOLA>(count, plain, scale, power, bias, squares, scores);
    case TRIANGLE: return add_profile<T, V, TRIANGLE>(count, plain, scale, power, bias, squares, scores);
    case NO_PROFILE: return;
  }
}

// scores -= slope |t - s| where least < t - s < most, else -infinity.
template <class T, int V>
NOINLINE void add_band(int count, T least, T most, T slope, const Vector<T> *times, const T *positions,
                       Vector<T> *scores) {
  for (int j = 0; j < count; j++)
    UNROLL for (int v = 0; v < V; v++) {
      const Vector<T> lag = times[v] - positions[j];
      const Vector<T> length = lag < Vector<T>{} ? -lag : lag;
      const Vector<T> score = scores[j * V + v] - length * slope;
      const Vector<T> after = lag > all<T>(least) ? score : all<T>(-INFINITY);
      scores[j * V + v] = lag < all<T>(most) ? after : all<T>(-INFINITY);
    }
}

// The largest score of every query, `top` at least.
template <class T, int V> NOINLINE void raise(int count, const Vector<T> *scores, Vector<T> *top) {
  for (int j = 0; j < count; j++)
    UNROLL for (int v = 0; v < V; v++) {
      const Vector<T> score = scores[j * V + v];
      top[v] = top[v] < score ? score : top[v];
    }
}

// scores = e^(scores - shift), and their sums.
template <class T, int V, bool CUT, bool ROUGH = false>
NOINLINE void exponentials(int count, const Vector<T> *shift, Vector<T> *scores, Vector<T> *sums) {
  Vector<T> less[V], whole[V];
  UNROLL for (int v = 0; v < V; v++) less[v] = shift[v], whole[v] = Vector<T>{};
  for (int first = 0; first < count; first += TERMS<T>) {
    const int end = first + TERMS<T> < count ? first + TERMS<T> : count;
    Vector<T> sum[V];
    UNROLL for (int v = 0; v < V; v++) sum[v] = Vector<T>{};
    for (int j = first; j < end; j++) {
      Vector<T> weights[V];
      UNROLL for (int v = 0; v < V; v++) weights[v] = scores[j * V + v] - less[v];
      exp_lanes<T, V, CUT, ROUGH>(weights);
      UNROLL for (int v = 0; v < V; v++) {
        scores[j * V + v] = weights[v];
        sum[v] += weights[v];
      }
    }
    UNROLL for (int v = 0; v < V; v++) whole[v] += sum[v];
  }
  UNROLL for (int v = 0; v < V; v++) sums[v] = whole[v];
}

// totals[column] += sum_j weights_j values_j[column], a pair of vectors (total, lost) for every column and vector.
template <class T, int V, int COLUMNS>
NOINLINE void add_columns(int count, int stride, const Vector<T> *__restrict weights, const T *__restrict values,
                          Vector<T> *__restrict totals) {
  Vector<T> whole[COLUMNS][V] = {};
  for (int left = count; left > 0; left -= TERMS<T>) {
    const T *end = values + (size_t)(left < TERMS<T> ? left : TERMS<T>) * stride;
    Vector<T> sums[COLUMNS][V];
    UNROLL for (int c = 0; c < COLUMNS; c++)
      UNROLL for (int v = 0; v < V; v++) sums[c][v] = Vector<T>{};
    for (; values != end; values += stride, weights += V) {
      Vector<T> w[V];
      UNROLL for (int v = 0; v < V; v++) {
        w[v] = weights[v];
        IN_REGISTER(w[v]);
      }
      UNROLL for (int c = 0; c < COLUMNS; c++) {
        const T value = values[c];
        UNROLL for (int v = 0; v < V; v++) sums[c][v] += w[v] * value;
      }
    }
    UNROLL for (int c = 0; c < COLUMNS; c++)
      UNROLL for (int v = 0; v < V; v++) whole[c][v] += sums[c][v];
  }
  UNROLL for (int c = 0; c < COLUMNS; c++)
    UNROLL for (int v = 0; v < V; v++) add_exactly<T>(totals[2 * (c * V + v)], totals[2 * (c * V + v) + 1], whole[c][v]);
}

template <class T, int V>
void add_all_columns(int count, int columns, const Vector<T> *weights, const T *values, Vector<T> *totals) {
  int c = 0;
  for (; c + GROUP <= columns; c += GROUP)
    add_columns<T, V, GROUP>(count, columns, weights, values + c, totals + 2 * c * V);
  if (columns - c == 4) add_columns<T, V, 4>(count, columns, weights, values + c, totals + 2 * c * V), c += 4;
  if (columns - c >= 3) add_columns<T, V, 3>(count, columns, weights, values + c, totals + 2 * c * V), c += 3;
  if (columns - c == 2) add_columns<T, V, 2>(count, columns, weights, values + c, totals + 2 * c * V);
  if (columns - c == 1) add_columns<T, V, 1>(count, columns, weights, values + c, totals + 2 * c * V);
}

}  // namespace particleflow
