"""Constructors, statement by statement: how each changes the module, without running it.

A statement that is not understood makes everything that it may have changed unknown, so that no
wrong value is taken for known.
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
ReturnedValue = tuple[object]  # a function's value, wrapped: None is "did not return"


class ConstructorReader(ExpressionReader):
    """The part of the reader that follows constructors."""

    depth = 0  # of functions in functions

    def statement(self, node: ast.stmt, names: Namespace) -> ReturnedValue | None:
        raise NotImplementedError

    def bind_arguments(
        self, function: TaskFunction, args: list[object], kwargs: dict[str, object]
    ) -> Namespace:
        raise NotImplementedError

    def enter_function(self, function: TaskFunction) -> None:
        raise NotImplementedError

    def constructor_statement(self, node: ast.stmt, names: Namespace) -> ReturnedValue | None:
        """Follow a statement of a constructor; if it is not understood, forget its targets."""
        try:
            return self.statement(node, names)
        except EndlessLoopError:
            raise
        except (UnsupportedOperationError, UnsupportedSourceError):
            self.refuse_global_changes(node, names)
            self.forget(node, names)
        return None

    def refuse_global_changes(self, node: ast.stmt, names: Namespace) -> None:
        """Raise for calls that change the dtype or device of all that follows."""
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            text = ast.unparse(call.func)
            owner, _, last = text.rpartition(".")
            whole = isinstance(names.get(owner), ModuleValue) and names is not self.constants
            if last in ("to", "type"):
                whole &= any(word in ast.unparse(call) for word in NARROW_TYPES)
            whole &= not (self.half and last in ("to", "type", "half", "bfloat16"))
            if (whole and last in UNSUPPORTED_CHANGES) or last in (
                "set_default_dtype",
                "set_default_device",
                "set_default_tensor_type",
            ):
                raise UnsupportedSourceError(
                    f"{text}() changes what the module computes in, and the rule book writes for"
                    f" float32 as it is constructed ({self.source.describe_line(call.lineno)})"
                )

    def forget(self, node: ast.stmt, names: Namespace) -> None:
        """Make unknown what a statement may have changed: its targets, or all names if compound."""
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
        """An object of one of the task's classes."""
        if any("dataclass" in ast.unparse(d) for d in body.decorator_list):
            return self.dataclass_value(body, args, kwargs)
        module = ModuleValue(text="", kind=body.name, body=body, line=self.line)
        self.run_constructor(module, body, args, kwargs)
        return module

    def run_constructor(
        self, module: ModuleValue, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> Namespace:
        """Follow a class's constructor; return its arguments by name."""
        found = self.source.method(body, "__init__")
        if found is None:
            return {}
        function = TaskFunction(body=found[0], owner=module, home=found[1])
        names = self.bind_arguments(function, args, kwargs)
        start = dict(names)
        self.follow_constructor(function, names)
        return start

    def follow_constructor(self, function: TaskFunction, names: Namespace) -> None:
        """Follow a constructor, or a method that a constructor calls."""
        self.enter_function(function)
        try:
            for node in function.body.body:
                if self.constructor_statement(node, names) is not None:
                    break
        finally:
            self.depth -= 1

    def effect_call(self, node: ast.Call, func: ast.Attribute, names: Namespace) -> None:
        """A call in a constructor that changes its owner, such as `self.layers.append(...)`."""
        owner, name = self.evaluate(func.value, names), func.attr
        args = self.evaluate_items(node.args, names)
        if isinstance(owner, SuperValue):
            return self.build_parent(owner, name, args, node, names)
        if isinstance(owner, ModuleValue):
            if name in ("eval", "train") and (not args or isinstance(args[0], bool)):
                set_evaluating(owner, name == "eval" or args == [False])
                return None
            if name in ("requires_grad_", "zero_grad", "apply", "to", "cuda", "cpu", "float"):
                return None
            if name in ("register_buffer", "register_parameter", "add_module") and len(args) > 1:
                return self.register(owner, args[0], args[1])
            found = self.source.method(owner.body, name) if owner.body is not None else None
            if found is not None:
                function = TaskFunction(body=found[0], owner=owner, home=found[1])
                kwargs = self.keywords(node, names)
                return self.follow_constructor(
                    function, self.bind_arguments(function, args, kwargs)
                )
        if isinstance(owner, MetaTensor | ParameterValue | TensorView) and name.endswith("_"):
            return None  # it changes numbers only: nothing here depends on them
        items = owner.children if isinstance(owner, ModuleValue) else owner
        if isinstance(items, list) and name in ("append", "extend", "insert"):
            getattr(items, name)(*args)
            return None
        if isinstance(items, dict) and name == "update" and isinstance(args[0], dict):
            items.update(args[0])
            return None
        raise UnsupportedOperationError(f"{ast.unparse(func)}() in a constructor")

    def build_parent(
        self, parent: SuperValue, name: str, args: list[object], node: ast.Call, names: Namespace
    ) -> None:
        """`super().__init__(...)`, or another method of a base class."""
        body = parent.owner.body
        found = None if body is None else self.source.method(body, name, parent.home)
        if found is None:
            return  # nn.Module's own
        function = TaskFunction(body=found[0], owner=parent.owner, home=found[1])
        bound = self.bind_arguments(function, args, self.keywords(node, names))
        self.follow_constructor(function, bound)

    def register(self, owner: ModuleValue, name: object, value: object) -> None:
        """register_buffer, register_parameter or add_module."""
        if not isinstance(name, str):
            raise UnsupportedOperationError("a buffer or module whose name is not known")
        plain = isinstance(value, MetaTensor | ModuleValue) or value is None
        owner.attributes[name] = value if plain else OpaqueValue(text=name)


def assignment_targets(node: ast.stmt) -> list[ast.expr]:
    """The targets of an assignment, tuples and lists unpacked."""
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
