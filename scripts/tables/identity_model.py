"""Each problem as its own candidate: `python -m scripts.tables.identity_model CHECKOUT LEVEL… >
FILE`.

A script for `--model script:FILE`: no model, no key.  It tries what a whole level asks of a
machine (does every problem load, fit, repeat, and come to a verdict?) before any money is spent;
every problem should come out as `correct`, at about 1×.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from scripts.tables.problems import KernelBenchProblem, choose


def lines(problems: tuple[KernelBenchProblem, ...]) -> list[str]:
    """Return the lines of the script."""
    told: list[dict[str, str]] = [{"role": "planner", "advice": "Leave everything as it is."}]
    for problem in problems:
        source = re.sub(r"\bModel\b", "ModelNew", problem.source)
        told.append({"role": "coder", "task": problem.task, "code": source})
        told.append({"role": "debugger", "task": problem.task, "code": source})
    return [json.dumps(line) for line in told]


def main() -> int:
    """Print the script of all problems of some levels; 2 when there are none."""
    arguments = sys.argv[1:]
    if len(arguments) < 2 or not all(level.isdecimal() for level in arguments[1:]):
        print("usage: python -m scripts.tables.identity_model CHECKOUT LEVEL...", file=sys.stderr)
        return ExitStatus.USAGE
    try:
        problems = choose(Path(arguments[0]), [int(level) for level in arguments[1:]], "all")
    except UsageError as error:
        print(error, file=sys.stderr)
        return ExitStatus.USAGE
    print("\n".join(lines(problems)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
