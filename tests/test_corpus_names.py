"""The hostile candidates attack what is there: a name of ours that they use exists.

A candidate that patches a function which was renamed fails by itself, is not believed, and tests
nothing.  So each attribute of a module of ours that a candidate reads or replaces is looked up
here, and each order that it waits for by its class name.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.evaluator.ipc import orders, referee_orders, runner_orders

CANDIDATES = [
    path
    for path in sorted((Path(__file__).parent / "corpus").glob("**/*.py"))
    if path.parent.name in ("hostile", "honest") and '"actors.' in path.read_text(encoding="utf-8")
]
ORDERS = {name for module in (orders, referee_orders, runner_orders) for name in vars(module)}
RUNNER = Path(__file__).parent.parent / "actors" / "evaluator" / "children" / "runner.py"


class OursInUse:
    """The objects of ours that the names of one candidate stand for."""

    def __init__(self) -> None:
        self.known: dict[str, object] = {}
        self.missing: list[str] = []

    def resolve(self, node: ast.expr) -> object | None:
        """Return the module, class or function of ours that an expression is; None for others."""
        match node:
            case ast.Name(id=name):
                return self.known.get(name)
            case (
                ast.Subscript(
                    value=ast.Attribute(attr="modules"), slice=ast.Constant(value=str(module))
                )
                | ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="modules"), attr="get"),
                    args=[ast.Constant(value=str(module))],
                )
            ):
                return importlib.import_module(module) if module.startswith("actors.") else None
            case ast.Attribute(value=base, attr=name):
                owner = self.resolve(base)
                if owner is None:
                    return None
                if not hasattr(owner, name):
                    self.missing.append(ast.unparse(node))
                    return None
                found: object = getattr(owner, name)
                return found
        return None

    def bind(self, assign: ast.Assign) -> None:
        """Remember the names that are given to objects of ours."""
        values = assign.value.elts if isinstance(assign.value, ast.Tuple) else [assign.value]
        for target in assign.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for name, value in zip(names, values, strict=False):
                found = self.resolve(value)
                if isinstance(name, ast.Name) and found is not None:
                    self.known[name.id] = found


def awaited_orders(tree: ast.Module) -> Iterator[str]:
    """Yield the class names of orders that a candidate compares `type(order).__name__` with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and ast.unparse(node.left).startswith(
            ("type(order).__name__", "type(said).__name__")
        ):
            for each in ast.walk(node.comparators[0]):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value


def private_attributes(tree: ast.AST) -> set[str]:
    """Return the names of attributes of `self` that begin with an underscore."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr.startswith("_")
    }


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.stem)
def test_what_a_candidate_attacks_is_there(path: Path) -> None:
    """Each name of ours that it patches, calls or waits for exists under this name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ours = OursInUse()
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            ours.bind(statement)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            ours.resolve(node)

    assert [] == ours.missing
    assert set() == set(awaited_orders(tree)) - ORDERS
    assert set() == private_attributes(tree) - private_attributes(
        ast.parse(RUNNER.read_text(encoding="utf-8"))
    )
