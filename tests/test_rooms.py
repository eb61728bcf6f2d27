"""The rooms: who may import what.  A reach across a wall fails here, by name."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
OURS = {"protocol", "actors", "prompts", "scripts", "supervisor"}

# room -> what it may import besides the standard library and itself
ROOMS: dict[str, set[str]] = {
    "protocol": {"msgspec", "zmq"},
    "actors/coordinator": {
        "msgspec", "zmq", "structlog", "sortedcontainers",
        "protocol", "actors.log", "actors.identity", "actors.cli", "actors.failpoints",
        "actors.commands",
        "actors.lifeline",
    },
    "actors/agents": {
        "msgspec", "structlog", "anthropic", "httpx2",
        "protocol", "prompts", "actors.actor", "actors.work_context", "actors.identity",
        "actors.log",
        "actors.cli", "actors.failpoints",
    },
    "actors/release": {"protocol", "torch"},
    "actors/evaluator": {
        "msgspec", "torch", "structlog", "pynvml",
        "protocol", "actors.release", "actors.actor", "actors.work_context", "actors.identity",
        "actors.log",
        "actors.cli", "actors.failpoints", "actors.commands", "actors.installation",
        "actors.early_signals", "actors.task_imports",
    },
    "actors/launcher": {
        "msgspec", "structlog", "parsl",
        "protocol", "actors.log", "actors.identity", "actors.cli", "actors.installation",
        "actors.lifeline",
    },
    "actors/supervisor": {
        "msgspec", "zmq", "rich", "structlog", "setproctitle",
        "protocol", "actors.release", "actors.log", "actors.cli", "actors.failpoints",
        "actors.commands", "actors.installation", "actors.task_imports",
        "actors.agents.models.registry",
        "scripts.report",
        "actors.procfs",
    },
}  # fmt: skip
# prompts/examples/*.py are texts that models read, not code that runs here.
ONLY_HERE = {
    "anthropic": {"actors/agents/models"},
    # The judge's own process never imports torch: its children do, who may crash.
    "torch": {
        "actors/evaluator/children",
        "actors/release/guard",  # texts that are copied into winners, never imported
        "actors/evaluator/fastbuild",
        "actors/evaluator/children/correctness.py",
        "actors/evaluator/devices/device.py",
        "prompts/examples",
        "scripts/benchmarks",
    },
    # An agent reads a run that is over (`--model replay:RUN`), never the one that it works for.
    "sqlite3": {
        "actors/coordinator",
        "actors/supervisor",
        "supervisor.py",
        "actors/agents/models/replay_model.py",
        "scripts",
    },
}


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def allowed(name: str, room: str) -> bool:
    own = room.replace("/", ".")
    permitted = ROOMS[room] | {own}
    if name.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(name == word or name.startswith(word + ".") for word in permitted)


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    """Coordinator without torch or a model, agents without torch, protocol without anybody."""
    reached = {
        f"{path.relative_to(TOP)}: {name}"
        for path in (TOP / room).rglob("*.py")
        for name in imports(path)
        if not allowed(name, room)
    }

    assert set() == reached


@pytest.mark.parametrize("package", sorted(ONLY_HERE))
def test_a_package_stays_in_its_rooms(package: str) -> None:
    """The key's library, the candidate's library and the database each have their own place."""
    strays = {
        str(path.relative_to(TOP))
        for top in sorted(OURS)
        for path in [*(TOP / top).rglob("*.py"), TOP / f"{top}.py"]
        if path.exists()
        and any(name.split(".")[0] == package for name in imports(path))
        and not any(str(path.relative_to(TOP)).startswith(room) for room in ONLY_HERE[package])
    }

    assert set() == strays
