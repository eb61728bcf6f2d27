"""Reads of /proc about processes: parents, children, environments.

The supervisor uses it to find orphans.  A process may vanish between two reads; then it is missing
in the answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def parent_pids() -> dict[int, int]:
    """Return pid -> parent's pid of all processes that can be seen, zombies included."""
    found: dict[int, int] = {}
    for name in os.listdir(PROC):  # noqa: PTH208  # read four times a second on busy machines
        if name.isdigit():
            parent = parent_of(int(name))
            if parent is not None:
                found[int(name)] = parent
    return found


def parent_of(pid: int) -> int | None:
    """Return the parent's pid, or None when there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def is_zombie(pid: int) -> bool:
    """Whether `pid` has ended and its parent has not waited for it."""
    fields = _stat(pid)
    return bool(fields) and fields[0] in "ZX"


def is_stopped(pid: int) -> bool:
    """Whether `pid` was stopped by a signal and not continued."""
    fields = _stat(pid)
    return bool(fields) and fields[0] == "T"


def _stat(pid: int) -> list[str]:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The name in parentheses may contain spaces and parentheses: cut after the last one.
    return text.rpartition(")")[2].split()


def children_of(pid: int, known: dict[int, int] | None = None) -> set[int]:
    """Return the direct children of `pid`, zombies included."""
    return {child for child, parent in (known or parent_pids()).items() if parent == pid}


def with_descendants(roots: Iterable[int], known: dict[int, int]) -> set[int]:
    """Return `roots` and everything below them."""
    below: dict[int, list[int]] = {}
    for child, parent in known.items():
        below.setdefault(parent, []).append(child)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(below.get(pid, ()))
    return found


def ancestors(pid: int, known: dict[int, int]) -> set[int]:
    """Return `pid` and all above it."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = known.get(pid, 0)
    return found


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether `pid` was started with `name=value` in its environment."""
    try:
        block = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{name}={value}".encode() in block.split(b"\0")
