"""Run the command line without the installed program: `python -m zinc_rt.cli NAME ...`."""

import sys

from zinc_rt.cli.main import main

sys.exit(main())
