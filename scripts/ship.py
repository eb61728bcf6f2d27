"""`python scripts/ship.py RUN | check | wheel | hub`: winners as a package that needs torch alone.

RUN is a run's folder, the folder of an adopted model, or a winner's file such as best.py. The
package has the original modules, the kernels, and the battery: checks of every use, which run
before the package gets its place (docs/ship.md). The other words take a package that was made.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, from anywhere

from actors.startup_packages import end_without_packages

if __name__ == "__main__":
    end_without_packages()

from actors.cli import OneLineParser, exit_when_reader_closes
from actors.commands import typed_command, with_typed_commands
from actors.exit_status import ExitStatus

WORDS = ("package", "check", "wheel", "hub")


def main(arguments: list[str] | None = None) -> int:
    """Make a package, or do something with one; return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or given[0] not in (*WORDS, "-h", "--help"):
        given = ["package", *given]
    parsed = _parser().parse_args(given)
    from actors.ship import stages
    from actors.ship.errors import NothingToShipError, ShipError

    exit_when_reader_closes()
    # A stop raises, so that what is half-made is removed.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return stages.run(parsed)
    except NothingToShipError as error:
        print(f"ship: {error}", file=sys.stderr)
        return ExitStatus.NEGATIVE
    except (ShipError, sqlite3.DatabaseError) as error:
        print(f"ship: {' '.join(str(error).split())}", file=sys.stderr)
        return ExitStatus.USAGE
    except (
        shutil.Error
    ) as error:  # of a folder that was copied: (source, target, text) of each file
        print(f"ship: {error.args[0][0][2]}", file=sys.stderr)
        return ExitStatus.USAGE
    except OSError as error:  # a full or read-only disk
        where = f"{error.filename}: " if error.filename else ""
        print(f"ship: {where}{error.strerror or error}", file=sys.stderr)
        return ExitStatus.USAGE
    except KeyboardInterrupt:
        print("ship: stopped; nothing was written", file=sys.stderr)
        return 130


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog=typed_command("ship"),
        description=with_typed_commands(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = parser.add_subparsers(dest="word", required=True, metavar="WORD")
    package = words.add_parser("package", help="make a package; the word itself may be left out")
    _add_package(package)
    check = words.add_parser("check", help="install a package by itself and run its battery")
    check.add_argument("folder", type=Path, metavar="DIR", help="a package, or a wheel of one")
    check.add_argument("--device", choices=("cpu", "cuda"), help="default: the kernels' own")
    _add_wheel(words.add_parser("wheel", help="build a wheel of a package, in its folder `wheels`"))
    hub = words.add_parser("hub", help="write a package as a repository for kernel-builder")
    hub.add_argument("folder", type=Path, metavar="DIR", help="a package")
    hub.add_argument("--out", type=Path, metavar="DIR", help="(default: DIR-hub)")
    return parser


def _add_package(package: argparse.ArgumentParser) -> None:
    package.add_argument("run", type=Path, metavar="RUN", help="a run, an adopted model, a best.py")
    package.add_argument(
        "--name", metavar="NAME", help="of the distribution, such as fused-gelu (default: the task)"
    )
    package.add_argument(
        "--out", type=Path, metavar="DIR", help="the package's folder (default: dist/NAME)"
    )
    package.add_argument(
        "--task", action="append", default=[], metavar="TASK",
        help="ship this task's winner; may be repeated (default: all tasks with a winner)",
    )  # fmt: skip
    package.add_argument(
        "--node", type=_number, metavar="N", help="ship this attempt in place of the winner"
    )
    package.add_argument(
        "--license", default="", metavar="SPDX", help="of the package, such as MIT (default: none)"
    )


def _add_wheel(wheel: argparse.ArgumentParser) -> None:
    wheel.add_argument("folder", type=Path, metavar="DIR", help="a package")
    wheel.add_argument(
        "--abi", choices=("jit", "limited", "stable"), default="jit",
        help="jit: compiled at first use; limited: compiled, for any Python and this torch; stable:"
        " for any torch from 2.11 (default: jit)",
    )  # fmt: skip
    wheel.add_argument(
        "--cpu", choices=("native", "v2", "v3", "v4"), default="v3",
        help="processors that a compiled wheel is for, as levels of x86-64 (default: v3, AVX2)",
    )  # fmt: skip


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an attempt")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
