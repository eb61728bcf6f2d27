"""`python scripts/chaos.py --minutes M --seed S`: inject faults into whole runs, count losses.

A run has a real supervisor, machines that join through a faulty network, real evaluators on cheap
tasks, and a scripted model.  The first run is undisturbed.  Then the same run is repeated with
kills, stops, partitions, flipped bits, noise, a full disk and power cuts.  Each run must end with
the same ledger.  Exit status 0 only if nothing was lost, doubled or left behind; 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def minutes(text: str) -> float:
    """Read a time above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0, got {text!r}")
    return value


def count(text: str) -> int:
    """Read a number of machines."""
    if not (text.isdigit() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"expected 1 to 64 machines, got {text!r}")
    return int(text)


def main() -> int:
    """Run it; return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.cli import OneLineParser
    from actors.commands import typed_command, with_typed_commands
    from scripts.faults import chaos_run

    parser = OneLineParser(
        prog=typed_command("chaos"), description=with_typed_commands(__doc__), allow_abbrev=False
    )
    _add_arguments(parser)
    parsed = parser.parse_args()
    if problem := _unusable_folder(parsed.keep):
        parser.error(f"--keep {parsed.keep}: {problem}")
    return chaos_run.run_chaos(chaos_run.ChaosArguments(**vars(parsed)))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes",
        type=minutes,
        default=2.0,
        metavar="M",
        help="how long it takes, about (default: 2)",
    )
    parser.add_argument(
        "--seed", type=int, default=None, metavar="S", help="the seed (default: drawn, and printed)"
    )
    parser.add_argument(
        "--machines",
        type=count,
        default=3,
        metavar="N",
        help="machines, the run's own included (default: 3)",
    )
    parser.add_argument(
        "--cheap", action="store_true", help="evaluators that read verdicts from the source"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs' folders here")


def _unusable_folder(folder: Path | None) -> str:
    """Make the folder that keeps the runs; return why it can't be used, "" if it can."""
    if folder is None:
        return ""
    if folder.is_file() or any(folder.glob("*")):
        return "expected a new or empty folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
