"""`run --slurm` and `sweep --slurm`: jobs that are submitted, or printed."""

from pathlib import Path
from typing import TYPE_CHECKING

from particleflow.app.cli.console import note, result

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario


def submit_run(
    loaded: "Scenario", output: Path | None, asked: list[str], options: list[str], *, dry_run: bool, quiet: bool
) -> int:
    """Freeze a scenario into a run's folder, write the job script beside it and submit it; returns an exit code.

    Parameters: `output`, the folder, None for the next number; what is `asked` of sbatch; `options` of `resume`.
    """
    from particleflow.app.runs.run_folder import freeze, new_folder
    from particleflow.app.sweep.slurm import run_script

    setup = loaded.build()  # only now that it is known to be right is anything made
    folder = new_folder(loaded.stem, output)
    freeze(loaded, folder, setup.drawing)
    return submit_job(folder, run_script(folder, asked, options), "resume", dry_run=dry_run, quiet=quiet)


def submit_job(folder: Path, script: str, without: str, *, dry_run: bool, quiet: bool) -> int:
    """Write the job script of a run or a sweep into its folder and submit it, or print it; returns an exit code.

    Parameters: `without`, the command that does the same where there is no Slurm.
    """
    from particleflow.app.sweep.slurm import submit, write_job_script

    path = write_job_script(folder, script)
    if dry_run:
        result(path.read_text(encoding="utf-8").rstrip())
        note(f"Nothing is submitted; `sbatch {path}` does it.", quiet=quiet)
        return 0
    job = submit(path, without)
    note(
        f"Submitted as job {job}. `particleflow info {folder}` and `squeue --job {job}` show how far it is, "
        f"`scancel {job}` stops it, and `sbatch {path}` goes on.",
        quiet=quiet,
    )
    result(str(folder))
    return 0
