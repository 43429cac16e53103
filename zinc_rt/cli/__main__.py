"""`python -m zinc_rt.cli NAME ...`: the command line without its installed program."""

import sys

from zinc_rt.cli.main import main

sys.exit(main())
