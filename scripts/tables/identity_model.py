"""Each problem as its own candidate: `python -m scripts.tables.identity_model CHECKOUT LEVEL…`.

It prints a script for `--model script:FILE`, which needs no model and no key.  The script shows
whether every problem of a level loads, fits, repeats and gets a verdict on this machine, before any
money is spent.  Every problem should be `correct`, at about 1×.
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
    script: list[dict[str, str]] = [{"role": "planner", "advice": "Leave everything as it is."}]
    for problem in problems:
        source = re.sub(r"\bModel\b", "ModelNew", problem.source)
        script.append({"role": "coder", "task": problem.task, "code": source})
        script.append({"role": "debugger", "task": problem.task, "code": source})
    return [json.dumps(line) for line in script]


def main() -> int:
    """Print the script of all problems of some levels; return 2 when there are none."""
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
