"""The figures that show what a particular run is about, by what it stores; they come before all others."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.heat_equation import heat_rate
from particleflow.analysis.hysteresis import up_and_down
from particleflow.analysis.reading import first_run
from particleflow.analysis.run_character import Character, places_of
from particleflow.view.findings import pick
from particleflow.view.plots.subjects.data_field import data_field, has_field
from particleflow.view.plots.subjects.heat_profiles import heat_profiles
from particleflow.view.plots.subjects.hysteresis_loop import hysteresis
from particleflow.view.plots.subjects.image_figures import patches_before_and_after, recall
from particleflow.view.plots.subjects.layers_of_network import HEADS, depth_of_run, heads
from particleflow.view.plots.theory.fits import fitted_values, values_on_places

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

SUBJECTS = ("hysteresis", "heat", "field", "picture", "recall", "values")
Draw = Callable[[], Any]


def leading_figures(trajectory: "Trajectory", known: Character, analysis: Any) -> Iterator[tuple[str, Draw]]:
    """Yield (name, function that draws) for the figures of what the run is about; nothing is drawn before the call.

    Parameters: the trajectory, what is `known` of it, and its `analysis` as of `figures`. A density has none.
    """
    run, labels = first_run(trajectory), pick(analysis, "labels")
    if is_density(run) or known.is_law or len(run) < 2:
        return
    if "order_parameter" in trajectory.observables and up_and_down(run) is not None:
        yield "hysteresis", lambda: hysteresis(trajectory)
    if heat_rate(run) is not None:
        yield "heat", lambda: heat_profiles(trajectory)
    if has_field(run):
        yield "field", lambda: data_field(trajectory)
    if known.image is not None and known.picture is not None:
        yield "picture", lambda: patches_before_and_after(trajectory, labels=labels)
    elif known.image is not None:
        yield "recall", lambda: recall(trajectory)
    if known.counts_layers and known.is_network and run.count > 1:
        yield "depth", lambda: depth_of_run(trajectory)
    if known.is_network and HEADS in trajectory.observables:
        yield "heads", lambda: heads(trajectory)
    places = places_of(trajectory)
    if places is not None and places.shape[1] == 1 and run.dimension == 1:
        yield "values", lambda: fitted_values(trajectory, places)
    elif places is not None and places.shape[1] <= 2:
        yield "values", lambda: values_on_places(trajectory, places)
