"""Braces of compiled code in a Python f-string: single ones are Python's.  Pure.

`int v[2] = {1, 2};` in an f-string is Python that nobody meant, and becomes `(1, 2)` without an
error.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator

from actors.agents.replies import python_source
from actors.agents.replies.left_out_code import names_known_to

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LITERALS = ast.Constant | ast.Tuple | ast.Set | ast.Dict | ast.List
MAX_SHOWN = 40  # characters of an expression in a question


def brace_question(before: str, after: str) -> str:
    """Return a question about braces that edits brought into an f-string; "" for none.

    An expression that is a literal, or names what the file does not define, is likely compiled code
    whose braces were to be doubled.
    """
    old, new = python_source.parse(before), python_source.parse(after)
    if isinstance(new, str):
        return ""
    known = Counter() if isinstance(old, str) else Counter(_unlikely(old))
    for text, count in Counter(_unlikely(new)).items():
        if count > known[text]:
            return (
                f"`{{{text[:MAX_SHOWN]}}}` stands in an f-string, where single braces are Python's:"
                " double the braces of compiled code ({{ and }})"
            )
    return ""


def _unlikely(module: ast.Module) -> Iterator[str]:
    """Yield the expressions of long f-strings that are likely no Python."""
    anywhere, outside = names_known_to(module), names_known_to(_without_functions(module))
    inside = {
        id(string)
        for function in ast.walk(module)
        if isinstance(function, _FUNCTION)
        for string in ast.walk(function)
    }
    for string in ast.walk(module):
        if not isinstance(string, ast.JoinedStr) or string.lineno == string.end_lineno:
            continue
        known = anywhere if id(string) in inside else outside
        for part in string.values:
            if isinstance(part, ast.FormattedValue):
                names = [one for one in ast.walk(part.value) if isinstance(one, ast.Name)]
                own = {one.id for one in names if isinstance(one.ctx, ast.Store)} | known
                is_strange = "*" not in own and any(one.id not in own for one in names)
                if is_strange or isinstance(part.value, _LITERALS):
                    yield ast.unparse(part.value)


def _without_functions(module: ast.Module) -> ast.Module:
    """Return a module with the heads of its functions and classes alone."""
    return _Heads().visit(copy.deepcopy(module))  # type: ignore[no-any-return]


class _Heads(ast.NodeTransformer):
    """Empties functions and classes: their names do not hold outside of them."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return ast.FunctionDef(
            name=node.name, args=ast.arguments([], [], None, [], [], None, []), body=[],
            decorator_list=[],
        )  # fmt: skip

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return ast.ClassDef(name=node.name, bases=[], keywords=[], body=[], decorator_list=[])
