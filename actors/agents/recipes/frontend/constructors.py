"""Constructors, statement by statement: what one does to the module, without running it.

What is not understood hides what it may have changed, so that nothing wrong is taken for known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from actors.agents.recipes.frontend.attributes import Namespace
from actors.agents.recipes.frontend.expressions import ExpressionReader
from actors.agents.recipes.frontend.symbolic_values import (
    EndlessLoopError,
    MetaTensor,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    SuperValue,
    TaskFunction,
    UnsupportedSourceError,
)
from actors.agents.recipes.frontend.value_paths import set_evaluating
from actors.agents.recipes.ir.graph import UnsupportedOperationError
from actors.agents.recipes.ir.tensor_views import TensorView

UNSUPPORTED_CHANGES = ("half", "bfloat16", "double", "to", "type", "register_forward_hook",
           "register_forward_pre_hook", "share_memory", "compile")  # fmt: skip
NARROW_TYPES = ("dtype", "float16", "float64", "bfloat16", "half", "double", "Half", "Double")
ConstructorReturn = tuple[object]  # what a function returned, wrapped: None would be ambiguous


class ConstructorReader(ExpressionReader):
    """The part of the reader that follows constructors."""

    depth = 0  # of functions in functions

    def statement(self, node: ast.stmt, names: Namespace) -> ConstructorReturn | None:
        raise NotImplementedError

    def bind_arguments(
        self, function: TaskFunction, args: list[object], kwargs: dict[str, object]
    ) -> Namespace:
        raise NotImplementedError

    def enter(self, function: TaskFunction) -> None:
        raise NotImplementedError

    def constructor_statement(self, node: ast.stmt, names: Namespace) -> ConstructorReturn | None:
        """A statement of a constructor: what is not understood hides what it changes."""
        try:
            return self.statement(node, names)
        except EndlessLoopError:
            raise
        except (UnsupportedOperationError, UnsupportedSourceError):
            self.refuse_outside(node, names)
            self.hide(node, names)
        return None

    def refuse_outside(self, node: ast.stmt, names: Namespace) -> None:
        """Raise for what changes all that comes after it, in ways that the rules do not follow."""
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            text = ast.unparse(call.func)
            owner, _, last = text.rpartition(".")
            whole = isinstance(names.get(owner), ModuleValue) and names is not self.constants
            if last in ("to", "type"):
                whole &= any(word in ast.unparse(call) for word in NARROW_TYPES)
            if (whole and last in UNSUPPORTED_CHANGES) or last in (
                "set_default_dtype",
                "set_default_device",
                "set_default_tensor_type",
            ):
                raise UnsupportedSourceError(
                    f"{text}() changes what the module computes in, and the rule book writes for"
                    f" float32 as it is constructed ({self.source.at(call.lineno)})"
                )

    def hide(self, node: ast.stmt, names: Namespace) -> None:
        """Forget what a statement may have changed: its targets, or in a compound all it names."""
        simple = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for target in assignment_targets(node) if simple else list(mentioned_names(node)):
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                old = names.get(target.id)
                if simple or target.id not in names or isinstance(old, list | dict):
                    names[target.id] = OpaqueValue()
            elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner = names.get(target.value.id)
                if isinstance(owner, ModuleValue):
                    text = f"{owner.text}.{target.attr}"
                    owner.attributes[target.attr] = OpaqueValue(text=text)

    def construct(
        self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> object:
        if any("dataclass" in ast.unparse(d) for d in body.decorator_list):
            return self.dataclass_value(body, args, kwargs)
        module = ModuleValue(text="", kind=body.name, body=body, line=self.line)
        self.run_constructor(module, body, args, kwargs)
        return module

    def run_constructor(
        self, module: ModuleValue, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> Namespace:
        """Follows the constructor; its arguments by name."""
        found = self.source.method(body, "__init__")
        if found is None:
            return {}
        function = TaskFunction(body=found[0], owner=module, home=found[1])
        names = self.bind_arguments(function, args, kwargs)
        start = dict(names)
        self.follow_constructor(function, names)
        return start

    def follow_constructor(self, function: TaskFunction, names: Namespace) -> None:
        """Goes through a constructor, or a method that one calls."""
        self.enter(function)
        try:
            for node in function.body.body:
                if self.constructor_statement(node, names) is not None:
                    break
        finally:
            self.depth -= 1

    def owner_call(self, node: ast.Call, func: ast.Attribute, names: Namespace) -> None:
        """A call in a constructor for what it does to its owner."""
        owner, name = self.evaluate(func.value, names), func.attr
        given = self.items(node.args, names)
        if isinstance(owner, SuperValue):
            return self.build_parent(owner, name, given, node, names)
        if isinstance(owner, ModuleValue):
            if name in ("eval", "train") and (not given or isinstance(given[0], bool)):
                set_evaluating(owner, name == "eval" or given == [False])
                return None
            if name in ("requires_grad_", "zero_grad", "apply", "to", "cuda", "cpu", "float"):
                return None
            if name in ("register_buffer", "register_parameter", "add_module") and len(given) > 1:
                return self.register(owner, given[0], given[1])
            found = self.source.method(owner.body, name) if owner.body is not None else None
            if found is not None:
                function = TaskFunction(body=found[0], owner=owner, home=found[1])
                kwargs = self.keywords(node, names)
                return self.follow_constructor(
                    function, self.bind_arguments(function, given, kwargs)
                )
        if isinstance(owner, MetaTensor | ParameterValue | TensorView) and name.endswith("_"):
            return None  # numbers, which nothing here depends on
        items = owner.children if isinstance(owner, ModuleValue) else owner
        if isinstance(items, list) and name in ("append", "extend", "insert"):
            getattr(items, name)(*given)
            return None
        if isinstance(items, dict) and name == "update" and isinstance(given[0], dict):
            items.update(given[0])
            return None
        raise UnsupportedOperationError(f"{ast.unparse(func)}() in a constructor")

    def build_parent(
        self, parent: SuperValue, name: str, given: list[object], node: ast.Call, names: Namespace
    ) -> None:
        body = parent.owner.body
        found = None if body is None else self.source.method(body, name, parent.home)
        if found is None:
            return  # nn.Module's own
        function = TaskFunction(body=found[0], owner=parent.owner, home=found[1])
        bound = self.bind_arguments(function, given, self.keywords(node, names))
        self.follow_constructor(function, bound)

    def register(self, owner: ModuleValue, name: object, value: object) -> None:
        if not isinstance(name, str):
            raise UnsupportedOperationError("a buffer or module whose name is not known")
        plain = isinstance(value, MetaTensor | ModuleValue) or value is None
        owner.attributes[name] = value if plain else OpaqueValue(text=name)


def assignment_targets(node: ast.stmt) -> list[ast.expr]:
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


def mentioned_names(node: ast.stmt) -> Iterator[ast.expr]:
    """Every name and attribute in a statement, and what it imports or defines as names."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute):
            yield inner
