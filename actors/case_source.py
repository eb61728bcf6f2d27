"""The text of a task for one of its cases: other constants in the same source.  Pure.

What a case may set is a constant at the top of the file (`B, T = 4, 128`) or the default of a
parameter of `get_inputs` or `get_init_inputs`.  Nothing else changes, no line moves.  A constant
that a class uses is refused: a candidate has its own text and would not see the change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from protocol.values import Task, TaskCase

INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs")


class CaseSourceError(ValueError):
    """A case sets what the task's text does not have: one line."""


def case_task(task: Task, case: TaskCase) -> Task:
    """Return the task of one case, whose text has the case's constants."""
    source = with_constants(task.source, case)
    return replace(task, source=source, cases=(), case=case)


def with_constants(source: str, case: TaskCase) -> str:
    """Return the source with the case's constants; raise CaseSourceError where it has no such."""
    if not case.constants:
        return source
    tree = ast.parse(source)
    places = dict(_settable(tree))
    for name in case.constants:
        _require_settable(name, tree, places, case.name)
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = source.encode()
    # From the last place to the first, so that earlier places stay where they are.
    found = sorted(((places[name], literal) for name, literal in case.constants.items()),
                   key=lambda pair: -_begin(pair[0], starts))  # fmt: skip
    for node, literal in found:
        begin = _begin(node, starts)
        end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        text = text[:begin] + literal.encode() + text[end:]
    return text.decode()


def _begin(node: ast.expr, starts: list[int]) -> int:
    return starts[node.lineno - 1] + node.col_offset


def _require_settable(name: str, tree: ast.Module, places: dict[str, ast.expr], case: str) -> None:
    if name not in places:
        known = ", ".join(sorted(places)) or "none"
        raise CaseSourceError(
            f"case {case!r} sets {name}: the task's file has no constant of that name and no "
            f"parameter of get_inputs() (it has: {known})"
        )
    used = next(_classes_using(tree, _derived_names(tree, name)), "")
    if used:
        raise CaseSourceError(
            f"case {case!r} sets {name}, which the class {used} uses: a candidate would not see "
            "the change; hand the value to the class by get_init_inputs()"
        )


def _settable(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a case may set, with the literal that stands for each."""
    assigned = [name for node in tree.body for name, _value in _assignments(node)]
    for node in tree.body:
        for name, value in _assignments(node):
            if value is not None and _is_literal(value) and assigned.count(name) == 1:
                yield name, value
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in INPUT_FUNCTIONS:
            arguments = node.args
            pairs = zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
            yield from ((each.arg, default) for each, default in pairs)
            for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
                if value is not None:
                    yield each.arg, value


def _assignments(node: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a statement assigns, each with its own part of the value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, value
                elif isinstance(target, ast.Tuple):
                    parts = value.elts if isinstance(value, ast.Tuple) else []
                    same = len(parts) == len(target.elts)
                    for place, each in enumerate(target.elts):
                        if isinstance(each, ast.Name):
                            yield each.id, parts[place] if same else None
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name, None


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _derived_names(tree: ast.Module, name: str) -> set[str]:
    """Return `name` and the constants at the top of the file that are computed from it."""
    names = {name}
    while True:
        more = {
            each
            for node in tree.body
            for each, value in _assignments(node)
            if value is not None and names & _names_in(value)
        }
        if more <= names:
            return names
        names |= more


def _classes_using(tree: ast.Module, names: set[str]) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and names & _names_in(node):
            yield node.name


def _names_in(node: ast.AST) -> set[str]:
    """Return the names that a node reads and does not define itself as parameters."""
    parameters = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    read = {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }
    stored = {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return read - parameters - stored
