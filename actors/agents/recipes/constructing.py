"""Constructors, statement by statement: what one does to the module, without running it.

What is not understood hides what it may have changed, so that nothing wrong is taken for known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actors.agents.recipes.expressions import Expressions
from actors.agents.recipes.frames import Tensor
from actors.agents.recipes.graph import Unknown
from actors.agents.recipes.members import Names
from actors.agents.recipes.objects import (
    Endless,
    Function,
    Hidden,
    Meta,
    Module,
    Parameter,
    Parent,
    Unreadable,
)
from actors.agents.recipes.reaching import set_evaluating

OUTSIDE = ("half", "bfloat16", "double", "to", "type", "register_forward_hook",
           "register_forward_pre_hook", "share_memory", "compile")  # fmt: skip
NARROW = ("dtype", "float16", "float64", "bfloat16", "half", "double", "Half", "Double")
Returned = tuple[object]  # what a function returned, wrapped: None would be ambiguous


class Constructing(Expressions):
    """The part of the reader that follows constructors."""

    depth = 0  # of functions in functions

    def statement(self, node: ast.stmt, names: Names) -> Returned | None:
        raise NotImplementedError

    def bound(self, function: Function, args: list[object], kwargs: dict[str, object]) -> Names:
        raise NotImplementedError

    def enter(self, function: Function) -> None:
        raise NotImplementedError

    def attempt(self, node: ast.stmt, names: Names) -> Returned | None:
        """A statement of a constructor: what is not understood hides what it changes."""
        try:
            return self.statement(node, names)
        except Endless:
            raise
        except (Unknown, Unreadable):
            self.refuse_outside(node, names)
            self.hide(node, names)
        return None

    def refuse_outside(self, node: ast.stmt, names: Names) -> None:
        """Raise for what changes all that comes after it, in ways that the rules do not follow."""
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            text = ast.unparse(call.func)
            owner, _, last = text.rpartition(".")
            whole = isinstance(names.get(owner), Module) and names is not self.constants
            if last in ("to", "type"):
                whole &= any(word in ast.unparse(call) for word in NARROW)
            if (whole and last in OUTSIDE) or last in (
                "set_default_dtype",
                "set_default_device",
                "set_default_tensor_type",
            ):
                raise Unreadable(
                    f"{text}() changes what the module computes in, and the rule book writes for"
                    f" float32 as it is constructed ({self.source.at(call.lineno)})"
                )

    def hide(self, node: ast.stmt, names: Names) -> None:
        """Forget what a statement may have changed: its targets, or in a compound all it names."""
        simple = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for target in targets(node) if simple else list(mentioned(node)):
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                old = names.get(target.id)
                if simple or target.id not in names or isinstance(old, list | dict):
                    names[target.id] = Hidden()
            elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner = names.get(target.value.id)
                if isinstance(owner, Module):
                    text = f"{owner.text}.{target.attr}"
                    owner.attributes[target.attr] = Hidden(text=text)

    def construct(
        self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> object:
        if any("dataclass" in ast.unparse(d) for d in body.decorator_list):
            return self.record(body, args, kwargs)
        module = Module(text="", kind=body.name, body=body, line=self.line)
        self.made(module, body, args, kwargs)
        return module

    def made(
        self, module: Module, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> Names:
        """Follows the constructor; its arguments by name."""
        found = self.source.method(body, "__init__")
        if found is None:
            return {}
        function = Function(body=found[0], owner=module, home=found[1])
        names = self.bound(function, args, kwargs)
        start = dict(names)
        self.build(function, names)
        return start

    def build(self, function: Function, names: Names) -> None:
        """Goes through a constructor, or a method that one calls."""
        self.enter(function)
        try:
            for node in function.body.body:
                if self.attempt(node, names) is not None:
                    break
        finally:
            self.depth -= 1

    def change(self, node: ast.Call, func: ast.Attribute, names: Names) -> None:
        """A call in a constructor for what it does to its owner."""
        owner, name = self.value(func.value, names), func.attr
        given = self.items(node.args, names)
        if isinstance(owner, Parent):
            return self.build_parent(owner, name, given, node, names)
        if isinstance(owner, Module):
            if name in ("eval", "train") and (not given or isinstance(given[0], bool)):
                set_evaluating(owner, name == "eval" or given == [False])
                return None
            if name in ("requires_grad_", "zero_grad", "apply", "to", "cuda", "cpu", "float"):
                return None
            if name in ("register_buffer", "register_parameter", "add_module") and len(given) > 1:
                return self.register(owner, given[0], given[1])
            found = self.source.method(owner.body, name) if owner.body is not None else None
            if found is not None:
                function = Function(body=found[0], owner=owner, home=found[1])
                kwargs = self.keywords(node, names)
                return self.build(function, self.bound(function, given, kwargs))
        if isinstance(owner, Meta | Parameter | Tensor) and name.endswith("_"):
            return None  # numbers, which nothing here depends on
        items = owner.children if isinstance(owner, Module) else owner
        if isinstance(items, list) and name in ("append", "extend", "insert"):
            getattr(items, name)(*given)
            return None
        if isinstance(items, dict) and name == "update" and isinstance(given[0], dict):
            items.update(given[0])
            return None
        raise Unknown(f"{ast.unparse(func)}() in a constructor")

    def build_parent(
        self, parent: Parent, name: str, given: list[object], node: ast.Call, names: Names
    ) -> None:
        body = parent.owner.body
        found = None if body is None else self.source.method(body, name, parent.home)
        if found is None:
            return  # nn.Module's own
        function = Function(body=found[0], owner=parent.owner, home=found[1])
        bound = self.bound(function, given, self.keywords(node, names))
        self.build(function, bound)

    def register(self, owner: Module, name: object, value: object) -> None:
        if not isinstance(name, str):
            raise Unknown("a buffer or module whose name is not known")
        plain = isinstance(value, Meta | Module) or value is None
        owner.attributes[name] = value if plain else Hidden(text=name)


def targets(node: ast.stmt) -> list[ast.expr]:
    """What an assignment assigns."""
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        found = [node.target]
    else:
        found = []
    while any(isinstance(t, ast.Tuple | ast.List) for t in found):
        found = [p for t in found for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    return [t.value if isinstance(t, ast.Starred) else t for t in found]


def mentioned(node: ast.stmt) -> Iterator[ast.expr]:
    """Every name and attribute in a statement, and what it imports or defines as names."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute):
            yield inner
