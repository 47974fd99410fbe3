"""`python -m mmrl` is the command `mmrl`."""

import sys

from mmrl.cli.app import main

sys.exit(main())
