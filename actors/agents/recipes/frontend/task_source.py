"""A task's file as syntax: its imports, classes, functions and constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actors.agents.recipes.frontend.symbolic_values import Symbol, UnsupportedSourceError

BASES_WITHOUT_EFFECT = (
    "Module",
    "object",
    "ABC",
    "Generic",
    "Protocol",
)  # bases that add no forward
TASK_GETTERS = ("get_inputs", "get_init_inputs")


class TaskSource:
    """The parsed file; `model` is the class that candidates make faster."""

    def __init__(self, text: str) -> None:
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise UnsupportedSourceError(
                f"the task's source does not parse (line {error.lineno})"
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise UnsupportedSourceError(f"the task's source does not parse ({error})") from error
        self.text = text
        self.lines = text.splitlines()
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.patched: dict[tuple[str, str], ast.expr] = {}  # `Model.forward = …`, by class
        self.imports: dict[str, Symbol] = {}
        self.star_imports: list[str] = []  # modules of `from … import *`
        self.conditional_names: set[str] = (
            set()
        )  # names bound where it depends: in an if, try, with, for
        self.is_one_plain_class = (
            True  # whether Model is one class of this file, with all that it is
        )
        self._bind(self.tree.body)
        if "Model" not in self.classes:
            if "Model" in self.imports:
                raise UnsupportedSourceError(
                    "Model is imported, and the rule book reads only the task's own file"
                    f" ({self.describe_line(self._line_of('Model'))})"
                )
            raise UnsupportedSourceError("the task defines no class named Model")
        self.model = self.classes["Model"]
        self._look_at_model()

    def _bind(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.ClassDef():
                    self.classes[node.name] = node
                case ast.FunctionDef():
                    self.functions[node.name] = node
                case ast.Import() | ast.ImportFrom():
                    self.bind_import(node, self.imports)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)) if (
                    other in self.classes
                ):
                    self.classes[name] = self.classes[other]
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id=name), attr=attribute)]
                ) if name in self.classes:
                    self.patched[self.classes[name].name, attribute] = node.value
                case ast.If(test=test) if is_main(test):
                    pass
                case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While() | ast.TryStar():
                    self.conditional_names |= set(bound_names(node))

    def bind_import(self, node: ast.stmt, names: dict[str, Symbol]) -> None:
        """Bind each imported name to its symbol."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                own = alias.asname or name
                names[own] = Symbol(name=name, text=own)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    self.star_imports.append(node.module or "")
                    continue
                own = alias.asname or alias.name
                names[own] = Symbol(name=f"{node.module}.{alias.name}", text=own)

    def _look_at_model(self) -> None:
        """Raise where Model has code in other files; find out whether it can be copied as it is."""
        for body in self.mro(self.model):
            for base in body.bases:
                name = ast.unparse(base)
                if (
                    name.split("[")[0].rpartition(".")[2] in BASES_WITHOUT_EFFECT
                    or name in self.classes
                ):
                    continue
                raise UnsupportedSourceError(
                    f"class {body.name} inherits from {name}, whose code is not in this file"
                    f" ({self.describe_line(body.lineno)})"
                )
        patched = any(name == self.model.name for name, _ in self.patched)
        self.is_one_plain_class = (
            self.model.name == "Model"
            and self.model in self.tree.body
            and sum(isinstance(n, ast.ClassDef) and n.name == "Model" for n in self.tree.body) == 1
            and len(self.mro(self.model)) == 1
            and not patched
            and not self.model.decorator_list
            and method(self.model, "forward") is not None
            and not any(self._needs_model(node) for node in self.tree.body)
        )

    def _needs_model(self, node: ast.stmt) -> bool:
        """Whether a statement besides the class needs Model while the file is imported."""
        if isinstance(node, ast.FunctionDef) or node is self.model:
            return False
        inner = node.bases if isinstance(node, ast.ClassDef) else [node]
        return any(
            isinstance(name, ast.Name) and name.id == "Model"
            for each in inner
            for name in ast.walk(each)
        ) and isinstance(node, ast.ClassDef)

    def assignments(self) -> list[ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr]:
        """Module-level assignments and expression statements, in order."""
        kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
        return [n for n in self.tree.body if isinstance(n, kinds)]

    def mro(self, body: ast.ClassDef, below: tuple[ast.ClassDef, ...] = ()) -> list[ast.ClassDef]:
        """The class and its bases in this file, in Python's method resolution order."""
        inner = [self.classes.get(b.id) for b in body.bases if isinstance(b, ast.Name)]
        bases = [each for each in inner if each is not None and each is not body]
        if body in below:
            raise UnsupportedSourceError(f"class {body.name} inherits from itself")
        rows = [*(self.mro(base, (*below, body)) for base in bases), bases]
        found = [body]
        while any(rows):
            heads = [row[0] for row in rows if row]
            free = [each for each in heads if not any(each in row[1:] for row in rows)]
            if not free:
                raise UnsupportedSourceError(f"the bases of class {body.name} have no order")
            found.append(free[0])
            rows = [[each for each in row if each is not free[0]] for row in rows]
        return found

    def method(
        self, body: ast.ClassDef, name: str, above: ast.ClassDef | None = None
    ) -> tuple[ast.FunctionDef, ast.ClassDef] | None:
        """The method of this name and the class that defines it; `above`: only its bases count."""
        order = self.mro(body)
        if above is not None:
            order = order[order.index(above) + 1 :] if above in order else []
        for each in order:
            assigned = self.patched.get((each.name, name))
            if isinstance(assigned, ast.Name) and assigned.id in self.functions:
                return self.functions[assigned.id], each
            if assigned is not None:
                raise UnsupportedSourceError(
                    f"{each.name}.{name} is set to {ast.unparse(assigned)}, which the rule book"
                    f" can't follow ({self.describe_line(assigned.lineno)})"
                )
            found = method(each, name)
            if found is not None:
                return found, each
        return None

    def constructor(self, body: ast.ClassDef) -> list[str]:
        """The names of the constructor's parameters, in order."""
        found = self.method(body, "__init__")
        if found is None:
            return []
        spec = found[0].args
        more = [arg for arg in (spec.vararg, spec.kwarg) if arg is not None]
        return [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *more)][1:]

    def describe_line(self, line: int) -> str:
        """A line of the file for the user: its number and its text."""
        if not 0 < line <= len(self.lines):
            return f"line {line}"
        text = " ".join(self.lines[line - 1].split())
        return f"line {line}: {text[:77] + '…' if len(text) > 78 else text}"

    def _line_of(self, name: str) -> int:
        for node in self.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom) and any(
                name in (alias.asname, alias.name) for alias in node.names
            ):
                return node.lineno
        return 0


def is_main(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    return any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test))


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a statement of the file may bind in the file's namespace."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
        return
    for inner in ast.iter_child_nodes(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=own):
                yield own or name.split(".")[0]
            case _:
                yield from bound_names(inner)


def method(body: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The class's own method of this name; if it has several, the last one."""
    for node in reversed(body.body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None
