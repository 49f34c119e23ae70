"""Runs shared by several devices: what is stored does not depend on how many there are."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
import runs_on_devices
from particleflow.app.cli import main
from particleflow.summation.device_axis import ALIGNED, rows_each
from same_files import datasets


def run_cases(folder: Path, devices: str, cases: str, **variables: str) -> None:
    """Store cases in a process with as many devices as are asked for."""
    most = max(map(int, devices.split(",")))
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={most}".strip()
    done = subprocess.run(
        [sys.executable, runs_on_devices.__file__, str(folder), devices, cases],
        env={**os.environ, "XLA_FLAGS": flags, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def differing(folder: Path, case: str, devices: str) -> list[str]:
    """The datasets of a case that are not the same to the bit for every number of devices."""
    first, *others = (datasets(folder / f"{case}-{count}.h5") for count in devices.split(","))
    assert any("position" in name or "mass" in name or "gaussian" in name for name in first)
    return [name for other in others for name in first.keys() | other.keys() if first.get(name) != other.get(name)]


def test_one_and_two_devices_store_the_same_bits_and_add_nothing_up(tmp_path):
    run_cases(tmp_path, "1,2", "euler", JAX_DUMP_IR_TO=str(tmp_path / "programs"))
    assert differing(tmp_path, "euler", "1,2") == []
    programs = [path.read_text() for path in (tmp_path / "programs").glob("*.mlir")]
    shared = [text for text in programs if "all_gather" in text]
    assert shared
    assert not any("all_reduce" in text or "reduce_scatter" in text for text in shared)
    with pf.Trajectory.open(tmp_path / "euler-2.h5") as run:
        points, energy = np.asarray(run.points), np.asarray(run.observables["energy"])
    kernels = np.exp(4.0 * points @ np.swapaxes(points, 1, 2))
    assert np.allclose(energy, kernels.mean(axis=(1, 2)) / 8.0, rtol=1e-12)
    first = points[0]
    weights = kernels[0] / kernels[0].sum(axis=1, keepdims=True)
    velocity = weights @ first
    velocity -= np.sum(velocity * first, axis=1, keepdims=True) * first
    moved = first + 0.1 * velocity  # the stored frame is projected to the sphere
    assert np.allclose(points[1], moved / np.linalg.norm(moved, axis=1, keepdims=True), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", runs_on_devices.CASES)
def test_no_stored_number_depends_on_the_number_of_devices(tmp_path, case):
    run_cases(tmp_path, "1,2,4,8", case)
    assert differing(tmp_path, case, "1,2,4,8") == []


@pytest.mark.slow
@pytest.mark.parametrize("case", ["noise", "causal", "widened", "implicit"])
def test_the_same_without_native_sums(tmp_path, case):
    run_cases(tmp_path, "1,3", case, PARTICLEFLOW_NATIVE="0")
    assert differing(tmp_path, case, "1,3") == []


@pytest.mark.parametrize("count", [1, 63, 192, 193, 1000, 16385])
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_devices_hold_all_rows_in_whole_tiles(count, devices):
    each = rows_each(count, devices)
    assert each * devices >= count
    assert each % ALIGNED == 0
    assert (each - ALIGNED) * devices < count


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "99"], "Argument `devices` is 99, but there"),
        (["--devices", "0"], "Argument `devices` must be"),
        (["--device", "cpu:0", "--devices", "1"], "Option --device cpu:0 names one device"),
    ],
)
def test_devices_that_are_not_there_are_refused_before_anything_is_made(tmp_path, capsys, options, said):
    assert main(["run", "alibi", "--output", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
