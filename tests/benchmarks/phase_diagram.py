"""The published phase diagram as one sweep: how long it takes, and what a kill half-way costs.

    python tests/benchmarks/phase_diagram.py [folder]

1440 runs (90 values of β, 16 seeds) of 32 tokens in dimension 8 up to t = 30 at rtol 1e-6; the goal is three minutes
on two cores.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(folder: Path) -> None:
    """Time the sweep in one go, then kill a second one half-way, resume it, and compare the two tables."""
    command = [sys.executable, "-m", "particleflow"]
    begin = time.perf_counter()
    subprocess.run([*command, "sweep", "phase_diagram", "--output", str(folder / "whole"), "--quiet"], check=True)
    print(f"in one go: {time.perf_counter() - begin:.1f} s")

    killed = folder / "killed"
    begin = time.perf_counter()
    process = subprocess.Popen([*command, "sweep", "phase_diagram", "--output", str(killed), "--quiet"])
    while done(killed) < 700 and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    print(f"killed after {done(killed)} of 1440 runs: {time.perf_counter() - begin:.1f} s")
    begin = time.perf_counter()
    subprocess.run([*command, "resume", str(killed), "--quiet"], check=True)
    print(f"resumed: {time.perf_counter() - begin:.1f} s")
    same = (killed / "results.csv").read_bytes() == (folder / "whole" / "results.csv").read_bytes()
    print(f"the two tables are {'equal' if same else 'DIFFERENT'}")


def done(folder: Path) -> int:
    """How many runs of a sweep have been done."""
    try:
        runs = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError):
        return 0
    return sum(run["state"] == "done" for run in runs)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
