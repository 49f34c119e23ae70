"""The command fixed-points: the point at which a run's flow vanishes, near one of its frames, and its stability.

The search itself is in `theory.equilibria`. This module chooses the frame and the particles that count as one cluster,
builds the flow of the run's scenario, and draws the picture.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from particleflow._support.text import printable
from particleflow.app.cli.console import note, result, result_json
from particleflow.app.cli.options import AllowCode, Flag, Quiet, Run, Threshold
from particleflow.app.cli.sweep_members import ready
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario
    from particleflow.theory.equilibria import FixedPoint
    from particleflow.trajectory.trajectory import Trajectory

PICTURE = "fixed_point"


def fixed_points(
    run: Run,
    /,
    *,
    frame: int | None = None,
    time: float | None = None,
    merge: bool = True,
    threshold: Threshold = None,
    tolerance: float | None = None,
    plot: Flag = False,
    format: Literal["png", "svg", "pdf"] = "png",
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Find the fixed point nearest to a frame of a run, with its eigenvalues and kind.

    The flow is that of the run's scenario at the time of the frame; for explicit layers, the fixed points of one layer
    are found. The particles of a cluster count as one, unless they differ in more than their places.

    Parameters
    ----------
    frame
        The number of the frame; negative ones count from the end. The last one if left out.
    time
        The time of the frame: the nearest saved one.
    merge
        Let the particles of a cluster, at the run's threshold, count as one.
    tolerance
        The growth rate below which a direction is neutral.
    plot
        Draw particles and eigenvalues into figures/fixed_point.png of the run folder.
    format
        The format of the picture.
    json
        Print the fixed point as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs import run_folder
    from particleflow.app.scenario import scenario as scenarios

    run = ready(run, quiet=quiet)
    folder = run_folder.folder_of(run)
    if not (folder / run_folder.SCENARIO_FILE).is_file():
        raise UserError(
            f"{folder} has no {run_folder.SCENARIO_FILE}, so its flow is not known; in Python, "
            "`particleflow.fixed_points(flow, points)` takes any."
        )
    with run_folder.open_run(run) as trajectory:
        chosen = chosen_frame(trajectory, frame, time)
        note(f"searching near frame {chosen}, t = {trajectory.times[chosen]:.6g}", quiet=quiet)
        prepare()
        loaded = scenarios.load(run_folder.scenario_file(folder), allow_code=allow_code)
        distance = _distance(folder, trajectory, threshold) if merge else None
        point = _search(loaded, trajectory, chosen, distance, tolerance, quiet=quiet)
        path = _draw(folder, trajectory, point, format) if plot else None
    if json:
        result_json({"frame": chosen, **point.to_dict(), "path": None if path is None else str(path)})
        return 0
    result(printable(str(point)))
    if path is not None:
        result(str(path))
    return 0


def chosen_frame(trajectory: "Trajectory", frame: int | None, time: float | None) -> int:
    """The number of the wanted frame, counted from the first.

    Parameters: `frame`, its number, negative from the end; `time`, whose nearest saved frame is meant; the last frame
    if both are None. Both at once are refused.
    """
    import numpy as np

    if trajectory.runs is not None or trajectory.particles is not None:
        held = "an ensemble of runs" if trajectory.runs is not None else "only some of the particles"
        raise UserError(f"{trajectory.path} holds {held}, for which no fixed point can be found.")
    if frame is not None and time is not None:
        raise UserError("Give --frame or --time, not both.")
    if time is not None:
        return int(np.flatnonzero(trajectory.times == trajectory.at(time).time)[0])
    wanted = -1 if frame is None else frame
    if not -len(trajectory) <= wanted < len(trajectory):
        raise UserError(f"There is no frame {wanted}: the run has {len(trajectory)} frames.")
    return wanted % len(trajectory)


def _distance(folder: Path, trajectory: "Trajectory", threshold: float | str | None) -> float:
    """The distance up to which particles are one cluster, as all analyses of the run use it."""
    from particleflow.analysis import choose_threshold
    from particleflow.app.runs.folder_contents import threshold_for

    return choose_threshold(trajectory, threshold_for(folder, threshold)).value  # type: ignore[arg-type]


def _search(
    loaded: "Scenario", trajectory: "Trajectory", frame: int, distance: float | None, tolerance: float | None, *,
    quiet: bool,
) -> "FixedPoint":  # fmt: skip
    """The fixed point near a frame of a run.

    Parameters: the scenario that was `loaded`; `frame`, the number of the frame of the `trajectory`; `distance`, up to
    which particles count as one, None for all by themselves, which is also done, with a note, where the discretization
    refuses to merge them; `tolerance`, the growth rate below which a direction is neutral.
    """
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.errors import ArgumentError
    from particleflow.theory.equilibria import fixed_points as search

    cloud = {"kind": "from_file", "path": str(Path(str(trajectory.path)).resolve()), "frame": frame}
    document = loaded.with_values({"initial": cloud}).document
    flow = scenarios.make_flow(document)
    start = scenarios.make_start(document, flow).measure
    drawing = scenarios.Drawing(document)
    how = None if document.discretization is None else document.discretization.build(drawing)
    options: dict[str, Any] = {
        "discretization": how,
        "time": float(trajectory.times[frame]),
        "layer": document.time.step if document.time.solver == "map" else None,
        "tolerance": tolerance,
    }
    if distance is not None:
        from particleflow.discretization import Particles
        from particleflow.discretization.discretization_capabilities import merge_points

        try:
            merge_points(how or Particles(), flow, start, distance)
        except ArgumentError as error:
            note(f"Every particle by itself: {error}", quiet=quiet)
            distance = None
    return search(flow, start, merge=distance, **options)[0]


def _draw(folder: Path, trajectory: "Trajectory", point: "FixedPoint", format: str) -> Path:
    """Draw a fixed point with its eigenvalues into the figures of its run, and return the path of the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from particleflow import view
    from particleflow._support.files import own_folder
    from particleflow.trajectory.trajectory import Trajectory
    from particleflow.view.plots.saving import save_figure

    if point.nature is None:
        raise UserError("There are no eigenvalues to draw: " + str(point).splitlines()[0].lower() + ".")
    still = Trajectory.from_arrays(
        [point.time], point.points[None], log_weights=trajectory.log_weights, words=trajectory.words,
        metadata=trajectory.metadata,
    )  # fmt: skip
    title = f"{trajectory.metadata.get('title') or 'Fixed point'}: {point.nature}"
    with view.style.use("light"):
        figure = view.fixed_point(
            still, point.eigenvalues, point.multiplicities, layers=point.layer is not None,
            tolerance=point.nature.tolerance, title=title,
        )  # fmt: skip
        return save_figure(figure, own_folder(folder / "figures") / f"{PICTURE}.{format}")
