"""The application: its commands, and how errors become exit codes.

0 success, 2 for what the user got wrong, 1 for what failed while running, 130 for what was interrupted.
"""

import os
import shutil
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from particleflow import stopping
from particleflow._files import advice_for
from particleflow._version import __version__
from particleflow.cli import (
    commands_compare,
    commands_fixed_points,
    commands_inspect,
    commands_kinds,
    commands_products,
    commands_run,
    commands_sweep,
)
from particleflow.cli.answering import INTERRUPTED, answering_signals
from particleflow.cli.console import note
from particleflow.cli.options import with_every_flag
from particleflow.errors import ParticleflowError, UserError
from particleflow.user_code import blamed

DEBUG = "PARTICLEFLOW_DEBUG"
_FEWEST_COLUMNS = 20
_COMPLETION = "--install-completion"


def make_app() -> App:
    """All commands, in the order in which they are used."""
    app = App(
        name="particleflow",
        help="Tokens are particles, attention is a local mean, and depth is time.",
        version=__version__,
        help_format="plaintext",
        help_epilogue="A scenario is a TOML file, or the name of a shipped one (see `particleflow list`).",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for function in (
        commands_run.run,
        commands_run.resume,
        commands_run.check,
        commands_sweep.sweep,
        commands_sweep.replay,
        commands_inspect.list_,
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
        commands_products.export,
        commands_products.recover,
        commands_inspect.schema,
    ):
        app.command(function, name=function.__name__.rstrip("_").replace("_", "-"))
    app.command(_install_completion, name=_COMPLETION)
    return app


def _install_completion() -> None:
    """Install shell completion for this application."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    _ask_for_room()
    return answering_signals(lambda: _obeyed(tokens))


def _obeyed(tokens: list[str]) -> int:
    """The exit code of a command, also of one that was interrupted."""
    try:
        return _exit_code(tokens)
    except KeyboardInterrupt as interrupt:
        hint, *_ = (*interrupt.args, "What was there before is as it was; the same command begins anew.")
        note(f"Interrupted. {hint}")
        return INTERRUPTED


def _exit_code(tokens: list[str]) -> int:
    app = make_app()
    if _COMPLETION in tokens:  # only then what it does is loaded
        del app[_COMPLETION]
        app.register_install_completion_command(_COMPLETION)
    try:
        code = _called(app, with_every_flag(tokens) or ["--help"])
    except CycloptsError:
        return 2
    except BrokenPipeError:
        # The reader of our output has gone; nothing more can be said, and Python must not try at exit.
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
    """What a command returns; one that fails after it was asked to stop (its encoder heard the signal) has stopped."""
    try:
        return app(tokens, exit_on_error=False, print_error=True)
    except Exception:
        if stopping.asked():
            raise KeyboardInterrupt from None
        raise


def _ask_for_room() -> None:
    """Help and bars are laid out for at least some columns: rich never ends where there are none."""
    columns, wish = shutil.get_terminal_size().columns, os.environ.get("COLUMNS", "")
    if columns < _FEWEST_COLUMNS or (wish.isdecimal() and int(wish) < _FEWEST_COLUMNS):
        os.environ["COLUMNS"] = str(max(columns, _FEWEST_COLUMNS))


def _report(error: ParticleflowError) -> int:
    if os.environ.get(DEBUG):
        raise error
    note(f"Error: {error}")
    code = 2 if isinstance(error, UserError) else 1
    if getattr(error, "hard_exit", False):
        # HDF5 cannot close the file any more and would crash on the way out.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
