"""Queries on Python's syntax trees: names, calls, bindings, code that can't run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

LIBRARY_NAMES = frozenset(["torch", "F", "nn", "functional", "math", "np", "numpy", "tl", "triton"])


def last_name(expression: ast.expr) -> str:
    """Return "relu" for `torch.relu`, `relu` and `torch.relu()`."""
    match expression:
        case ast.Name():
            return expression.id
        case ast.Attribute():
            return expression.attr
        case ast.Call():
            return last_name(expression.func)
        case ast.Subscript():
            return last_name(expression.value)
        case _:
            return ""


def variables_read(expression: ast.expr) -> set[str]:
    """Return the names of variables that an expression reads."""
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


class DeadCodeRemover(ast.NodeTransformer):
    """Removes code that can't run: `if False`, statements after a return."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        never = isinstance(node.test, ast.Constant) and not node.test.value
        return node.orelse if never else node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for _name, block in ast.iter_fields(node):
            if isinstance(block, list):
                ends = (ast.Return, ast.Raise, ast.Break, ast.Continue)
                last = next((i for i, part in enumerate(block) if isinstance(part, ends)), None)
                if last is not None:
                    del block[last + 1 :]
        return super().generic_visit(node)


def calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield every call in `tree`."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_library_name(node: ast.Attribute) -> bool:
    """Whether `node` is a name of torch or of another library: `torch.relu`, `F.relu`."""
    first: ast.expr = node
    while isinstance(first, ast.Attribute):
        first = first.value
    return isinstance(first, ast.Name) and first.id in LIBRARY_NAMES


def identifiers(tree: ast.AST, *, own: bool = False) -> set[str]:
    """Return every name and attribute in `tree`; `own`: without those of libraries."""
    found: set[str] = set()
    todo = [tree]
    while todo:
        node = todo.pop()
        chain: set[str] = set()
        while isinstance(node, ast.Attribute):
            chain.add(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            chain = {node.id} if own and node.id in LIBRARY_NAMES else {node.id, *chain}
        found |= chain
        todo.extend(ast.iter_child_nodes(node))
    return found


def bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a statement binds, each with its value; `a.b[c] = v` binds b."""
    targets: list[ast.expr]
    match node:
        case ast.Assign(value=value):
            targets = node.targets
        case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            targets = [node.target]
        case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value]):
            targets = [owner]  # a list of kernels holds kernels
        case _:
            return
    for target in targets:
        for part in _parts(target):
            name = last_name(part)
            if name:
                yield name, value


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
