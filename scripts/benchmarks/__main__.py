"""`make bench`: all benchmarks one after the other, with a description of the machine."""

from __future__ import annotations

from actors.cli import OneLineParser
from scripts.benchmarks import dispatch, recovery, scale, selection, whole_run
from scripts.benchmarks.machine_info import machine


def main() -> None:
    """Run all benchmarks; it takes some ten minutes."""
    OneLineParser(prog="python -m scripts.benchmarks", description=__doc__).parse_args()
    print(machine())
    print("\nselection, windows and leaderboard, one step of the search")
    selection.main()
    print("\ndispatch, durable: a result sent -> the next work received")
    dispatch.report()
    print()
    scale.report()
    print("\nrecovery, of work that takes no time")
    recovery.main()
    print()
    whole_run.main()
    from scripts.benchmarks import call_overhead  # imports torch: not before a mistake is told

    print("\na call of a fitted module")
    call_overhead.report()


if __name__ == "__main__":
    main()
