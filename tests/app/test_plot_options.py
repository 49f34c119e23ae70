"""Which figures are drawn and how, alike by `plot`, in a scenario's [output] and by the products of a run."""

import json

import pytest
from matplotlib.image import imread

import particleflow as pf
from figure_oracles import make
from particleflow.app.cli import main
from particleflow.app.runs.run_outputs import Outcome, make_products
from particleflow.app.scenario.schema.document import OutputTable
from particleflow.app.scenario.schema.problems import Problems
from particleflow.app.scenario.schema.tables import validated
from particleflow.errors import UserError


@pytest.fixture
def run(tmp_path):
    """The folder of a stored run on the circle."""
    make(2, sphere=True, frames=3, count=4).save(tmp_path / "trajectory.h5")
    return tmp_path


def test_plot_draws_the_figures_that_are_named(run, capsys):
    look = ["--size", "4", "3", "--dpi", "50", "--quiet", "--json"]
    assert main(["plot", str(run), "--only", "gram", "--only", "kymograph", *look]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert paths == [str(run / "figures" / f"{name}.png") for name in ("gram", "kymograph")]
    assert imread(paths[0]).shape[:2] == (150, 200)


def test_plot_refuses_a_name_that_no_figure_has(run, capsys):
    assert main(["plot", str(run), "--only", "kymografph", "--quiet"]) == 2
    assert "did you mean 'kymograph'?" in capsys.readouterr().err
    assert not (run / "figures").exists()


@pytest.mark.slow
def test_products_hold_the_figures_that_the_scenario_names(run):
    with pf.Trajectory.open(run / "trajectory.h5") as trajectory:
        for wanted, folder in ((["gram"], "some"), ("all", "every")):
            outcome = Outcome(run / folder, "finished")
            (run / folder).mkdir()
            switches = {"summary": False, "movie": False, "page": False, "figures": wanted}
            make_products(run / folder, trajectory, switches, outcome)
            assert outcome.failures == {}
            drawn = {path.stem for path in (run / folder / "figures").iterdir()}
            assert drawn == ({"gram"} if wanted == ["gram"] else set(pf.view.figure_names(trajectory)))


@pytest.mark.parametrize("figures", [True, False, "all", ["gram", "observable_energy"]])
def test_a_scenario_says_which_figures_are_made(figures):
    problems = Problems()
    table = validated(OutputTable, {"figures": figures}, "output", problems)
    problems.raise_if_any("test")
    assert table is not None
    assert table.figures == figures


@pytest.mark.parametrize(
    ("figures", "why"),
    [(["grm"], "did you mean 'gram'"), ("gram", "must be true, false, 'all' or a list"), ([], "a list"), (3, "a list")],
)
def test_figures_that_there_are_not_are_refused_when_the_file_is_read(figures, why):
    problems = Problems()
    validated(OutputTable, {"figures": figures}, "output", problems)
    with pytest.raises(UserError, match=why):
        problems.raise_if_any("test")
