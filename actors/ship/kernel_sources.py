"""A candidate's source as a module of a package: its builds go through the package's `extensions`.

Only imports of `torch.utils.cpp_extension` are rewritten, by the positions in the syntax tree; all
other text stays.  A candidate that reaches that module in another way compiles with torch itself.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

BUILDER = "torch.utils.cpp_extension"
OWN = "extensions"
ALIAS = "_extensions"


class _Edit(NamedTuple):
    """A replacement of a piece of the text."""

    first: tuple[int, int]  # line from 1, column in bytes
    last: tuple[int, int]
    text: str


def packaged(source: str) -> str:
    """Return the source with `from ..extensions import …` in place of torch's module."""
    tree = ast.parse(source)
    edits = [edit for node in ast.walk(tree) for edit in _edits(node)]
    if any(edit.text.startswith(ALIAS) for edit in edits):
        place = _after_docstring(tree)
        edits.append(_Edit(place, place, f"from .. import {OWN} as {ALIAS}\n"))
    lines = source.encode().splitlines(keepends=True)
    for edit in sorted(edits, reverse=True):
        (row, column), (end_row, end_column) = edit.first, edit.last
        before = lines[row - 1][:column] if row <= len(lines) else b""
        after = lines[end_row - 1][end_column:] if end_row <= len(lines) else b""
        lines[row - 1 : end_row] = [before + edit.text.encode() + after]
    return b"".join(lines).decode()


def _edits(node: ast.AST) -> list[_Edit]:
    """Return what has to change at one node."""
    match node:
        case ast.ImportFrom(module="torch.utils.cpp_extension", level=0):
            names = ", ".join(_named(alias) for alias in node.names)
            return [_whole(node, f"from ..{OWN} import {names}")]
        case ast.ImportFrom(module="torch.utils", level=0):
            kept = [_named(alias) for alias in node.names if alias.name != "cpp_extension"]
            own = [alias for alias in node.names if alias.name == "cpp_extension"]
            if own:
                texts = [f"from torch.utils import {', '.join(kept)}"] if kept else []
                texts += [f"from .. import {OWN} as {own[0].asname or own[0].name}"]
                return [_whole(node, "; ".join(texts))]
        case ast.Import():
            texts = []
            for alias in node.names:
                if alias.name == BUILDER and alias.asname:
                    texts.append(f"from .. import {OWN} as {alias.asname}")
                else:
                    texts.append(f"import {_named(alias)}")
            if any(alias.name == BUILDER and alias.asname for alias in node.names):
                return [_whole(node, "; ".join(texts))]
        case ast.Attribute() if ast.unparse(node) == BUILDER:
            return [_whole(node, ALIAS)]
    return []


def _named(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _whole(node: ast.stmt | ast.expr, text: str) -> _Edit:
    assert node.end_lineno is not None  # noqa: S101  # ast.parse sets both
    assert node.end_col_offset is not None  # noqa: S101
    return _Edit((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


def _after_docstring(tree: ast.Module) -> tuple[int, int]:
    """Return where the first statement begins, docstring and `__future__` imports left out."""
    for number, node in enumerate(tree.body):
        docstring = number == 0 and isinstance(node, ast.Expr)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            return node.lineno, 0
    return 1, 0
