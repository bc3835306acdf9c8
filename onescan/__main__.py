"""`python -m onescan`: the same command line as `onescan`."""

import sys

from onescan.command.cli import main

sys.exit(main())
