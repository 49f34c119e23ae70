"""`python -m particleflow` is the command line."""

import sys

from particleflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
