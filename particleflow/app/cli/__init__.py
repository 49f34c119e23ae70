"""The command line. Nothing heavy is imported here: each command imports what it needs when it runs."""

from particleflow.app.cli.main import main

__all__ = ["main"]
