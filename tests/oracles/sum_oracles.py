"""Sums over pairs in float64 NumPy, and what tests say of them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from particleflow.errors import UserError

NOTHING = -math.inf


def moments(logits: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Σ_j e^{logit_ij} and Σ_j e^{logit_ij} z_j / Σ_j e^{logit_ij}; (−∞, 0) for a row without mass."""
    log_mass, means = [], []
    for row in np.asarray(logits, np.float64):
        highest = row.max()
        if highest == NOTHING:
            log_mass.append(NOTHING)
            means.append(np.zeros(values.shape[1:]))
            continue
        weights = np.exp(row - highest)
        log_mass.append(highest + math.log(math.fsum(weights)))
        means.append(np.tensordot(weights, np.asarray(values, np.float64), axes=1) / math.fsum(weights))
    return np.array(log_mass), np.array(means)


def covariance(logits: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Σ_j p_ij (z_j − m_i)(z_j − m_i)ᵀ with p the normalised weights; 0 for a row without mass."""
    log_mass, means = moments(logits, values)
    shares = np.exp(logits - np.where(log_mass == NOTHING, 0.0, log_mass)[:, None])
    centred = np.asarray(values, np.float64)[None] - means[:, None]
    return np.einsum("ij,ijk,ijl->ikl", shares, centred, centred)


def assert_refused(act: Callable[[], Any], error: type[UserError], pieces: list[str]) -> None:
    """`act` raises exactly this error, in one sentence that holds all these pieces of text."""
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    message = str(caught.value)
    assert all(piece in message for piece in pieces), message
    assert message.endswith("."), message


def assert_close(found: Any, log_mass, mean, tolerance: float) -> None:
    """Equal log-masses (−∞ included) and means, to a tolerance relative to the larger of the number and one."""
    log_mass, mean = np.asarray(log_mass, np.float64), np.asarray(mean, np.float64)
    assert found.log_mass.shape == log_mass.shape
    assert found.mean.shape == mean.shape
    np.testing.assert_allclose(found.log_mass, log_mass, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.mean, mean, rtol=tolerance, atol=tolerance * max(1.0, np.abs(mean).max()))
