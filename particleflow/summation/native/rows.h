// Rows: points as memory holds them, one after the other, and as lanes do, a vector of many points for every column.
//
// Moving one number at a time would take a third of the time of a small sum (32 points, d = 8): blocks of as many rows
// and columns as a vector has lanes are transposed in registers.
#pragma once
#include <algorithm>
#include <limits>
#include "lanes.h"

namespace particleflow {

// lanes[column][V]: the numbers of `count` rows from `first` on; the last row again where a vector has more lanes.
template <class T, int V>
void spread_rows(const T *rows, int first, int count, int columns, Vector<T> *lanes) {
  const int whole = columns / WIDTH<T> * WIDTH<T>;
  for (int v = 0; v < V; v++) {
    const T *row[WIDTH<T>];
    for (int i = 0; i < WIDTH<T>; i++) row[i] = rows + (size_t)(first + std::min(v * WIDTH<T> + i, count - 1)) * columns;
    for (int c = 0; c < whole; c += WIDTH<T>) {
      Vector<T> x[WIDTH<T>];
      UNROLL for (int i = 0; i < WIDTH<T>; i++) x[i] = loaded(row[i] + c);
      transpose<T>(x);
      UNROLL for (int i = 0; i < WIDTH<T>; i++) lanes[(c + i) * V + v] = x[i];
    }
    for (int c = whole; c < columns; c++)
      UNROLL for (int i = 0; i < WIDTH<T>; i++) lanes[c * V + v][i] = row[i][c];
  }
}

// Back to rows: the sums of columns, a pair (total, lost) for each, times a factor for every row.
template <class T, int V>
void gather_rows(const Vector<T> *totals, const Vector<T> *factor, int first, int count, int columns, T *rows) {
  const int whole = columns / WIDTH<T> * WIDTH<T>;
  for (int v = 0; v < V && v * WIDTH<T> < count; v++) {
    const int left = count - v * WIDTH<T>;
    const auto column = [&](int c) { return (totals[2 * (c * V + v)] + totals[2 * (c * V + v) + 1]) * factor[v]; };
    T *row = rows + (size_t)(first + v * WIDTH<T>) * columns;
    for (int c = 0; c < whole; c += WIDTH<T>) {
      Vector<T> x[WIDTH<T>];
      UNROLL for (int i = 0; i < WIDTH<T>; i++) x[i] = column(c + i);
      transpose<T>(x);
      UNROLL for (int i = 0; i < WIDTH<T>; i++)
        if (i < left) std::memcpy(row + (size_t)i * columns + c, x + i, sizeof x[i]);
    }
    for (int c = whole; c < columns; c++) {
      const Vector<T> x = column(c);
      UNROLL for (int i = 0; i < WIDTH<T>; i++)
        if (i < left) row[(size_t)i * columns + c] = x[i];
    }
  }
}

// The squares |row|^2 of some columns, as many rows at once as a vector has lanes: see(first, squares) for each such group;
// rows that the last group lacks are its last one again.
template <class T, class See> INLINE void each_square(const T *rows, int count, int stride, int columns, See see) {
  const int whole = columns / WIDTH<T> * WIDTH<T>;
  for (int first = 0; first < count; first += WIDTH<T>) {
    const T *row[WIDTH<T>];
    Vector<T> parts[WIDTH<T>], sum{};
    UNROLL for (int i = 0; i < WIDTH<T>; i++) {
      row[i] = rows + (size_t)std::min(first + i, count - 1) * stride;
      parts[i] = Vector<T>{};
      for (int c = 0; c < whole; c += WIDTH<T>) {
        const Vector<T> x = loaded(row[i] + c);
        parts[i] += x * x;
      }
    }
    if (whole) {
      transpose<T>(parts);
      UNROLL for (int i = 0; i < WIDTH<T>; i++) sum += parts[i];
    }
    for (int c = whole; c < columns; c++) {
      Vector<T> x;
      UNROLL for (int i = 0; i < WIDTH<T>; i++) x[i] = row[i][c];
      sum += x * x;
    }
    see(first, sum);
  }
}

// The largest |row|^2 of some columns; NaN if there is one.
template <class T> NOINLINE T largest_square(const T *rows, int count, int stride, int columns) {
  Vector<T> largest{}, everything{};  // no square is negative: the sum of all is NaN if one of them is
  each_square(rows, count, stride, columns, [&](int, Vector<T> squares) {
    largest = largest < squares ? squares : largest, everything += squares;
  });
  if (any<T>(everything != everything)) return std::numeric_limits<T>::quiet_NaN();
  return highest<T>(largest);
}

// The squares |row|^2 of some columns, for all rows; `squares` has room for whole vectors.
template <class T> NOINLINE void all_squares(const T *rows, int count, int stride, int columns, T *squares) {
  each_square(rows, count, stride, columns, [&](int first, Vector<T> found) {
    std::memcpy(squares + first, &found, sizeof found);
  });
}

// The smallest and largest of some numbers that are not infinite; NaN in both if there is one.
template <class T> struct Range {
  T low, high;
  bool infinite;

  Range(const T *numbers, int count) {
    const Vector<T> infinity = all<T>(std::numeric_limits<T>::infinity());
    Vector<T> least = infinity, most = -infinity;
    Integers<T> unknown{}, endless{};
    const auto look = [&](Vector<T> x) {
      const auto finite = (x < infinity) & (x > -infinity);
      unknown |= x != x, endless |= (x == infinity) | (x == -infinity);
      least = finite & (x < least) ? x : least, most = finite & (x > most) ? x : most;
    };
    int i = 0;
    for (; i + WIDTH<T> <= count; i += WIDTH<T>) look(loaded(numbers + i));
    for (; i < count; i++) look(all<T>(numbers[i]));
    const bool none = any<T>(unknown);
    low = none ? std::numeric_limits<T>::quiet_NaN() : -highest<T>(-least);
    high = none ? low : highest<T>(most);
    infinite = any<T>(endless);
  }
};

}  // namespace particleflow
