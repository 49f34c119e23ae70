"""Under a causal mask nothing that comes later changes a bit: a law of exact sums, heads, blends and networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts
from particleflow import kernels as k
from particleflow.summation import Auto, Blockwise, Dense, Native
from particleflow.transformer import Architecture, random_encoder_decoder, random_transformer
from shares import by_default

COUNT = 150  # more than a block of native code, of features, and of a vector's lanes
_RNG = np.random.default_rng(17)
# Exact sums promise it; those that approximate, or draw batches, look at all points before they sum, and do not.
SUMMATIONS = {
    "auto": Auto(),
    "native": Native(),
    "single": Native(widen=False),
    "dense": Dense(),
    "blocks": Blockwise(64, 32),
    "auto in blocks": Auto(dense_bytes=8),
}
MASKS = {
    "causal": k.Causal(),
    "strictly causal": k.StrictlyCausal(),
    "window": k.Causal() * k.Window(9.5),
    "slope": k.Causal() * k.Alibi(0.3),
}
# Scores of a few units, which single precision holds; of tens, which it does not; and beyond what double does.
SIZES = {"small": 0.3, "both": 1.0, "wide": 9.0, "huge": 1e3}
KERNELS = {
    "attention": k.Attention(1.0, query=_RNG.normal(size=(3, 3))),
    "gaussian": k.Gaussian(0.7),
    "laplace": k.Laplace(0.7),
    "tilted": k.SquaredDistanceAttention(0.5, key=0.8),
    "unknown to native code": k.Sigmoid(1.0),
    "relative positions": k.RelativeAttention(1.0, position_key=_RNG.normal(size=(3, 4)), position_bias=0.4),
    "linearised": k.LinearisedAttention("elu"),
}


def rows_of(seed, size=1.0, columns=3):
    return size * np.random.default_rng(seed).normal(size=(COUNT, columns))


def changed_later(points, values, place, amount):
    """The same up to a place, and from there on something else, `amount` times as large."""
    later = np.arange(COUNT)[:, None] >= place
    return np.where(later, amount * points[::-1] + 1.0, points), np.where(later, -3.0 * values, values)


def assert_past_stays(read, points, values, positions, dtype, places):
    """`read(points, values)` of tokens in the order of their positions; the same bits before each place."""
    order = np.argsort(positions, kind="stable")
    inverse = np.argsort(order)

    def bits(rows, carried):
        found = jax.tree.leaves(read(jnp.asarray(rows[inverse], dtype), jnp.asarray(carried[inverse], dtype)))
        return [np.asarray(leaf)[order] for leaf in found]

    before = bits(points, values)
    assert all(np.isfinite(leaf).any() for leaf in before)
    for place in places:
        for amount in (1.0, 100.0):
            after = bits(*changed_later(points, values, place, amount))
            for old, new in zip(before, after, strict=True):
                np.testing.assert_array_equal(new[:place], old[:place])
            # One token at the end may have no share in the means that see it; a hundred have.
            assert place > COUNT // 2 or (after[-1][place:] != before[-1][place:]).any()


CASES = [
    *((how, mask, kernel, "both", "float32") for how in SUMMATIONS for mask in MASKS for kernel in KERNELS),
    *(
        (how, "causal", kernel, size, dtype)
        for how in ("native", "single")
        for kernel in KERNELS
        for size in SIZES
        for dtype in ("float32", "float64")
    ),
]
DEFAULT = [
    *((how, "causal", "attention", "both", "float32") for how in ("native", "blocks")),
    *(("native", "causal", "attention", "small", dtype) for dtype in ("float32", "float64")),
    ("native", "slope", "tilted", "both", "float32"),
    ("native", "causal", "gaussian", "small", "float32"),
    ("native", "causal", "laplace", "wide", "float64"),
    ("single", "causal", "attention", "wide", "float32"),
    ("auto", "strictly causal", "linearised", "both", "float32"),
]


@pytest.mark.parametrize("case", by_default(dict.fromkeys(CASES), DEFAULT), ids=" ".join)
def test_exact_sums_do_not_know_the_future(case):
    """Log-masses and means; positions in no order, weights of any size."""
    how, mask, kernel, size, dtype = case
    positions = np.random.default_rng(3).permutation(COUNT).astype(float)
    weights = jnp.asarray(np.random.default_rng(4).normal(size=COUNT), dtype)
    product = jax.tree.map(lambda leaf: leaf.astype(dtype), KERNELS[kernel] * MASKS[mask])

    @jax.jit
    def read(points, values):
        measure = pf.Measure(points, weights, values, jnp.asarray(positions, dtype))
        return SUMMATIONS[how].moments(product, measure, measure.sites)

    assert_past_stays(read, rows_of(1, SIZES[size]), rows_of(2), positions, dtype, (1, 40, 121, 149))


def heads(rows: np.ndarray, size: float = 1.0) -> drifts.MultiHead:
    """Two heads of two dimensions with biases."""
    matrices, biases = size * rows.reshape(4, 4, 4), rows[:16].reshape(4, 4)
    return drifts.MultiHead.of_matrices(2, *matrices, *biases, positional=k.Causal())


MATRICES = _RNG.normal(size=64)
DRIFTS = {
    "heads": heads(MATRICES),
    "heads of wide scores": heads(MATRICES, 3.0),
    "unnormalised": pf.Attend(k.Attention(0.3), normalization="none", positional=k.Causal()),
    "near and far": drifts.near_and_far(5.0, positional=k.Causal()),
    "hardmax": drifts.Hardmax(positional=k.Causal()),
}


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", by_default(DRIFTS, ["heads of wide scores", "near and far"]))
def test_drifts_do_not_know_the_future(name, dtype):
    drift = jax.tree.map(lambda leaf: leaf.astype(dtype), DRIFTS[name])
    positions = np.arange(float(COUNT))

    @jax.jit
    def read(points, values):
        measure = pf.Measure.uniform(points, positions=jnp.asarray(positions, dtype))
        return drift(0.0, measure.sites, measure)

    assert_past_stays(read, rows_of(5, columns=4), rows_of(6), positions, dtype, (1, 64, 149))


def assert_words_stay(states, ids, vocabulary, places):
    before = states(ids)
    for place in places:
        changed = [*ids[:place], *((each + 7) % vocabulary for each in ids[place:])]
        after = states(changed)
        np.testing.assert_array_equal(after[:, :place], before[:, :place])
        assert (after[1:, place] != before[1:, place]).any()


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("spread", [0.3, None])
def test_networks_do_not_know_the_future(placement, spread):
    """Every depth of a decoder on its default sums, in the precision that networks are trained in."""
    shape = Architecture(16, 3, 4, None, 40, placement=placement, causal=True, spread=spread)
    network = jax.tree.map(lambda leaf: leaf.astype(np.float32), random_transformer(jax.random.key(3), shape))
    ids = np.random.default_rng(0).integers(0, 40, COUNT).tolist()
    assert network.hidden_states(ids)[-1].dtype == np.float32
    assert_words_stay(lambda ids: np.stack(network.hidden_states(ids)), ids, 40, (1, 77, 149))


@pytest.mark.slow
def test_a_decoder_that_reads_another_text_does_not_know_its_own_future():
    shape = Architecture(16, 2, 2, None, 40, placement="post")
    both = random_encoder_decoder(jax.random.key(5), shape, shape)
    source, target = np.random.default_rng(1).integers(0, 40, (2, 70)).tolist()
    assert_words_stay(lambda ids: np.stack(both.hidden_states(source, ids)), target, 40, (1, 33, 69))
