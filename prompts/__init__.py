"""The text that models read, reviewed like code."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def read(name: str) -> str:
    """Return the prompt file called `name`, such as "planner.md" or "examples/cpp-before.py"."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
