"""One sum, prepared: what is summed, and the facts that summations read of it, each found once.

`Auto` reads them to choose, and what it has chosen reads them to sum. So an evaluation prepares its sum once, and the
kernel is taken apart once, whatever is chosen.
"""

from functools import cached_property
from typing import Any

import equinox as eqx
import jax

from particleflow._support.arrays import is_concrete
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import as_query_sites
from particleflow.summation.kernel_parts import KernelParts
from particleflow.summation.native.build import Library, library


class PreparedSum(eqx.Module):
    """A bound kernel, a measure and queries, with facts that are found when they are first read and kept.

    Facts depend on structure and shapes, but for `is_known`; two sums of one structure have equal signatures.
    """

    kernel: AbstractKernel
    measure: Measure
    queries: Sites

    @cached_property
    def parts(self) -> KernelParts | None:
        """The factors of the kernel sorted by their forms; None where there is one that native code cannot sum."""
        return KernelParts.of(self.kernel, self.measure.dimension)

    @cached_property
    def library(self) -> Library:
        """The native library of this process, or the reason why there is none."""
        return library()

    @cached_property
    def is_known(self) -> bool:
        """Whether all numbers that the sum depends on can be looked at: not inside `jit`."""
        return all(is_concrete(leaf) for leaf in jax.tree_util.tree_leaves((self.kernel, self.measure, self.queries)))


def prepare(kernel: AbstractKernel, measure: Measure, queries: Any) -> PreparedSum:
    """The sum of a kernel over a measure, seen from queries: an array (m, d), `Sites`, or a measure."""
    return PreparedSum(kernel, measure, as_query_sites(queries))
