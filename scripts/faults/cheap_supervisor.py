"""The command with evaluators that cost nothing: everything else is the real thing.

`python scripts/faults/cheap_supervisor.py ARGUMENTS…`, as `supervisor.py` takes them.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Put the cheap evaluator in the real one's place, then be the command."""
    sys.path.insert(0, str(ROOT))
    import supervisor
    from actors.supervisor.processes import child_specs

    real = child_specs._module

    def module(room: str, *arguments: str) -> tuple[str, ...]:
        argv = real(room, *arguments)
        cheap = "scripts.faults.cheap_evaluator"
        return tuple(cheap if word == "actors.evaluator" else word for word in argv) + (
            ("--work-s", "0.15") if room == "evaluator" else ()
        )

    child_specs._module = module
    return supervisor.main()


if __name__ == "__main__":
    code = main()
    from actors.cli import discard_unflushed_output

    discard_unflushed_output()
    sys.exit(code)
