"""`python scripts/kernelbench.py --root CHECKOUT --level 1`: KernelBench's tables by one command.

It starts one run over all problems of a level, writes a results folder and prints the table.  The
same command again continues where the last one stopped.  The code is in `scripts/tables/`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Do what the command line asks; return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from scripts.tables.main import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
