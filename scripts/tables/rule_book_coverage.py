"""Which problems the rule book writes a candidate for: nothing is judged, and torch is not needed.

    python -m scripts.tables.rule_book_coverage CHECKOUT LEVEL... [--backend cuda]

Prints a line for each problem without a candidate, with the reason, and of each level the share and
the numbers of the others, as `scripts/kernelbench.py --problems` takes them.
Shapes are read from the sources, as for a task that was not measured yet.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from actors.agents.recipes.codegen.compiler import compile_candidate
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.schedule.knobs import default_knobs
from actors.cli import OneLineParser, UsageError
from actors.exit_status import ExitStatus
from scripts.tables.problems import choose

VARYING = re.compile(r"'[^']*'|\b\d[\d, x]*\b|line \d+")  # of a reason: names, sizes, places


def refusal_of(source: str, backend: str) -> str:
    """Return why the rule book writes no candidate for a task; "" where it writes one."""
    try:
        compile_candidate(source, "", backend, default_knobs(backend))
    except UnsupportedSourceError as problem:
        return str(problem)
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is not covered; return the exit status."""
    parser = OneLineParser(
        prog="python -m scripts.tables.rule_book_coverage",
        description=__doc__.partition("\n")[0] if __doc__ else None,
    )
    parser.add_argument("root", type=Path, metavar="CHECKOUT", help="of KernelBench")
    parser.add_argument("levels", nargs="+", type=int, metavar="LEVEL")
    parser.add_argument("--backend", choices=("cpp", "cuda"), default="cuda")
    arguments = parser.parse_args(argv)
    try:
        problems = choose(arguments.root, arguments.levels, "all")
    except UsageError as error:
        print(error, file=sys.stderr)
        return int(ExitStatus.USAGE)
    reasons: Counter[str] = Counter()
    covered: dict[int, list[int]] = {level: [] for level in arguments.levels}
    for problem in problems:
        reason = refusal_of(problem.source, arguments.backend)
        if not reason:
            covered[problem.level].append(problem.number)
        else:
            reasons[VARYING.sub("…", reason)] += 1
            print(f"{problem.task}: {reason}")
    for reason, count in reasons.most_common():
        print(f"{count:4} × {reason}")
    for level in arguments.levels:
        total = sum(problem.level == level for problem in problems)
        numbers = ",".join(map(str, covered[level]))
        print(
            f"level {level}: {len(covered[level])} of {total} problems, {arguments.backend}"
            f"{': --problems ' if numbers else ''}{numbers}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
