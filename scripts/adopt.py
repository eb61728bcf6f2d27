"""`python scripts/adopt.py look | take | fit | check | all`: the user's own model, from end to end.

MODEL is a Python file with build() and batches() (docs/own-model.md). The stages share one folder,
adopt/NAME by default; each reads what the earlier ones wrote, and can be killed and repeated.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes to stderr otherwise
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, from anywhere

from actors.adopt.stage.errors import AdoptError, TimeOverError
from actors.cli import OneLineParser
from actors.commands import typed_command, with_typed_commands
from actors.exit_status import ExitStatus
from actors.startup_packages import end_without_packages


def main(arguments: list[str] | None = None) -> int:
    """Run one stage; return the exit status."""
    parsed = _parser().parse_args(_joined(sys.argv[1:] if arguments is None else arguments))
    # torch says so once, and is used without it.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    end_without_packages()
    try:
        from actors.adopt import stages  # torch, which takes a while: Ctrl-C may come in it

        return stages.run(parsed)
    except AdoptError as error:
        print(f"adopt: {error}", file=sys.stderr)
        return ExitStatus.STOPPED if isinstance(error, TimeOverError) else ExitStatus.USAGE
    except KeyboardInterrupt:
        print("adopt: stopped; the same command goes on", file=sys.stderr)
        return 130


def _joined(words: list[str]) -> list[str]:
    """Return the words with `--supervisor --watch` as one: argparse takes no flag for a value."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--supervisor":
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _parser() -> OneLineParser:
    parser = OneLineParser(prog=typed_command("adopt"), description=with_typed_commands(__doc__))
    stages = parser.add_subparsers(dest="stage", required=True, metavar="STAGE")
    look = stages.add_parser("look", help="measure where the model's time is")
    _add_model(look)
    take = stages.add_parser("take", help="make tasks of the modules that are worth it, with proof")
    take.add_argument("folder", type=Path, metavar="FOLDER", help="the folder that look wrote")
    _add_choice(take)
    _add_time(take)
    _add_fit(stages.add_parser("fit", help="make a package that puts winners into the model"))
    check = stages.add_parser("check", help="measure what the winners bring to the whole model")
    check.add_argument("folder", type=Path, metavar="FOLDER", help="the folder that fit wrote")
    _add_check(check)
    _add_time(check)
    whole = stages.add_parser("all", help="look, take, run the tasks, fit and check")
    _add_model(whole)
    _add_choice(whole)
    _add_check(whole)
    _add_time(whole, 60.0)
    _add_runs(whole)
    return parser


def _add_fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("folder", type=Path, metavar="FOLDER", help="the folder that take wrote")
    fit.add_argument(
        "--run", type=Path, action="append", default=[], metavar="RUN",
        help="a run with winners, finished or not; may be repeated (default: runs/ in FOLDER)",
    )  # fmt: skip
    fit.add_argument(
        "--winner", type=_winner, action="append", default=[], metavar="TASK=FILE",
        help="a winner's file for a task; may be repeated",
    )  # fmt: skip


def _add_runs(whole: argparse.ArgumentParser) -> None:
    whole.add_argument(
        "--budget", type=_count, default=60, metavar="N",
        help="attempts for all tasks together, by what each has left to win (default: 60)",
    )  # fmt: skip
    whole.add_argument(
        "--model", dest="run_model", default="", metavar="NAME",
        help="the model that writes the kernels, as for a run (default: a run's own)",
    )  # fmt: skip
    whole.add_argument(
        "--supervisor", default="", metavar="FLAGS",
        help="other flags for the runs of the tasks, such as '--max-cost 5'",
    )  # fmt: skip


def _add_time(parser: argparse.ArgumentParser, minutes: float | None = None) -> None:
    default = "none" if minutes is None else f"{minutes:g}"
    parser.add_argument(
        "--max-minutes", type=_minutes, default=minutes, metavar="M",
        help=f"end within M minutes, with the best of what is known then (default: {default})",
    )  # fmt: skip


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=_seconds, default=20.0, metavar="S",
        help="seconds of timing for each comparison of the whole model (default: 20)",
    )  # fmt: skip
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file with build(), batches()")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="the stages' folder (default: adopt/NAME)"
    )
    parser.add_argument(
        "--batches", type=_count, default=8, metavar="N", help="batches to use (default: 8)"
    )
    parser.add_argument(
        "--regime",
        type=_regimes,
        default=["eager"],
        metavar="LIST",
        help="also measure the model as it is under compile, cudagraph (default: eager)",
    )
    parser.add_argument(
        "--max-outside",
        type=_share,
        default=0.15,
        metavar="SHARE",
        help="the largest share of device time that may belong to no module (default: 15%%)",
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top", type=_count, default=6, metavar="N", help="tasks to make at most (default: 6)"
    )
    parser.add_argument(
        "--min-share",
        type=_share,
        default=0.03,
        metavar="SHARE",
        help="the smallest share of a step that is worth a task (default: 3%%)",
    )
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="PATTERN",
        help="take the modules whose paths match, such as 'layers.*.mlp'; may be repeated",
    )
    parser.add_argument(
        "--regions",
        action="store_true",
        help="also take what a module's forward computes between library calls (inference)",
    )
    parser.add_argument(
        "--cap",
        type=_bytes,
        default=2 << 30,
        metavar="BYTES",
        help="most bytes of recorded inputs and outputs on disk, such as 500M (default: 2G)",
    )
    parser.add_argument(
        "--max-gap",
        type=_share,
        default=0.2,
        metavar="SHARE",
        help="how much slower than its module a task may be, both alone (default: 20%%)",
    )


def _time(unit: str, most: float) -> Callable[[str], float]:
    """Return what reads a time of this unit, above 0 and up to `most`."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 < found <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a time in {unit}")
        return found

    return read


_seconds, _minutes = _time("seconds", 86_400), _time("minutes", 100_000)


def _winner(text: str) -> tuple[str, Path]:
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not TASK=FILE")
    return name, Path(file)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share such as 3% or 0.03")
    return share


def _bytes(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500M")
    return int(digits) << shift


def _regimes(text: str) -> list[str]:
    known = ("eager", "compile", "cudagraph")
    names = text.split(",")
    wrong = [name for name in names if name not in known]
    if wrong:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not one of {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
