// Cells: the points of both sides of a sum in one adaptive tree of cubes, halved in every coordinate.
//
// Cubes lie on the lattice of a cube about 0 whose side is a power of two, so that their centres are exact. A cube whose
// points all lie in one of its parts is that part: an outlier costs no level. Points that coincide are one row.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace particleflow {

constexpr int DEEPEST = 50;       // halvings, beyond which centres would round
constexpr int FEWEST_ROWS = 32;  // a cell with no more rows of either side is not divided

// Parameters: its level and place on the lattice of that level, its children, where its descendants end, and its rows.
struct Cell {
  int level = 0, child = 0, children = 0, end = 0;
  std::array<int64_t, 3> place{};
  int query = 0, query_end = 0, key = 0, key_end = 0;

  int queries() const { return query_end - query; }
  int keys() const { return key_end - key; }
};

class Cells {
  struct Row {
    double x[3];
    int id;
  };
  std::vector<Row> ours, theirs, spare;

public:
  int dims;
  double radius = 1;  // half the side of the first cube
  std::vector<Cell> cells;
  std::vector<double> queries, keys;  // their points, row by row
  std::vector<int> query_rows, key_rows;  // the row of every given point

  Cells(int dims, const double *query_points, int query_count, const double *key_points, int key_count) : dims(dims) {
    double largest = 0;
    const auto read = [&](const double *points, int count, std::vector<Row> &rows) {
      rows.resize(count);
      for (int i = 0; i < count; i++) {
        rows[i].id = i;
        for (int a = 0; a < dims; a++) rows[i].x[a] = points[(size_t)i * dims + a];
        for (int a = 0; a < dims; a++) largest = std::max(largest, std::fabs(rows[i].x[a]));
      }
    };
    read(query_points, query_count, ours), read(key_points, key_count, theirs);
    while (radius <= largest) radius *= 2;
    while (largest > 0 && radius > 2 * largest) radius /= 2;
    spare.resize(std::max(query_count, key_count));
    query_rows.resize(query_count), key_rows.resize(key_count);
    queries.reserve((size_t)query_count * dims), keys.reserve((size_t)key_count * dims);
    cells.emplace_back();
    divide(0, 0, query_count, 0, key_count);
  }

  double half_side(int level) const { return std::ldexp(radius, -level); }
  double centre(int level, int64_t place) const { return -radius + (2 * (double)place + 1) * half_side(level); }
  std::array<double, 3> centre(const Cell &cell) const {
    std::array<double, 3> middle{};
    for (int a = 0; a < dims; a++) middle[a] = centre(cell.level, cell.place[a]);
    return middle;
  }

private:
  void divide(int index, int query, int query_end, int key, int key_end) {
    Cell cell = cells[index];
    cell.query = (int)(queries.size() / dims), cell.key = (int)(keys.size() / dims);
    double least[3], most[3];
    for (int a = 0; a < dims; a++) least[a] = INFINITY, most[a] = -INFINITY;
    const auto see = [&](const Row &row) {
      for (int a = 0; a < dims; a++) least[a] = std::min(least[a], row.x[a]), most[a] = std::max(most[a], row.x[a]);
    };
    std::for_each(ours.begin() + query, ours.begin() + query_end, see);
    std::for_each(theirs.begin() + key, theirs.begin() + key_end, see);
    const bool one = std::equal(least, least + dims, most);
    const bool small = query_end - query <= FEWEST_ROWS && key_end - key <= FEWEST_ROWS;
    while (!one && !small && cell.level < DEEPEST && part(cell, least) == part(cell, most)) descend(cell, part(cell, least));
    if (one || small || cell.level == DEEPEST) {
      keep(ours, query, query_end, one, queries, query_rows), keep(theirs, key, key_end, one, keys, key_rows);
    } else {
      const auto q = sorted(cell, ours, query, query_end), k = sorted(cell, theirs, key, key_end);
      cell.child = (int)cells.size();
      std::vector<int> parts;
      for (int p = 0; p < 1 << dims; p++) {
        if (q[p] == q[p + 1] && k[p] == k[p + 1]) continue;
        Cell child;
        child.level = cell.level, child.place = cell.place;
        descend(child, p);
        cells.push_back(child), parts.push_back(p);
      }
      cell.children = (int)parts.size();
      for (int c = 0; c < cell.children; c++) {
        const int p = parts[c];
        divide(cell.child + c, q[p], q[p + 1], k[p], k[p + 1]);
      }
    }
    cell.query_end = (int)(queries.size() / dims), cell.key_end = (int)(keys.size() / dims);
    cell.end = (int)cells.size();
    cells[index] = cell;
  }

  // Which half of a cell a point is in, a bit a coordinate.
  int part(const Cell &cell, const double *x) const {
    int bits = 0;
    for (int a = 0; a < dims; a++) bits |= (x[a] >= centre(cell.level, cell.place[a])) << a;
    return bits;
  }

  void descend(Cell &cell, int bits) const {
    cell.level++;
    for (int a = 0; a < dims; a++) cell.place[a] = 2 * cell.place[a] + (bits >> a & 1);
  }

  // Rows in the order of the parts that they are in; where each part begins.
  std::array<int, 9> sorted(const Cell &cell, std::vector<Row> &rows, int first, int end) {
    std::array<double, 3> middle = centre(cell);
    const auto part_of = [&](const Row &row) {
      int bits = 0;
      for (int a = 0; a < dims; a++) bits |= (row.x[a] >= middle[a]) << a;
      return bits;
    };
    std::array<int, 9> begin{}, next;
    for (int i = first; i < end; i++) begin[part_of(rows[i]) + 1]++;
    begin[0] = first;
    for (int p = 0; p < 8; p++) begin[p + 1] += begin[p];
    next = begin;
    std::copy(rows.begin() + first, rows.begin() + end, spare.begin());
    for (int i = 0; i < end - first; i++) rows[next[part_of(spare[i])]++] = spare[i];
    return begin;
  }

  void keep(const std::vector<Row> &rows, int first, int end, bool one, std::vector<double> &points, std::vector<int> &row_of) {
    for (int i = first; i < end; i++) {
      if (i == first || !one) points.insert(points.end(), rows[i].x, rows[i].x + dims);
      row_of[rows[i].id] = (int)(points.size() / dims) - 1;
    }
  }
};

}  // namespace particleflow
