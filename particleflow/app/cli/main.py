"""The application: its commands, and how errors become exit codes.

    0       success
    1       something failed while running
    2       the user got something wrong
    130     interrupted, by Ctrl+C or another signal to stop

Modules of commands import what they need when a command runs, so that `--help` appears at once: it imports neither JAX
nor NumPy.
"""

import multiprocessing
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cyclopts import App, CycloptsError

from particleflow._support import signals
from particleflow._support.files import advice_for
from particleflow._support.own_process import configure_process
from particleflow._support.user_code import blamed
from particleflow._version import __version__
from particleflow.app.cli import (
    commands_check,
    commands_compare,
    commands_fixed_points,
    commands_inspect,
    commands_kinds,
    commands_list,
    commands_products,
    commands_ranks,
    commands_run,
    commands_sweep,
)
from particleflow.app.cli.console import note
from particleflow.app.cli.options import with_every_flag
from particleflow.app.cli.signal_thread import INTERRUPTED, answering_signals
from particleflow.errors import ParticleflowError, StartMoved, UserError

DEBUG = "PARTICLEFLOW_DEBUG"
_FEWEST_COLUMNS = 20
_COMPLETION = "--install-completion"


def make_app() -> App:
    """The application with all commands; their help comes from the docstrings and annotations of the functions."""
    app = App(
        name="particleflow",
        help="Tokens are particles, attention is a local mean, and depth is time.",
        version=__version__,
        help_format="plaintext",
        help_epilogue="A scenario is a TOML file, or the name of a shipped one (see `particleflow list`). "
        "`particleflow run SCENARIO --no-movie --no-page` makes a run without movie and page.",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for function in (
        commands_run.run,
        commands_run.resume,
        commands_check.check,
        commands_sweep.sweep,
        commands_sweep.work,
        commands_sweep.replay,
        commands_list.list_,
        commands_kinds.kinds,
        commands_kinds.describe,
        commands_inspect.runs,
        commands_inspect.info,
        commands_products.analyze,
        commands_products.plot,
        commands_products.animate,
        commands_products.view,
        commands_compare.compare,
        commands_fixed_points.fixed_points,
        commands_ranks.ranks,
        commands_products.export,
        commands_products.recover,
        commands_inspect.schema,
    ):
        app.command(function, name=function.__name__.rstrip("_").replace("_", "-"))
    run = app["run"]
    run.usage = "Usage: particleflow run SCENARIO [--no-movie] [--no-page] [--no-figures] [--no-summary] [OPTIONS]"
    app.command(_install_completion, name=_COMPLETION)
    return app


def _install_completion() -> None:
    """Install shell completion for this application."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters: `arguments`; if left out, those of this process, whose settings are then changed for the command line
    (`own_process`). With `arguments`, as from Python, the environment is left as it was.
    """
    if arguments is not None:
        with _variables_kept("COLUMNS", "PARTICLEFLOW_NATIVE"):
            return _command(list(arguments))
    if multiprocessing.parent_process() is not None:
        return 0  # a spawned drawing process imports its parent's main module, here one without `if __name__ == …`
    configure_process()
    return _command(sys.argv[1:])


def _command(tokens: list[str]) -> int:
    """Run one command; signals are answered on the main thread, see `signal_thread`."""
    _ensure_columns()
    return answering_signals(lambda: _run_command(tokens))


@contextmanager
def _variables_kept(*names: str) -> Iterator[None]:
    """Restore environment variables that a command sets to their values from before."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _run_command(tokens: list[str]) -> int:
    """The exit code of a command, also of one that was interrupted."""
    try:
        return _exit_code(tokens)
    except KeyboardInterrupt as interrupt:
        hint, *_ = (*interrupt.args, "Existing files are unchanged; the same command begins anew.")
        note(f"Interrupted. {hint}")
        return INTERRUPTED


def _exit_code(tokens: list[str]) -> int:
    """Run a command and return its exit code.

    Every error becomes a sentence on stderr: one of ours as it is, one of the operating system with advice, one of the
    user's code with the line that raised it. The environment variable PARTICLEFLOW_DEBUG shows the traceback instead.
    """
    app = make_app()
    if _COMPLETION in tokens:  # cyclopts' installer is imported only when it is called
        del app[_COMPLETION]
        app.register_install_completion_command(_COMPLETION)
    try:
        code = _called(app, with_every_flag(tokens) or ["--help"])
    except CycloptsError:
        return 2
    except BrokenPipeError:
        # The pipe behind stdout is closed: redirect it, so that Python does not fail when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except ParticleflowError as error:
        return _report(error)
    except OSError as error:
        if os.environ.get(DEBUG):
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        note(f"Error: {place}{error.strerror or error}. {advice_for(error)}".rstrip())
        return 1
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if said := blamed(error):
            note(f"Error: {said}")
            return 1
        note(f"Error: {type(error).__name__}: {str(error)[:500]}")
        note(f"(This is a fault in particleflow; {DEBUG}=1 shows where.)")
        return 1
    return code if isinstance(code, int) else 0


def _called(app: App, tokens: list[str]) -> object:
    """Call a command; an error after a signal to stop counts as the interruption that it is a consequence of."""
    try:
        with _warnings_as_lines(quiet="--quiet" in tokens):
            return app(tokens, exit_on_error=False, print_error=True)
    except Exception:
        if signals.asked():
            raise KeyboardInterrupt from None
        raise


@contextmanager
def _warnings_as_lines(*, quiet: bool) -> Iterator[None]:
    """Print a warning about a start as a line for people, once, unless `quiet`."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", StartMoved)
        shown_by_python = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, StartMoved):
                note(f"Warning: {message}", quiet=quiet)
            else:
                shown_by_python(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _ensure_columns() -> None:
    """Set at least 20 columns for help and bars: rich does not terminate on a terminal with zero columns."""
    columns, wish = shutil.get_terminal_size().columns, os.environ.get("COLUMNS", "")
    if columns < _FEWEST_COLUMNS or (wish.isdecimal() and int(wish) < _FEWEST_COLUMNS):
        os.environ["COLUMNS"] = str(max(columns, _FEWEST_COLUMNS))


def _report(error: ParticleflowError) -> int:
    """Print an error of ours and return its exit code."""
    if os.environ.get(DEBUG):
        raise error
    note(f"Error: {error}")
    code = 2 if isinstance(error, UserError) else 1
    if getattr(error, "hard_exit", False):
        # HDF5 cannot close the file any more and would crash on the way out; or JAX would wait for other processes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
