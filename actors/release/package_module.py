"""The text of a package's module `drop_in`: the guard around the package's own modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from importlib import resources

from actors.release.composition import GUARD_TEXTS, MARKER, UnreleasableError

REPLACED = {"kernel_module.py": "kernel_import.py"}  # a package has files in place of one text
LAST_TEXTS = ("package_guard.py", "functional_operator.py")
HASH = re.compile(r""""hash": ['"][^'"]*['"]""")
LIMITS = re.compile(r""""limits": (\([^)]*\))""")
HEAD = '''"""{title}: `ModelNew`, a drop-in for `Model`, and the operator `forward`."""

# ruff: noqa
# mypy: ignore-errors

import importlib as _importlib
import os as _os

import torch as _torch

from .original import Model

{judged}

# --- the guard: the kernels run where they are right, the plain forward elsewhere ---

{texts}
'''


def package_module(title: str, judged: str, namespace: str) -> str:
    """Return the module's source.

    Args:
        title: one line about the winner.
        judged: the assignment of `_JUDGED`, from a winner's file.
        namespace: of the package's operators, after `stark_`.
    """
    named, count = HASH.subn(f'"hash": "{namespace}"', judged)
    if count != 1:
        raise UnreleasableError("the winner's file does not say what was judged")
    folder = resources.files(__package__).joinpath("guard")
    names = [REPLACED.get(name, name) for name in (*GUARD_TEXTS, *LAST_TEXTS)]
    texts = [folder.joinpath(name).read_text(encoding="utf-8") for name in names]
    pieces = "\n\n\n".join(text.partition(MARKER)[2].strip() for text in texts)
    return HEAD.format(title=title, judged=named, texts=pieces)


def limits_in(judged: str) -> tuple[str, ...]:
    """Return the limits that a `_JUDGED` text has: uses in which the plain forward runs."""
    return tuple(ast.literal_eval(_limits_place(judged)[1]))


def with_limits(judged: str, limits: Sequence[str]) -> str:
    """Return a `_JUDGED` text with these limits in place of its own."""
    found = _limits_place(judged)
    return f"{judged[: found.start(1)]}{tuple(limits)!r}{judged[found.end(1) :]}"


def _limits_place(judged: str) -> re.Match[str]:
    found = LIMITS.search(judged)
    if found is None:
        raise UnreleasableError("the winner's file does not say which limits it has")
    return found
