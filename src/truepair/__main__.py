"""python -m truepair."""

import sys

from truepair.cli import main

sys.exit(main())
