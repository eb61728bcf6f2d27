"""From a task's source to the graph of its forward.

Nothing is run: the source is followed with shapes in place of tensors.  What is not understood
becomes a PyTorch expression in the graph; only control flow that depends on data, and changes in
place, make the whole forward unreadable.
"""

from __future__ import annotations

import ast

import msgspec

from actors.agents.recipes.expressions import Expressions, Names, plainly
from actors.agents.recipes.frames import Tensor
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.objects import (
    Function,
    Hidden,
    Meta,
    Module,
    Parameter,
    Unreadable,
)
from actors.agents.recipes.source import Source, method

Returned = tuple[object]  # what a function returned, wrapped: None would be ambiguous


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A forward, read."""

    source: Source
    graph: Graph
    inputs: tuple[tuple[str, tuple[int, ...] | float | None], ...]
    # each one's name, and its shape, or its value where it is a number, or None
    output: object  # a node's index, or a tuple or list of outputs
    made_for: str  # the constructor's arguments as Python text, "" where they are not plain
    kept: tuple[str, ...]  # what stays in PyTorch
    evaluated: tuple[str, ...]  # modules that are taken to be in evaluation mode

    @property
    def results(self) -> tuple[int, ...]:
        """The nodes that are returned."""
        return flat(self.output)


class Reader(Expressions):
    """Follows constructors and forwards, statement by statement."""

    def __init__(self, source: Source, graph: Graph, fold_bias: bool) -> None:
        super().__init__(source, graph, fold_bias)
        self.depth = 0
        for node in source.assignments():
            self.attempt(node, self.constants)

    def attempt(self, node: ast.stmt, names: Names) -> Returned | None:
        """A statement of a constructor: what is not understood hides what it assigns."""
        try:
            return self.statement(node, names)
        except (Unknown, Unreadable):
            for target in targets(node):
                if isinstance(target, ast.Name):
                    names[target.id] = Hidden()
                elif isinstance(target, ast.Attribute):
                    owner = names.get("self")
                    if isinstance(owner, Module):
                        text = f"{owner.text}.{target.attr}"
                        owner.attributes[target.attr] = Hidden(text=text)
        return None

    def construct(
        self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> Module:
        module = Module(text="", kind=body.name, body=body)
        self.made(module, body, args, kwargs)
        return module

    def made(
        self, module: Module, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> Names:
        """Follows the constructor; its arguments by name."""
        init = method(body, "__init__")
        if init is None:
            return {}
        names = self.bound(Function(body=init, owner=module), args, kwargs)
        start = dict(names)
        for node in init.body:
            if self.attempt(node, names) is not None:
                break
        return start

    def bound(self, function: Function, args: list[object], kwargs: dict[str, object]) -> Names:
        """The arguments under the function's own names."""
        spec = function.body.args
        if spec.vararg or spec.kwarg:
            raise Unreadable(f"{function.body.name}() takes any number of arguments")
        names: Names = {}
        params = [arg.arg for arg in spec.posonlyargs + spec.args]
        static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.body.decorator_list
        )
        if function.owner is not None and not static:
            names[params.pop(0)] = function.owner
        names.update(zip(params, args, strict=False))
        names.update(kwargs)
        defaults = dict(zip(params[::-1], spec.defaults[::-1], strict=False))
        keyword = [(a.arg, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        for name, default in [*defaults.items(), *keyword]:
            if name not in names and default is not None:
                names[name] = self.value(default, {})
        missing = [name for name in params if name not in names]
        if missing:
            raise Unreadable(f"{function.body.name}() is called without {missing[0]}")
        return names

    def inline(self, function: Function, args: list[object], kwargs: dict[str, object]) -> object:
        self.depth += 1
        if self.depth > 20:
            raise Unreadable(f"{function.body.name}() calls itself")
        result = self.block(function.body.body, self.bound(function, args, kwargs))
        self.depth -= 1
        return None if result is None else result[0]

    def block(self, body: list[ast.stmt], names: Names) -> Returned | None:
        for node in body:
            result = self.statement(node, names)
            if result is not None:
                return result
        return None

    def statement(  # noqa: C901 - one case for each kind of statement
        self, node: ast.stmt, names: Names
    ) -> Returned | None:
        match node:
            case ast.Return():
                return (None if node.value is None else self.value(node.value, names),)
            case ast.Assign():
                value = self.value(node.value, names)
                for target in node.targets:
                    self.assign(target, value, names)
            case ast.AnnAssign():
                if node.value is not None:
                    self.assign(node.target, self.value(node.value, names), names)
            case ast.AugAssign():
                self.augment(node, names)
            case ast.Expr():
                self.bare(node.value, names)
            case ast.If():
                chosen = node.body if plainly(self.value(node.test, names)) else node.orelse
                return self.block(chosen, names)
            case ast.For():
                return self.loop(node, names)
            case ast.With():
                return self.block(node.body, names)
            case ast.Pass() | ast.Assert() | ast.Import() | ast.ImportFrom():
                return None
            case _:
                kind = type(node).__name__.lower()
                raise Unreadable(f"line {node.lineno} has a {kind} statement that I can't follow")
        return None

    def loop(self, node: ast.For, names: Names) -> Returned | None:
        items = self.value(node.iter, names)
        if isinstance(items, Module):
            items = items.children
        if not isinstance(items, tuple | list) or len(items) > 256 or node.orelse:
            raise Unreadable(f"line {node.lineno} has a loop whose turns I don't know")
        for item in items:
            self.assign(node.target, item, names)
            result = self.block(node.body, names)
            if result is not None:
                return result
        return None

    def assign(self, target: ast.expr, value: object, names: Names) -> None:
        match target:
            case ast.Name():
                names[target.id] = value
            case ast.Tuple() if isinstance(value, Tensor):
                for place, part in enumerate(target.elts):
                    self.assign(part, self.item(value, place), names)
            case ast.Tuple() | ast.List():
                if not isinstance(value, tuple | list) or len(value) != len(target.elts):
                    raise Unreadable(f"line {target.lineno} unpacks what I don't know")
                for part, item in zip(target.elts, value, strict=True):
                    self.assign(part, item, names)
            case ast.Attribute(value=ast.Name(id="self")):
                owner = names.get("self")
                if not isinstance(owner, Module) or isinstance(value, Tensor):
                    raise Unreadable("the forward stores a tensor in the module")
                owner.attributes[target.attr] = value
            case _:
                raise Unreadable(f"line {target.lineno} assigns into something")

    def augment(self, node: ast.AugAssign, names: Names) -> None:
        if not isinstance(node.target, ast.Name):
            raise Unreadable(f"line {node.lineno} changes something in place")
        old = self.name(node.target.id, names)
        if isinstance(old, Tensor | Parameter):
            self.refuse_inputs([self.tensor(old)])
        new = self.arithmetic(type(node.op), old, self.value(node.value, names))
        for name, value in list(names.items()):  # `x += 1` changes the tensor behind every name
            if name == node.target.id or (isinstance(old, Tensor) and value == old):
                names[name] = new

    def bare(self, node: ast.expr, names: Names) -> None:
        """An expression statement: those of a constructor; in a forward only harmless ones."""
        if isinstance(node, ast.Constant):
            return
        if not isinstance(node, ast.Call):
            raise Unreadable(f"line {node.lineno} does something that I can't follow")
        text = ast.unparse(node.func)
        if text.startswith("super(") or text.startswith(("nn.init.", "torch.nn.init.", "print")):
            return
        owner = names.get("self")
        if text in ("self.register_buffer", "self.register_parameter"):
            name, made, *_ = self.items(node.args, names)
            if isinstance(owner, Module) and isinstance(name, str):
                owner.attributes[name] = made if isinstance(made, Meta) else Hidden(text=name)
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("eval", "append"):
            target = self.value(node.func.value, names)
            if isinstance(target, Module) and node.func.attr == "eval":
                set_evaluating(target)
                return
            if node.func.attr == "append" and isinstance(target, list | Module):
                items = target.children if isinstance(target, Module) else target
                if items is not None:
                    items.append(self.value(node.args[0], names))
                    return
        raise Unreadable(f"line {node.lineno} calls {text}() for what it does, not what it gives")


def targets(node: ast.stmt) -> list[ast.expr]:
    """What a statement assigns, nested statements included."""
    found: list[ast.expr] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            found.extend(inner.targets)
        elif isinstance(inner, ast.AnnAssign | ast.AugAssign):
            found.append(inner.target)
    return found


def set_evaluating(module: Module) -> None:
    module.evaluating = True
    inner = [*module.attributes.values(), *(module.children or [])]
    for child in inner:
        if isinstance(child, Module):
            set_evaluating(child)


def reach(module: Module, text: str) -> None:
    """Gives each module, parameter and attribute inside the text by which ModelNew reaches it."""
    module.text = text
    for name, value in module.attributes.items():
        if isinstance(value, Module):
            reach(value, f"{text}.{name}")
        elif isinstance(value, Meta):
            shape = value.shape if value.dtype == "float32" else None
            module.attributes[name] = Parameter(text=f"{text}.{name}", shape=shape)
        elif isinstance(value, Hidden):
            module.attributes[name] = Hidden(text=f"{text}.{name}")
        elif isinstance(value, list) and any(isinstance(v, Module) for v in value):
            for i, child in enumerate(value):
                if isinstance(child, Module):
                    reach(child, f"{text}.{name}[{i}]")
    for i, child in enumerate(module.children or []):
        if isinstance(child, Module):
            reach(child, f"{text}[{i}]")


def flat(output: object) -> tuple[int, ...]:
    if isinstance(output, int):
        return (output,)
    if not isinstance(output, tuple | list):
        raise TypeError("an output is a node or a nesting of nodes")
    return tuple(node for item in output for node in flat(item))
