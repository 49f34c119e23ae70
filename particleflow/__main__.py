"""`python -m particleflow` is the command line."""

import sys

if __name__ == "__main__":  # a process that draws imports this module once more
    from particleflow.app.cli import main

    sys.exit(main())
