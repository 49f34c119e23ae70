"""Multi-head attention: several heads over the same tokens, each with its own kernel and maps.

    v(x) = Σ_h O_h (V_h m_h(x) + b_h) + c,    m_h the local mean under K_h(x, y) = exp β⟨Q_h x + b, K_h y + c⟩

The heads are kept as one `Attend` whose arrays have a leading axis. All queries, keys and values are then one matrix
product each, the sums of all heads are one call of the summation, and one more product with all O_h adds them up.

A head of k dimensions sees d-dimensional tokens through matrices of rank k: ⟨Qx, Ky⟩ = ⟨x, QᵀK y⟩ is the attraction of
tokens, and O V the direction of the pull. The theory of the flow reads both, head by head, and neither changes when a
basis inside of the head is turned: Q, K ↦ RQ, RK and V, O ↦ RV, OR⁻¹. Source: Vaswani et al. (2017).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_float_array, plus
from particleflow.dynamics.drifts.attend import Attend
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, added, check_balanced, structure_of
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError, ShapeError, check_kind
from particleflow.kernels.affine import AffineAttention
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import AbstractSummation


class MultiHead(AbstractDrift):
    """Several attends of one structure and a bias c: v(x) = Σ_h O_h (V_h m_h(x) + b_h) + c.

    It equals the `Sum` of the same attends up to rounding, at a fraction of its cost: twelve heads of MiniLM are a few
    large matrix products in place of sixty small ones.

    Parameters: `heads`, attends that differ in their numbers alone, without data and output biases of their own;
    `bias` c, a number or a vector; `data`, another measure that all heads sum over.
    """

    heads: Attend
    bias: Float[Array, "..."] | None
    data: Measure | None

    def __init__(self, heads: Sequence[Attend], bias: Any = None, data: Measure | None = None):
        given = tuple(heads)
        for index, head in enumerate(given):
            check_kind(head, Attend, f"heads[{index}]", "an attend")
        if not given:
            raise ArgumentError("Argument `heads` must name at least one attend, but is empty.")
        if len({structure_of(head) for head in given}) > 1:
            raise ArgumentError(
                "Argument `heads` must hold attends of one structure, but they differ in more than numbers; "
                "write them as drifts of their own, which add up."
            )
        self.heads = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *given)
        self.bias = None if bias is None else as_float_array(bias, "bias")
        self.data = data

    def __check_init__(self):
        if self.heads.data is not None or self.heads.output_bias is not None:
            raise ArgumentError(
                "Argument `heads`: `data` and `output_bias` belong to all heads together; give `data` and `bias` to "
                "the multi-head."
            )
        if self.data is not None:
            check_kind(self.data, Measure, "data", "a measure")
        check_balanced(self.heads.normalization, self.data)

    @staticmethod
    def of_matrices(
        count: int,
        query: Any,
        key: Any,
        value: Any,
        output: Any,
        query_bias: Any = 0.0,
        key_bias: Any = 0.0,
        value_bias: Any = None,
        bias: Any = None,
        scale: Any = 1.0,
        positional: AbstractKernel | None = None,
        data: Measure | None = None,
        summation: AbstractSummation | None = None,
    ) -> "MultiHead":
        """Heads as networks store them: `count` groups of k rows of Q, K and V, and of k columns of O; β = scale/√k.

        Parameters: matrices `query`, `key`, `value` (count·k, d) and `output` (d, count·k), with their biases.
        """
        width = query.shape[0]
        if count < 1 or width % count:
            raise ShapeError(f"Argument `count` must divide the {width} rows of `query` into heads, but is {count}.")
        beta = scale * (width // count) ** -0.5

        def grouped(array: Any) -> Any:
            """The rows of every head."""
            known = None if array is None else as_float_array(array, "matrix")
            return known if known is None or known.ndim == 0 else known.reshape(count, -1, *known.shape[1:])

        def head(rows: tuple[Any, ...]) -> Attend:
            query, key, value, query_bias, key_bias, value_bias, columns = rows
            kernel = AffineAttention(beta, query, key, query_bias, key_bias)
            return Attend(kernel, value, "row", positional, columns.T, summation, value_bias=value_bias)

        # Columns of O are rows of its transpose, so that all arrays are cut alike.
        rows = (query, key, value, query_bias, key_bias, value_bias, output.T)
        split = tuple(_repeated(grouped(array), count) for array in rows)
        heads = [head(jax.tree_util.tree_map(lambda leaf, place=place: leaf[place], split)) for place in range(count)]
        return MultiHead(heads, bias, data)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """Σ_h O_h (V_h m_h(x) + b_h) + c."""
        seen = self.data or measure
        read = eqx.filter_vmap(lambda head: head.read(time, queries, seen))(self.heads)
        # One contraction over heads and their dimensions together: a product of n × hk and hk × d matrices.
        if self.heads.output.ndim == 3:
            velocity = jnp.einsum("hmk,hdk->md", read, self.heads.output)
        else:
            mapped = jax.vmap(lambda output, rows: apply_linear_map(output, rows, "output"))(self.heads.output, read)
            velocity = jnp.sum(mapped, axis=0)
        return velocity if self.bias is None else plus(velocity, self.bias, "bias")

    @property
    def each(self) -> tuple[Attend, ...]:
        """The heads, one by one."""
        count = self.heads.output.shape[0]
        return tuple(jax.tree_util.tree_map(lambda leaf, h=head: leaf[h], self.heads) for head in range(count))

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """One a head, each with its own kernel, value and output."""
        return tuple(one._replace(data=self.data) for head in self.each for one in head.interactions(time))

    def interacts_only(self, time: Any) -> bool:
        """Whether its heads do nothing else, and no bias is added."""
        return self.bias is None and self.heads.interacts_only(time)

    def resummed(self, time: Any, choose: Chooser) -> "MultiHead":
        """With another summation, where the same one is chosen for all heads; else as it is."""
        chosen = [choose(each) for each in self.interactions(time)]
        alike = all(each == chosen[0] for each in chosen)
        return eqx.tree_at(lambda drift: drift.heads.summation, self, chosen[0]) if alike else self

    def affine(self, time: Any, law: Normal) -> Affine:
        """The sum of the heads' fields; refused with biases, as for one attend."""
        if not self.interacts_only(time) or self.data is not None:
            raise ArgumentError("A Gaussian is not moved by heads with biases, or that look at data. Use particles.")
        return added(head.affine(time, law) for head in self.each)


def _repeated(array: Any, count: int) -> Any:
    """A number, which all heads share, once for every head."""
    return jnp.broadcast_to(array, (count,)) if array is not None and array.ndim == 0 else array
