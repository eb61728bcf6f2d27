"""New lines for a function or class that was named: its decorators, and whether they define it.

Pure.  The name stands for the definition with its decorators, and models often write only what is
below these.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from actors.agents.replies import python_source
from actors.agents.replies.definitions import compiled_definitions

_HEAD = re.compile(r"(?P<indent>\s*)(?:async\s+def|def|class)\s+(?P<name>\w+)")


def with_decorators(lines: Sequence[str], replaced: Sequence[str]) -> list[str]:
    """Return new lines for the definition `replaced`, with its decorators if they leave them out.

    A model that wants other ones writes these.  Helpers, constants and comments may stand above the
    head of the definition.
    """
    marks = next((n for n, line in enumerate(replaced) if _HEAD.match(line)), 0)
    old = _HEAD.match(replaced[marks]) if marks else None
    module = python_source.parse(textwrap.dedent("\n".join(lines)) + "\n")
    if old is None or not replaced[0].lstrip().startswith("@") or isinstance(module, str):
        return [*lines]
    named = [
        one
        for one in module.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and one.name == old["name"]
    ]
    if not named or any(one.decorator_list for one in named):
        return [*lines]
    start = named[0].lineno - 1
    while start and lines[start - 1].lstrip().startswith("#"):  # what is said of the definition
        start -= 1
    if not any(line.strip() and not line.lstrip().startswith("#") for line in lines[:start]):
        start = 0
    return [*lines[:start], *(line.rstrip("\r") for line in replaced[:marks]), *lines[start:]]


def defines_something(lines: Sequence[str], replaced: Sequence[str]) -> bool:
    """Whether new lines for a definition have its name, or define another; no lines delete it.

    A body alone in place of a whole function has neither, nor has one with functions inside.
    """
    text = "\n".join(lines)
    old = next((head for head in map(_HEAD.match, replaced) if head), None)
    if old is None:
        if compiled_definitions(lines):
            return True
        names = re.findall(r"(\w+)\s*\(", "\n".join(replaced).partition("{")[0])
    else:
        heads = (head for head in map(_HEAD.match, lines) if head)
        if any(len(head["indent"]) <= len(old["indent"]) for head in heads):
            return True
        names = [old["name"]]
    return not text.strip() or any(re.search(rf"\b{name}\b", text) for name in names)
