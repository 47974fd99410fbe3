"""Registers the digits data sets; see README.md."""

from __future__ import annotations

import argparse
import os

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--home", help="where to register them; MMRL_HOME, or ~/.mmrl, if not given")

if __name__ == "__main__":
    arguments = parser.parse_args()
    if arguments.home:
        os.environ["MMRL_HOME"] = arguments.home
    from mmrl.data.digits import build_digits

    print("\n".join(build_digits()))
