"""Whether a candidate is the task's own module under another name.

Both classes are written in one normal form and compared as text.  The normal form leaves out what
has no effect: comments, docstrings, annotations, code that can't run, the names of classes,
functions, arguments and local variables, and the style of imports.  It contains everything that may
have an effect: decorators, the order of statements, and the file's other actions at import.  In
doubt the two differ.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from actors.evaluator.labels.syntax import DeadCodeRemover

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MAX_ALIASES = 20  # `class ModelNew(Model)` without a body, `ModelNew = Model`


def is_renamed(candidate: str, task: str) -> bool:
    """Whether `ModelNew` of `candidate` equals `Model` of `task` except for its name."""
    new, old = _normal_form(candidate, "ModelNew"), _normal_form(task, "Model")
    if new is None or old is None:
        return False
    return new.parts == old.parts and new.effects <= old.effects


@dataclass(frozen=True)
class _NormalForm:
    """A class in the normal form."""

    parts: tuple[str, ...]  # the class, then the definitions that it uses, in the order of use
    effects: frozenset[str]  # the file's other statements with an effect at import


def _normal_form(source: str, class_name: str) -> _NormalForm | None:
    module = _ParsedFile(source)
    found = module.class_named(class_name)
    return None if found is None else module.normal_form(found)


class _ParsedFile:
    """One file: the definitions of its names, and its effects at import."""

    def __init__(self, source: str) -> None:
        self._tree: ast.Module = DeadCodeRemover().visit(ast.parse(source))
        self._imports: dict[str, str] = {}  # the name here -> its full name
        self._defined: dict[str, ast.stmt] = {}
        for statement in self._tree.body:
            self._define(statement)

    def _define(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import():
                for alias in statement.names:
                    top = alias.name.partition(".")[0]
                    self._imports[alias.asname or top] = alias.name if alias.asname else top
            case ast.ImportFrom():
                for alias in statement.names:
                    full = f"{'.' * statement.level}{statement.module or ''}.{alias.name}"
                    self._imports[alias.asname or alias.name] = full
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._defined[statement.name] = statement
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                self._defined[name] = statement

    def normal_form(self, found: ast.ClassDef) -> _NormalForm:
        """Return a class, all that it uses, and the file's other effects at import."""
        names = _NameNormalizer(self._imports, self._defined, found)
        parts = [names.written(found)]
        while names.waiting:
            parts.append(names.written(names.waiting.pop(0)))
        effects = [names.written(one) for one in [*self._effects(names)]]
        return _NormalForm(parts=tuple(parts), effects=frozenset(effects))

    def class_named(self, name: str) -> ast.ClassDef | None:
        """Return the class of a name, through aliases and empty subclasses."""
        for _ in range(MAX_ALIASES):
            match self._defined.get(name):
                case ast.Assign(value=ast.Name(id=other)):
                    name = other
                case (
                    ast.ClassDef(bases=[ast.Name(id=other)], keywords=[], decorator_list=[]) as one
                ):
                    if other not in self._defined or _without_docstring(one.body):
                        return one
                    name = other
                case ast.ClassDef() as one:
                    return one
                case _:
                    return None
        return None

    def _effects(self, names: _NameNormalizer) -> Iterator[ast.stmt]:
        """Yield statements that may affect more than the class: calls, settings, control flow."""
        for statement in self._tree.body:
            match statement:
                case ast.Import() | ast.ImportFrom() | ast.Pass():
                    continue
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    continue
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign(target=ast.Name()):
                    used = names.has_written(statement)
                    calls = any(isinstance(node, ast.Call) for node in ast.walk(statement))
                    if used or not calls:
                        continue
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                    continue
            yield statement


class _NameNormalizer(ast.NodeTransformer):
    """Replaces names by numbers in the order of their first use; changes copies only."""

    def __init__(
        self, imports: dict[str, str], defined: dict[str, ast.stmt], top: ast.ClassDef
    ) -> None:
        self._imports = imports
        self._defined = defined
        self._globals: dict[str, str] = {}
        self._written: set[int] = {id(top)}
        self._locals: list[dict[str, str]] = []
        self._top = top
        self.waiting: list[ast.stmt] = []  # definitions that are used and not yet written

    def written(self, statement: ast.stmt) -> str:
        """Return a statement in normal form."""
        self._written.add(id(statement))
        own = copy.deepcopy(statement)
        if isinstance(own, Definition):
            own.name = self._global_name(own.name)
        return ast.dump(self.visit(own))

    def has_written(self, statement: ast.stmt) -> bool:
        """Whether `written` has returned this statement."""
        return id(statement) in self._written

    def _global_name(self, name: str) -> str:
        if self._defined.get(name) is self._top:
            return "<class>"
        return self._globals.setdefault(name, f"<{len(self._globals)}>")

    # --- scopes ------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def _function(self, node: FunctionNode) -> ast.AST:
        if not isinstance(node, ast.Lambda):
            node.body = _without_docstring(node.body)
            node.returns = None
            if self._locals:
                node.name = self._name(node.name)
        self._locals.append({name: f"<{n} of {len(self._locals)}>" for n, name in _bound(node)})
        self.generic_visit(node)
        self._locals.pop()
        return node

    # --- names -------------------------------------------------------------------------------

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=self._name(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self._name(node.id), ctx=ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node = ast.Attribute(value=self.visit(node.value), attr=node.attr, ctx=ast.Load())
        if isinstance(node.value, ast.Name) and node.value.id.startswith("import "):
            return ast.Name(id=f"{node.value.id}.{node.attr}", ctx=ast.Load())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # `super(ModelNew, self)` is `super()`.
        if isinstance(node.func, ast.Name) and node.func.id == "super" and len(node.args) == 2:
            node.args = []
        return self.generic_visit(node)

    def _name(self, name: str) -> str:
        for scope in reversed(self._locals):
            if name in scope:
                return scope[name]
        if name in self._imports:
            return f"import {self._imports[name]}"
        definition = self._defined.get(name)
        if definition is None:
            return name
        if id(definition) not in self._written:
            self._written.add(id(definition))
            self.waiting.append(definition)
        return self._global_name(name)


def _bound(function: FunctionNode) -> Iterator[tuple[int, str]]:
    """Yield the names that a function binds, numbered in the order of their appearance."""
    found: dict[str, None] = {}
    outer: set[str] = set()
    for node in _inside(function):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.setdefault(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.setdefault(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                outer.update(names)
    return enumerate(name for name in found if name not in outer)


def _inside(function: FunctionNode) -> Iterator[ast.AST]:
    """Yield a function's nodes in the order of the source, without those of inner functions."""
    todo = [*ast.iter_child_nodes(function)][::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, SCOPES):
            todo += [*ast.iter_child_nodes(node)][::-1]


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements without those that have no effect: a docstring, `pass`."""
    return [
        one
        for one in body
        if not isinstance(one, ast.Pass)
        and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
