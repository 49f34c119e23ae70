"""The rate of Gaussian tokens under several heads, against how far one step stretches them."""

import numpy as np
import pytest

import particleflow as pf
from particleflow.analysis.covariance import principal_variances
from particleflow.analysis.gaussian_tokens import gaussian_rate
from particleflow.analysis.reading import first_run
from shares import by_default

RATED = [
    (many, dtype, rate) for many in ("one", "flows") for dtype in (np.float32, np.float64) for rate in (0.45, 0.15)
]


@pytest.mark.slow
@pytest.mark.parametrize("case", by_default(RATED, [("flows", np.float32, 0.15)]))
def test_the_rate_of_gaussians_is_that_of_all_heads_together(case):
    """Also of weighted tokens, of multiples, and in an ensemble; one step of size h stretches them by 1 + h r s."""
    many, dtype, rate = case
    points = np.linspace(-6, 6, 301, dtype=dtype)[:, None]
    start = pf.Measure(points, -0.5 * np.square(points[:, 0]))
    head = pf.Attend(pf.kernels.Attention(beta=dtype(0.1), query=dtype(0.5)), value=dtype(3.0))
    other = pf.Attend(pf.kernels.Attention(beta=dtype(0.3)))
    drift = head + 2.0 * head if rate == 0.45 else other + -1.0 * head
    flow = [pf.Flow(1.0 * drift), pf.Flow(2.0 * drift)] if many == "flows" else pf.Flow(drift)
    run = first_run(pf.simulate(flow, start, [0.0, 0.1], step=0.1, solver="map"))
    assert gaussian_rate(run) == pytest.approx(rate, rel=1e-6)
    stretched = np.sqrt(principal_variances(run, np.arange(2))[:, 0])
    assert stretched[1] / stretched[0] == pytest.approx(1 + 0.1 * rate, rel=1e-5)
