"""Which kernels can be made doubly stochastic at all.

Positive numbers f_i, g_j with f_i K_ij g_j doubly stochastic exist if and only if K has *total support*: every positive
entry lies on a permutation all of whose entries are positive (Sinkhorn and Knopp 1967). A causal mask is the standard
example without it: the only triangular doubly stochastic matrix is the identity.
"""

import jax
import numpy as np

from particleflow._support.arrays import is_concrete
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites

_BLOCK_ENTRIES = 2**24  # entries of the pattern that are evaluated at a time
_MOST_ENTRIES = 2**25  # with more positive entries only rows with a single one are checked


def check_total_support(kernel: AbstractKernel, measure: Measure) -> None:
    """Raise with the reason unless a doubly stochastic matrix with the kernel's zeros exists.

    Only kernels that can vanish are evaluated, block by block, at the points of positive weight. Inside `jit` nothing
    can be checked; there, potentials that do not come to rest show as NaN.
    """
    if not kernel.vanishes() or not all(map(is_concrete, (measure.points, *jax.tree_util.tree_leaves(kernel)))):
        return
    alive = np.flatnonzero(np.asarray(measure.log_weights) > -np.inf)
    size = max(1, _BLOCK_ENTRIES // len(alive))
    with jax.ensure_compile_time_eval():  # a concrete measure may be met while something else is traced
        sites = jax.tree_util.tree_map(lambda leaf: leaf[alive], measure.sites)
        counts = [_pattern(kernel, sites, first, size) for first in range(0, len(alive), size)]
    in_row = np.concatenate([block.sum(axis=1) for block in counts])
    in_column = np.sum([block.sum(axis=0) for block in counts], axis=0)
    if in_row.sum() == len(alive) ** 2:
        return
    for count in (in_row, in_column):
        if (count == 0).any():
            raise ArgumentError(
                "Sinkhorn normalisation needs a positive entry in every row and column, but particle "
                f"{alive[np.argmin(count)]} has none in its row or in its column."
            )
    if in_row.sum() <= _MOST_ENTRIES:
        _check_matching(np.concatenate(counts), alive)
    lonely = np.flatnonzero((in_row == 1) & (in_column > 1))
    if lonely.size and np.concatenate([block.argmax(axis=1) for block in counts])[lonely[0]] == lonely[0]:
        _refuse(int(alive[lonely[0]]))


def _pattern(kernel: AbstractKernel, sites: Sites, first: int, size: int) -> np.ndarray:
    """Where K(x_i, y_j) > 0, for a block of rows i."""
    rows = jax.tree_util.tree_map(lambda leaf: leaf[first : first + size], sites)
    return np.asarray(kernel.log_matrix(rows, sites)) > -np.inf


def _check_matching(pattern: np.ndarray, alive: np.ndarray) -> None:
    """Raise unless every entry closes a cycle with one perfect matching: both its ends in one strong component."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

    sparse = csr_matrix(pattern)
    column_of_row = maximum_bipartite_matching(sparse, perm_type="column")
    if (column_of_row < 0).any():
        _refuse(int(alive[np.argmax(column_of_row < 0)]))
    row_of_column = np.empty_like(column_of_row)
    row_of_column[column_of_row] = np.arange(len(column_of_row))
    rows, columns = sparse.nonzero()
    ends = row_of_column[columns]
    joined = csr_matrix((np.ones(len(rows), np.int8), (rows, ends)), shape=sparse.shape)
    _, component = connected_components(joined, directed=True, connection="strong")
    outside = np.flatnonzero(component[rows] != component[ends])
    if outside.size:
        _refuse(int(alive[rows[outside[0]]]))


def _refuse(particle: int) -> None:
    """Raise for a particle with an entry that lies on no permutation."""
    raise ArgumentError(
        "Sinkhorn normalisation cannot make these weights doubly stochastic: the kernel has zeros, and a positive "
        f"entry of particle {particle} lies on no permutation of positive entries (a causal mask leaves only the "
        "identity). "
        'Use normalization = "row", or a kernel or positional kernel without such zeros.'
    )
