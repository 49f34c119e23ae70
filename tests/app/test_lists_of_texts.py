"""Lists of texts in scenarios: what is switched off in a network, as it is written; what is no list is refused."""

import pytest

from particleflow.app.scenario.scenario import load
from particleflow.errors import UserError

TEXT = """
initial = { kind = "gaussian", dim = 4, count = 3 }
geometry = { kind = "residual_stream", space = { kind = "layer_norm", epsilon = 1e-5 } }
[[drift]]
kind = "random_layers"
width = 4
depth = 2
heads = 2
causal = true
without = %s
[time]
end = 2.0
frames = 3
step = 1.0
solver = "map"
"""


def drift_without(tmp_path, names):
    (tmp_path / "network.toml").write_text(TEXT % names)
    return load(tmp_path / "network.toml").document.drifts[0].made


@pytest.mark.slow
def test_a_list_of_texts_reaches_the_drift(tmp_path):
    assert all(
        head.positional is None for head in drift_without(tmp_path, '["causal_mask", "heads.1"]').interactions(0.0)
    )
    assert all(head.positional is not None for head in drift_without(tmp_path, "[]").interactions(0.0))


@pytest.mark.parametrize(
    ("names", "words"),
    [("[3]", "must be a text"), ('"heads.1"', "must be a list"), ('["heads.5"]', "heads in a layer")],
)
def test_what_is_no_list_of_names_is_refused(tmp_path, names, words):
    with pytest.raises(UserError, match=words):
        drift_without(tmp_path, names)
