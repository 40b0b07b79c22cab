"""`python -m stagewatch` is the `stagewatch` command, for where its script is not on the PATH."""

import sys

from stagewatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
