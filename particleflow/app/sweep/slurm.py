"""Slurm: a sweep as one job array, each task of which is a worker, or a run as one job of several tasks.

    path = write_job_script(folder, sweep_script(folder, ["--array=0-7", "--time=01:00:00"], options=[]))
    path = write_job_script(folder, run_script(folder, ["--ntasks=4"], options=[]))
    job = submit(path, "work")

The script is a file that a person can read and change. A job that is preempted, requeued or cancelled loses little: a
task of a sweep claims runs like any other worker when it starts again, and a run goes on from its last window.
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
_PROGRAM = (sys.executable, "-m", "particleflow")
_WARNING_SECONDS = 60  # between Slurm's signal and the end of a job's time


def sweep_script(folder: Path, asked: list[str], options: list[str]) -> str:
    """The text of a script for sbatch, whose tasks are workers of the sweep in a folder.

    Parameters: the `folder` of the sweep; what is `asked` of sbatch, such as "--array=0-7"; `options` of `particleflow
    work`.
    """
    about = "Each task claims runs of this sweep that nothing else runs, until all have ended."
    # the signal goes to the script, which has become the worker
    return _script(folder, about, asked, "B:TERM", "%A_%a", [*_PROGRAM, "work", "FOLDER", *options])


def run_script(folder: Path, asked: list[str], options: list[str]) -> str:
    """The text of a script for sbatch, whose tasks share the run that is frozen in a folder, or go on with it.

    Parameters: the `folder` of the run; what is `asked` of sbatch, such as "--ntasks=4"; `options` of `particleflow
    resume`.
    """
    about = "All tasks share one run; if the job is started again, they go on from its last window."
    command = ["srun", *_PROGRAM, "resume", "FOLDER", *options]
    return _script(folder, about, asked, "TERM", "%j", command)


def _script(folder: Path, about: str, asked: list[str], signal: str, messages: str, command: list[str]) -> str:
    """The text of a script for sbatch.

    Parameters: the `folder`; a comment `about` the script; what is `asked` of sbatch; the `signal` before the time is
    over; the name of the file of `messages`; the `command`. The word "FOLDER" in it stands for the folder.
    """
    place = folder.resolve()
    if not place.as_posix().isprintable() or '"' in str(place) or "\\" in str(place):
        raise UserError(f"A folder for Slurm must not have quotes, backslashes or control characters, but is {place}.")
    file = str(place / MESSAGES_FOLDER / f"{messages}.out").replace(str(place), str(place).replace("%", "%%"), 1)
    words = [str(place) if word == "FOLDER" else word for word in command]
    return "\n".join(
        [
            "#!/bin/sh",
            f"# {about}",
            f"#SBATCH --job-name=particleflow-{re.sub(r'[^A-Za-z0-9_.-]', '_', place.parent.name or place.name)}",
            *(f"#SBATCH {each}" for each in asked),
            f'#SBATCH --output="{file}"',
            "#SBATCH --open-mode=append",
            "#SBATCH --requeue",
            f"#SBATCH --signal={signal}@{_WARNING_SECONDS}",
            f"exec {shlex.join(words)}",
            "",
        ]
    )


def write_job_script(folder: Path, text: str) -> Path:
    """Write a script into the folder of a sweep or a run, with a folder for messages, and return its path."""
    path = folder / SCRIPT_FILE
    write_text(path, text)
    own_folder(folder / MESSAGES_FOLDER)
    return path


def submit(path: Path, without: str) -> str:
    """Submit a script by sbatch and return the number of its job; `without` is the command that does not need Slurm."""
    try:
        done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(
            f"sbatch cannot be started on this machine: {reason_of(error)}. {path} is the script that it would take; "
            f"`particleflow {without}` works without Slurm."
        ) from error
    if done.returncode != 0:
        said = next(filter(None, map(str.strip, done.stderr.splitlines())), f"exit code {done.returncode}")
        raise RunError(f"sbatch has refused {path}: {said[:300]}")
    return done.stdout.strip().split(";")[0]
