"""The driver of runs from scenarios: a planned run and its folder in, the stored trajectory and its products out.

The command line (`run`, `resume`, `replay`), `particleflow.run` and runs of a sweep with folders of their own all use
it:

    planned = PlannedRun(scenario)          # builds the scenario, its plan and its cost, each once
    with new_run_folder(planned) as folder:
        trajectory, outcome = run(planned, folder)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support.user_code import blamed
from particleflow.app.runs.folder_contents import TRAJECTORY_FILE
from particleflow.app.runs.run_folder import discard_if_empty, freeze, new_folder
from particleflow.app.runs.run_outputs import Outcome, make_products
from particleflow.errors import ParticleflowError, RunError
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario, Setup
    from particleflow.simulation.plan import Cost
    from particleflow.simulation.window_loop import Frames
    from particleflow.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class PlannedRun:
    """A scenario to run; `resumed`: continue from the files in its folder; `products`: make them at the end."""

    scenario: "Scenario"
    resumed: bool = False
    products: bool = True

    @cached_property
    def setup(self) -> "Setup":
        """The scenario built, with its plan and its cost; made once, at the first use."""
        return self.scenario.build()


def _silent(*_: Any) -> None:
    """Do nothing, whatever the arguments."""


@dataclass(frozen=True)
class Listener:
    """The functions that a run calls to report its progress; by default they do nothing.

    Parameters: `cost` is called with the cost before a run begins; `windows` with every window (true for a bar on the
    terminal); `products(name, done, total)` while a product is made.
    """

    cost: "Callable[[Cost], None]" = _silent
    windows: "bool | Callable[[Frames], None] | None" = None
    products: Callable[[str, int, int], None] = _silent


@contextmanager
def new_run_folder(planned: PlannedRun, output: str | Path | None = None) -> Iterator[Path]:
    """Make the folder of a new run, and remove it if the block ends before there is a trajectory.

    Parameters: `output`, the folder itself; the next number in outputs/SCENARIO if left out. Nothing is made on disk
    before the scenario is known to be right.
    """
    _ = planned.setup
    folder = new_folder(planned.scenario.stem, output)
    try:
        yield folder
    finally:
        discard_if_empty(folder)


def run(planned: PlannedRun, folder: Path, listener: Listener | None = None) -> tuple["Trajectory", Outcome]:
    """Run a scenario in its folder and make its products; returns the open trajectory and what was made.

    A run that has ended is not computed again; only its missing products are made.
    """
    say = listener or Listener()
    trajectory = (_ended(folder) if planned.resumed else None) or _recorded(planned, folder, say)
    outcome = Outcome(folder, trajectory.status, trajectory.metadata.get("message"), len(trajectory))
    if planned.products and outcome.status != Status.INTERRUPTED:
        wanted = planned.scenario.document.output.model_dump()
        try:
            make_products(folder, trajectory, wanted, outcome, say.products)
        except BaseException as error:
            trajectory.close()
            if isinstance(error, KeyboardInterrupt):
                hint = f"The run is {outcome.status}; `particleflow resume {folder}` makes the products it lacks."
                raise KeyboardInterrupt(hint) from None
            raise
    return trajectory, outcome


def has_ended(folder: Path) -> bool:
    """Whether the run in a folder has come to its end, so that only products may be missing."""
    trajectory = _ended(folder)
    if trajectory is not None:
        trajectory.close()
    return trajectory is not None


def _ended(folder: Path) -> "Trajectory | None":
    """The trajectory in a folder if its run is finished or was stopped by its event, else None."""
    from particleflow.trajectory.trajectory import Trajectory

    if not (folder / TRAJECTORY_FILE).exists():
        return None
    trajectory = Trajectory.open(folder / TRAJECTORY_FILE)
    if trajectory.status in (Status.FINISHED, Status.STOPPED):
        return trajectory
    trajectory.close()
    return None


def _recorded(planned: PlannedRun, folder: Path, say: Listener) -> "Trajectory":
    """Record the plan into the folder, from its start or from its last checkpoint, with the scenario beside it."""
    from particleflow.app.runs.transition_theory import transition_of
    from particleflow.simulation.recording.recording import Recording
    from particleflow.simulation.simulate import record

    scenario, setup, path = planned.scenario, planned.setup, folder / TRAJECTORY_FILE
    begun = planned.resumed and path.exists()  # a run that Slurm starts is frozen before it is begun
    text = scenario.text if planned.resumed else freeze(scenario, folder, setup.drawing)
    provenance = {
        "name": scenario.name,
        "scenario": text,
        **setup.facts,
        **({} if begun else transition_of(setup.plan)),
        "chosen": scenario.document.chosen,
    }
    kept = Recording(
        path, resume=begun, labels=setup.labels, words=setup.words, title=scenario.title,
        provenance=provenance, **setup.storing,
    )  # fmt: skip
    say.cost(setup.cost())
    try:
        return record(setup.plan, kept, say.windows)
    except ParticleflowError:
        raise
    except Exception as error:
        reason = blamed(error) or f"{type(error).__name__}: {str(error)[:300]}"
        raise RunError(f"The run in {folder} failed: {reason}") from error
