"""What the Python code of a call does besides computing: prints, and changed globals or closures.

Seen are the functions of Python that are entered, outside of
libraries, while the context is open, and
the values that they name.  What they change elsewhere, such as in a file, is not seen.
"""

from __future__ import annotations

import builtins
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

COUNTED = (list, dict, set)
LIBRARIES = sys.stdlib_module_names | {"torch", "actors"}
PLAIN = (int, float, str, bool, type(None))


class PythonEffects:
    """Notes what functions do while they are observed."""

    def __init__(self) -> None:
        self.is_paused: Callable[[], bool] = lambda: False
        self._printed = False
        self._codes: set[CodeType] = set()
        self._seen: list[tuple[str, Callable[[], object], object]] = []

    def found(self) -> str:
        """Return the first effect as a clause; "" when there is none."""
        if self._printed:
            return "it prints"
        for name, mark, before in self._seen:
            if mark() != before:
                return f"it changes the global {name}"
        return ""

    def notice(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take one event of sys.setprofile."""
        if self.is_paused():
            return
        if event == "c_call" and argument is builtins.print:
            self._printed |= not _is_of_library(frame)
        elif event == "call" and frame.f_code not in self._codes and not _is_of_library(frame):
            self._codes.add(frame.f_code)
            self._note(frame)

    def _note(self, frame: FrameType) -> None:
        for name in frame.f_code.co_names:
            if name in frame.f_globals:
                self._mark(name, frame.f_globals)
        for name in frame.f_code.co_freevars:
            if name in frame.f_locals:
                value = frame.f_locals[name]
                self._seen.append((name, lambda value=value: _mark(value), _mark(value)))  # type: ignore[misc]

    def _mark(self, name: str, names: dict[str, Any]) -> None:
        def mark() -> object:
            return _mark(names.get(name))

        self._seen.append((name, mark, mark()))


def _mark(value: Any) -> object:
    """Return what changes when a value does: its identity, its size, its plain attributes."""
    size = len(value) if isinstance(value, COUNTED) else 0
    if isinstance(value, dict):
        plain = [(key, each) for key, each in value.items() if isinstance(each, PLAIN)]
    elif type(value).__module__ == "builtins" or isinstance(value, type):
        plain = []
    else:
        held = getattr(value, "__dict__", {})
        plain = [(key, each) for key, each in held.items() if isinstance(each, PLAIN)]
    return value if isinstance(value, PLAIN) else id(value), size, plain


def _is_of_library(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in LIBRARIES


@contextmanager
def python_effects() -> Iterator[PythonEffects]:
    """Observe the functions of this thread while it is open."""
    effects = PythonEffects()
    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # it calls functions of others, in any line
    sys.setprofile(effects.notice)
    try:
        yield effects
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
