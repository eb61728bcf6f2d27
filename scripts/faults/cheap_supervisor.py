"""The command `supervisor.py` with cheap evaluators; all other parts are real.

`python scripts/faults/cheap_supervisor.py ARGUMENTS…` takes the arguments of `supervisor.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Replace the evaluator by the cheap one, then run the command."""
    sys.path.insert(0, str(ROOT))
    import supervisor
    from actors.supervisor.processes import child_specs

    real = child_specs._module

    def module(package: str, *arguments: str) -> tuple[str, ...]:
        argv = real(package, *arguments)
        cheap = "scripts.faults.cheap_evaluator"
        return tuple(cheap if word == "actors.evaluator" else word for word in argv) + (
            ("--work-s", "0.15") if package == "evaluator" else ()
        )

    child_specs._module = module
    return supervisor.main()


if __name__ == "__main__":
    code = main()
    from actors.cli import discard_unflushed_output

    discard_unflushed_output()
    sys.exit(code)
