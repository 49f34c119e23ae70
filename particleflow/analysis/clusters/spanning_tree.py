"""Prim's algorithm for the minimum spanning tree of a complete graph, in memory O(n).

The tree grows from row 0. For every row outside, the shortest edge into the tree is kept; the row whose edge is the
shortest comes in, and its edges to those still outside are compared with theirs. That is O(n) numbers a step and O(n²)
time in all, where a list of all edges would not fit into memory. Rows outside are kept without gaps: the last one fills
the place of the one that has come in, so that every step works on contiguous arrays.
"""

from collections.abc import Callable, Iterator

import numpy as np

from particleflow.analysis.reading import FloatArray


def spanning_tree_edges(
    rows: FloatArray, lengths: Callable[[FloatArray, FloatArray], FloatArray]
) -> Iterator[tuple[int, int, float]]:
    """Yield the n − 1 edges (inside, outside, length) of the minimum spanning tree in the order in which it grows.

    rows: (n, k), what `lengths(row, others)` needs of a node: it returns the lengths (m,) of the edges from one row
    (k,) to others (m, k). A length of inf is no edge; rows that no edge reaches come in with that length.
    """
    outside, others = np.arange(1, rows.shape[0]), rows[1:].copy()
    shortest, inside = np.full(outside.size, np.inf), np.zeros(outside.size, dtype=np.int64)
    last = 0
    for end in range(outside.size - 1, -1, -1):
        found = lengths(rows[last], others)
        shorter = found < shortest
        shortest[shorter], inside[shorter] = found[shorter], last
        place = int(np.argmin(shortest))
        last = int(outside[place])
        yield int(inside[place]), last, float(shortest[place])
        for kept in (outside, others, shortest, inside):  # the end fills the gap
            kept[place] = kept[end]
        outside, others, shortest, inside = outside[:end], others[:end], shortest[:end], inside[:end]
