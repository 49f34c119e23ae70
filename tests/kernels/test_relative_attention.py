"""Attention with relative positions: laws of the lag, and the scores of torch's XLNet, which are Transformer-XL's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import ShapeError
from particleflow.measure import Measure, Sites
from particleflow.summation import Auto

COUNT, WIDTH, HEAD = 9, 6, 4
RNG = np.random.default_rng(5)
POINTS = RNG.normal(size=(COUNT, WIDTH))
QUERY, KEY, LAG_KEY = RNG.normal(size=(3, HEAD, WIDTH))
CONTENT_BIAS, LAG_BIAS = RNG.normal(size=(2, HEAD))
KERNEL = k.RelativeAttention(HEAD**-0.5, QUERY, KEY, LAG_KEY, CONTENT_BIAS, LAG_BIAS)


def sites(first: float) -> Sites:
    """The tokens at consecutive positions from one on."""
    return Sites(jnp.asarray(POINTS), first + jnp.arange(float(COUNT)))


def test_only_lags_count():
    """Angles up to 1e4 are rounded by 1e-12 in double precision."""
    matrix = jax.jit(lambda tokens: KERNEL.log_matrix(tokens, tokens))
    near, far = (np.asarray(matrix(sites(first))) for first in (0.0, 1e4))
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_without_lags_it_is_attention_with_biases():
    plain = k.AffineAttention(HEAD**-0.5, QUERY, KEY, CONTENT_BIAS)
    without = k.RelativeAttention(HEAD**-0.5, QUERY, KEY, np.zeros((HEAD, WIDTH)), CONTENT_BIAS, LAG_BIAS)
    np.testing.assert_allclose(
        without.log_matrix(sites(3.0), sites(3.0)), plain.log_matrix(POINTS, POINTS), rtol=0, atol=1e-13
    )


@pytest.mark.slow
@pytest.mark.parametrize("lag_key", [1.5, np.array([0.3, -1.0, 2.0, 0.6])], ids=["number", "diagonal"])
def test_lag_keys_by_a_number_or_a_diagonal(lag_key):
    """Then the encoding has as many coordinates as a query."""
    kernel = k.RelativeAttention(0.7, QUERY, KEY, lag_key)
    matrix = k.RelativeAttention(0.7, QUERY, KEY, lag_key * np.eye(HEAD))
    found, expected = (np.asarray(each.log_matrix(sites(0.0), sites(0.0))) for each in (kernel, matrix))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    with pytest.raises(ShapeError, match="even number"):
        k.RelativeAttention(0.7, QUERY[:3], KEY[:3]).log_matrix(sites(0.0), sites(0.0))


@pytest.mark.slow
def test_causal_sums_are_native_and_of_attention():
    """The score is an inner product of longer vectors, so a mask and native code serve it as they serve attention."""
    measure = Measure.uniform(POINTS, positions=np.arange(float(COUNT)))
    choice = Auto().select(KERNEL * k.Causal(), measure, measure.sites)
    assert type(choice.summation).__name__ == "Native"


@pytest.mark.slow
def test_scores_are_those_of_xlnet():
    """XLNet took them over: torch in float64, with the relative shift of the whole table of lags; weights to 1e-13."""
    torch = pytest.importorskip("torch")
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    transformers = pytest.importorskip("transformers")

    config = transformers.XLNetConfig(
        vocab_size=5, d_model=WIDTH, n_layer=1, n_head=1, d_inner=4, dropout=0.0, pad_token_id=0
    )
    config.d_head = HEAD
    attention = xlnet.XLNetRelativeAttention(config).double()
    attention.scale = HEAD**-0.5
    rates = 10000.0 ** -(torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    lags = torch.arange(COUNT, -COUNT, -1, dtype=torch.float64)  # as the model has them, but in double precision
    waves = xlnet.XLNetModel.positional_embedding(lags, rates)[:, 0]
    in_turn = [column for wave in range(WIDTH // 2) for column in (wave, wave + WIDTH // 2)]
    tokens = torch.tensor(POINTS)

    def head(rows, matrix):
        return (rows @ torch.tensor(matrix).T)[:, None, None, :]

    with torch.no_grad():
        attention.r_w_bias[:] = torch.tensor(CONTENT_BIAS)
        attention.r_r_bias[:] = torch.tensor(LAG_BIAS)
        heads = head(tokens, QUERY), head(tokens, KEY), head(tokens, KEY), head(waves[:, in_turn], LAG_KEY)
        hidden = torch.triu(torch.ones(COUNT, COUNT, dtype=torch.float64), 1)[:, :, None, None]
        shares = attention.rel_attn_core(*heads, attn_mask=hidden, output_attentions=True)[1][:, :, 0, 0].numpy()
    measure = Measure.uniform(POINTS, positions=np.arange(float(COUNT)))
    found = np.asarray(pf.attention_weights(KERNEL * k.Causal(), measure, measure.sites))
    print(np.abs(found - shares).max())
    np.testing.assert_allclose(found, shares, rtol=0, atol=1e-13)
