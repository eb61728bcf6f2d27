"""`python scripts/compare.py --task a.py --vary strategy=stark,search --seeds 0-4`: a comparison.

It makes one run for each variation and seed over all tasks, and prints what each variation wins,
with intervals over the seeds, dollars and minutes.  The same command again continues where the last
one stopped.  The code is in `scripts/comparison/`.
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
    from scripts.comparison.main import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
