"""The law by which a gap closes: planted laws are found where they hold, and none where none explains it."""

import numpy as np
import pytest

from particleflow.analysis.late_approach import late_law, late_stretch, law_values

TIMES = np.geomspace(0.01, 40, 200)


@pytest.mark.parametrize(
    ("gap", "law", "rate"), [(np.exp(-0.5 * TIMES), "exponential", -0.5), (np.minimum(1.0, TIMES**-2.0), "power", -2.0)]
)
def test_planted_laws_are_found(gap, law, rate):
    fit = late_law(TIMES, gap)
    assert fit is not None
    assert fit.law == law
    assert fit.rate == pytest.approx(rate, rel=1e-6)
    late = late_stretch(gap)
    assert late is not None
    assert gap[late].max() <= 0.1 * gap[0]
    np.testing.assert_allclose(law_values(fit, TIMES[late]), gap[late], rtol=1e-6)


def test_no_law_where_none_explains_the_gap_or_it_stays_open():
    assert late_law(TIMES, np.exp(-4 * np.sqrt(TIMES))) is None
    assert late_law(TIMES, np.full(200, 0.5)) is None
    assert late_stretch(np.full(200, np.nan)) is None
    assert late_stretch(np.geomspace(1, 1e-3, 10)) is None  # seven frames at most
