"""A task's file as syntax: its imports, classes, functions and constants."""

from __future__ import annotations

import ast

from actors.agents.recipes.objects import Symbol, Unreadable


class Source:
    """The parsed file; `model` is the class that is to be made faster."""

    def __init__(self, text: str) -> None:
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise Unreadable(f"the task's source does not parse (line {error.lineno})") from error
        self.text = text
        self.classes = {n.name: n for n in self.tree.body if isinstance(n, ast.ClassDef)}
        self.functions = {n.name: n for n in self.tree.body if isinstance(n, ast.FunctionDef)}
        self.imports = imports(self.tree)
        if "Model" not in self.classes:
            raise Unreadable("the task defines no class named Model")
        self.model = self.classes["Model"]

    def assignments(self) -> list[ast.Assign | ast.AnnAssign]:
        """Module-level constants, in order."""
        return [n for n in self.tree.body if isinstance(n, ast.Assign | ast.AnnAssign)]


def imports(tree: ast.Module) -> dict[str, Symbol]:
    """What each imported name stands for."""
    names: dict[str, Symbol] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                names[alias.asname or name] = Symbol(name=name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = Symbol(name=f"{node.module}.{alias.name}")
    return names


def method(body: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The class's own method of this name."""
    for node in body.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def constructor(body: ast.ClassDef) -> list[str]:
    """The names of what the class's constructor takes, in order."""
    init = method(body, "__init__")
    if init is None:
        return []
    spec = init.args
    return [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)][1:]
