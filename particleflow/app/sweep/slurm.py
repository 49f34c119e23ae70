"""A sweep on a cluster: one Slurm job array, each task of which is a worker.

    path = write_job_script(folder, ["--array=0-7", "--time=01:00:00"], options=[])
    job = submit(path)

The script is a file that a person can read and change. A task that is preempted, requeued or cancelled loses nothing:
it claims runs like any other worker when it starts again.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from particleflow._support.files import own_folder, reason_of, write_text
from particleflow.errors import RunError, UserError

SCRIPT_FILE = "slurm.sh"
MESSAGES_FOLDER = "slurm"
_WARNING_SECONDS = 60  # between Slurm's signal and the end of a job's time


def job_script(folder: Path, asked: list[str], options: list[str]) -> str:
    """The text of a script for sbatch, whose tasks are workers of the sweep in a folder.

    Parameters: the `folder` of the sweep; what is `asked` of sbatch, such as "--array=0-7"; `options` of `particleflow
    work`.
    """
    place = folder.resolve()
    if not place.as_posix().isprintable() or '"' in str(place) or "\\" in str(place):
        raise UserError(f"A folder for Slurm must not have quotes, backslashes or control characters, but is {place}.")
    messages = str(place / MESSAGES_FOLDER / "%A_%a.out").replace(str(place), str(place).replace("%", "%%"), 1)
    command = [sys.executable, "-m", "particleflow", "work", str(place), *options]
    return "\n".join(
        [
            "#!/bin/sh",
            "# Each task claims runs of this sweep that nothing else runs, until all have ended.",
            f"#SBATCH --job-name=particleflow-{re.sub(r'[^A-Za-z0-9_.-]', '_', place.parent.name or place.name)}",
            *(f"#SBATCH {each}" for each in asked),
            f'#SBATCH --output="{messages}"',
            "#SBATCH --open-mode=append",
            "#SBATCH --requeue",
            f"#SBATCH --signal=B:TERM@{_WARNING_SECONDS}",
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def write_job_script(folder: Path, asked: list[str], options: list[str]) -> Path:
    """Write the script beside the manifest of a sweep, with a folder for messages, and return its path."""
    path = folder / SCRIPT_FILE
    write_text(path, job_script(folder, asked, options))
    own_folder(folder / MESSAGES_FOLDER)
    return path


def submit(path: Path) -> str:
    """Submit a script by sbatch and return the number of its job."""
    try:
        done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(
            f"sbatch cannot be started on this machine: {reason_of(error)}. {path} is the script that it would take; "
            "`particleflow work` starts a worker without Slurm."
        ) from error
    if done.returncode != 0:
        said = next(filter(None, map(str.strip, done.stderr.splitlines())), f"exit code {done.returncode}")
        raise RunError(f"sbatch has refused {path}: {said[:300]}")
    return done.stdout.strip().split(";")[0]
