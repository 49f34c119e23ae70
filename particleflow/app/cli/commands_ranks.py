"""The command ranks: how few terms the attention of a run needs, and of what rank it is beside a band.

The numbers are `analysis.attention_ranks`; pictures are drawn on request: the ranks, those of distant blocks of
1/|x − y|, and the run's kernel by random features.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from particleflow.app.cli.commands_fixed_points import chosen_frame
from particleflow.app.cli.console import result, result_json
from particleflow.app.cli.options import Flag, Quiet, Run
from particleflow.app.cli.sweep_members import ready
from particleflow.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from particleflow.analysis import AttentionRanks
    from particleflow.trajectory.facts import StoredInteraction
    from particleflow.trajectory.trajectory import Trajectory

_FEATURES = (16, 32, 64, 128, 256, 512, 1024, 2048)
_MOST_FEATURED = 512  # particles of a matrix by features


def ranks(
    run: Run,
    /,
    *,
    frame: int | None = None,
    time: float | None = None,
    plot: Flag = False,
    blocks: Flag = False,
    features: Flag = False,
    format: Literal["png", "svg", "pdf"] = "png",
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Print what few terms leave of a run's attention matrix, and the rank of what is beside a band about its diagonal.

    The share that the best approximation of each rank leaves is of the Frobenius norm; ranks count the singular values
    above a tolerance times the largest. Particles are ordered by cluster, or by place in the sequence.

    Parameters
    ----------
    frame
        The number of the frame; negative ones count from the end. The last one if left out.
    time
        The time of the frame: the nearest saved one.
    plot
        Draw the ranks into figures/ranks.png of the run folder.
    blocks
        Draw the singular values of blocks of 1/|x - y| at growing distances into figures/block_ranks.png.
    features
        Draw the kernel of the run by growing numbers of random Fourier features into figures/features.png.
    format
        The format of the pictures.
    json
        Print the ranks as JSON.
    """
    import numpy as np

    from particleflow.analysis import attention_ranks
    from particleflow.app.runs import run_folder
    from particleflow.view.plots.matrices.pair_matrices import acting_attention
    from particleflow.view.plots.matrices.rank_plots import MAX_RANKED

    run = ready(run, quiet=quiet)
    folder = run_folder.folder_of(run)
    with run_folder.open_run(run) as trajectory:
        chosen = chosen_frame(trajectory, frame, time)
        if trajectory.count > MAX_RANKED:
            raise UserError(f"Ranks are found of at most {MAX_RANKED} particles, but the run has {trajectory.count}.")
        acting, weights, order, name = acting_attention(trajectory, chosen)
        found = attention_ranks(weights[np.ix_(order, order)])
        paths = _pictures(folder, trajectory, chosen, acting, format, (plot, blocks, features))
        header = f"attention of {trajectory.count} particles at t = {trajectory.times[chosen]:.6g}, {name}"
    if json:
        result_json({"frame": chosen, **found.to_dict(), "paths": [str(path) for path in paths]})
        return 0
    result("\n".join([header, *_lines(found)]))
    for path in paths:
        result(str(path))
    return 0


def _lines(found: "AttentionRanks") -> list[str]:
    """Both tables."""
    shown = [rank for rank in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if rank < len(found.left)]
    heads = "".join(f"{f'ε = {tolerance:g}':>12}" for tolerance in found.tolerances)
    lines = ["", f"{'rank':>10}{'left of it':>14}", *(f"{rank:>10}{found.left[rank]:>14.3g}" for rank in shown)]
    lines += ["", f"{'band':>10}{heads}    numerical rank beside the band |i - j| ≤ k"]
    for width, row in zip(found.widths, found.ranks, strict=True):
        lines.append(f"{'none' if width < 0 else width:>10}" + "".join(f"{rank:>12}" for rank in row))
    return lines


def _pictures(
    folder: Path,
    trajectory: "Trajectory",
    frame: int,
    acting: "StoredInteraction",
    format: str,
    wanted: tuple[bool, bool, bool],
) -> list[Path]:
    """Draw the chosen pictures into the figures of the run folder; returns their paths."""
    if not any(wanted):
        return []
    import matplotlib as mpl
    import numpy as np

    mpl.use("Agg")
    from particleflow import view
    from particleflow._support.files import own_folder
    from particleflow.analysis import block_ranks
    from particleflow.view.plots.saving import save_figure

    draws = {
        "ranks": lambda: view.attention_ranks(trajectory, frame),
        "block_ranks": lambda: view.block_ranks(block_ranks()),
        "features": lambda: view.feature_convergence(*_by_features(trajectory, frame, acting)),
    }
    paths = []
    with view.style.use("light"):
        for name, draw in (pair for pair, asked in zip(draws.items(), wanted, strict=True) if asked):
            figure = np.ravel(draw())[0].figure
            paths.append(save_figure(figure, own_folder(folder / "figures") / f"{name}.{format}"))
    return paths


def _by_features(
    trajectory: "Trajectory", frame: int, acting: "StoredInteraction"
) -> "tuple[np.ndarray, dict[int, np.ndarray]]":
    """The kernel e^{β⟨x, y⟩ − β|x|²/2 − β|y|²/2} of a frame, particles by cluster, and its sums by random features."""
    import numpy as np

    plain = all(
        each is None or (np.all(np.asarray(each) == 1) and np.ndim(each) == 0) for each in (acting.query, acting.key)
    )
    if not plain or not acting.beta:
        raise UserError("Random features are drawn of attention without matrices Q and K, and with β above 0.")
    from particleflow.app.cli.device import prepare

    prepare()
    import jax.numpy as jnp

    from particleflow.analysis.samples import stored_points, thinned
    from particleflow.kernels.stationary import Gaussian
    from particleflow.measure import Measure
    from particleflow.summation.features import Features
    from particleflow.view.plots.matrices.pair_matrices import particle_order

    order = particle_order(trajectory, frame)[0]
    points = jnp.asarray(stored_points(trajectory, frame)[order[thinned(len(order), _MOST_FEATURED)]], float)
    kernel = Gaussian(acting.beta**-0.5)
    measure = Measure(points, jnp.zeros(len(points)))
    matrices: dict[int, Any] = {}
    for rank in _FEATURES:
        moments = Features(rank, "fourier").moments(kernel, measure, points, jnp.eye(len(points)))
        matrices[rank] = np.exp(np.asarray(moments.log_mass))[:, None] * np.asarray(moments.mean)
    return np.exp(np.asarray(kernel.log_matrix(points, points))), matrices
