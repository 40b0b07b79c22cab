#!/opt/stagewatch/bin/python
import sys

from stagewatch.cli import main

sys.exit(main())
