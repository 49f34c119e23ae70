"""`run --slurm`: freezes a run into its folder and submits a job whose tasks share it."""

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
    from particleflow.app.sweep.slurm import run_script, submit, write_job_script

    setup = loaded.build()  # only now that it is known to be right is anything made
    folder = new_folder(loaded.stem, output)
    freeze(loaded, folder, setup.drawing)
    path = write_job_script(folder, run_script(folder, asked, options))
    if dry_run:
        result(path.read_text(encoding="utf-8").rstrip())
        note(f"Nothing is submitted; `sbatch {path}` does it.", quiet=quiet)
        return 0
    job = submit(path, "resume")
    note(
        f"Submitted as job {job}. `particleflow info {folder}` and `squeue --job {job}` show how far it is, "
        f"`scancel {job}` stops it, and `sbatch {path}` goes on.",
        quiet=quiet,
    )
    result(str(folder))
    return 0
