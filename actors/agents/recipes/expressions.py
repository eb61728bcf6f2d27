"""Expressions in a task's source."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

from actors.agents.recipes.calls import NUMERIC, Calling, attempt
from actors.agents.recipes.frames import Tensor, seen
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.moves import sliced
from actors.agents.recipes.objects import (
    Function,
    Hidden,
    Meta,
    Method,
    Module,
    Parameter,
    Symbol,
    Unreadable,
)
from actors.agents.recipes.operations import apply
from actors.agents.recipes.operations import pow as power
from actors.agents.recipes.source import Source, method

Names = dict[str, object]

ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[..., object]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("", operator.floordiv),
    ast.Mod: ("", operator.mod),
    ast.Pow: ("", operator.pow),
    ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_),
    ast.MatMult: ("", operator.matmul),
}
SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.MatMult: "@",
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], tuple[str, str, Callable[..., object]]] = {
    ast.Gt: ("gt", ">", operator.gt),
    ast.Lt: ("lt", "<", operator.lt),
    ast.GtE: ("ge", ">=", operator.ge),
    ast.LtE: ("le", "<=", operator.le),
    ast.Eq: ("eq", "==", operator.eq),
    ast.NotEq: ("ne", "!=", operator.ne),
}
TENSORS = (Tensor, Parameter)


class Expressions(Calling):
    """The part of the reader that evaluates expressions."""

    def __init__(self, source: Source, graph: Graph, fold_bias: bool) -> None:
        super().__init__(graph, fold_bias)
        self.source = source
        self.constants: Names = {}

    def value(  # noqa: C901 - one case for each kind of expression
        self, node: ast.expr, names: Names
    ) -> object:
        """What an expression stands for."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.name(node.id, names)
            case ast.Attribute():
                return self.attribute(self.value(node.value, names), node.attr)
            case ast.Call():
                return self.called(node, names)
            case ast.BinOp():
                left, right = self.value(node.left, names), self.value(node.right, names)
                return self.arithmetic(type(node.op), left, right)
            case ast.UnaryOp():
                return self.signed(node.op, self.value(node.operand, names))
            case ast.Compare(ops=[op], comparators=[other]):
                return self.compared(op, self.value(node.left, names), self.value(other, names))
            case ast.BoolOp():
                values = [self.value(part, names) for part in node.values]
                known = [plainly(value) for value in values]
                return all(known) if isinstance(node.op, ast.And) else any(known)
            case ast.IfExp():
                chosen = node.body if plainly(self.value(node.test, names)) else node.orelse
                return self.value(chosen, names)
            case ast.Tuple():
                return tuple(self.items(node.elts, names))
            case ast.List():
                return self.items(node.elts, names)
            case ast.Subscript():
                return self.item(self.value(node.value, names), self.index(node.slice, names))
            case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
                return self.comprehension(node.elt, loop, names)
        raise Unreadable(f"line {node.lineno} has an expression that I can't follow")

    def name(self, name: str, names: Names) -> object:
        for table in (names, self.constants, self.source.imports):
            if name in table:
                return table[name]
        if name in self.source.functions:
            return Function(body=self.source.functions[name])
        if name in self.source.classes:
            return self.source.classes[name]
        if name in NUMERIC or name in ("print", "isinstance", "super", "hasattr"):
            return Symbol(name=name)
        raise Unknown(f"the name {name}")

    def items(self, nodes: list[ast.expr], names: Names) -> list[object]:
        out: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.value(node.value, names)
                if not isinstance(inner, tuple | list):
                    raise Unreadable("a starred argument that is not known")
                out.extend(inner)
            else:
                out.append(self.value(node, names))
        return out

    def called(self, node: ast.Call, names: Names) -> object:
        callee = self.value(node.func, names)
        args = self.items(node.args, names)
        kwargs: dict[str, object] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Unreadable("keyword arguments from a dictionary")
            kwargs[keyword.arg] = self.value(keyword.value, names)
        return self.call(callee, args, kwargs)

    def comprehension(self, node: ast.expr, loop: ast.comprehension, names: Names) -> object:
        items = self.value(loop.iter, names)
        if isinstance(items, Module):
            items = items.children
        if not isinstance(items, tuple | list) or not isinstance(loop.target, ast.Name):
            raise Unknown("a comprehension over what is not known")
        if loop.ifs:
            raise Unknown("a comprehension with a condition")
        return [self.value(node, {**names, loop.target.id: item}) for item in items]

    def attribute(self, owner: object, name: str) -> object:
        match owner:
            case Symbol():
                return symbol(f"{owner.name}.{name}")
            case Module():
                return self.member(owner, name)
            case Tensor() | Parameter():
                tensor = self.tensor(owner)
                return self.of_tensor(tensor, name)
            case Meta():
                return owner.shape if name == "shape" else Method(owner=owner, name=name)
            case tuple() if name == "values" and len(owner) == 2:
                return owner[0]
            case Hidden(text=text) if text:
                return Hidden(text=f"{text}.{name}")
        raise Unknown(f"the attribute {name}")

    def of_tensor(self, tensor: Tensor, name: str) -> object:
        if self.graph[tensor.node].shape is not None:
            if name == "shape":
                return seen(self.graph, tensor)
            if name == "ndim":
                return len(seen(self.graph, tensor))
        if name == "data":
            return tensor
        if name in ("shape", "ndim", "T", "mT", "device", "dtype", "is_cuda", "requires_grad"):
            nodes: list[int] = []
            value = self.kept_node(f"{self.rendered(tensor, nodes)}.{name}", nodes)
            return self.reshaped(value, "t", [tensor], {}) if name == "T" else value
        return Method(owner=tensor, name=name)

    def member(self, module: Module, name: str) -> object:
        if name in module.attributes:
            return module.attributes[name]
        if module.body is not None:
            body = method(module.body, name)
            if body is not None:
                return Function(body=body, owner=module)
            for node in module.body.body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    return self.value(node.value, {})
        if module.layer is not None and name in module.layer.parameters:
            return Parameter(text=f"{module.text}.{name}", shape=module.layer.parameters[name])
        if name in ("eval", "train", "apply", "to", "register_buffer", "register_parameter"):
            return Method(owner=module, name=name)
        if name == "training" and module.evaluating:
            return False
        return Hidden(text=f"{module.text}.{name}" if module.text else "")

    def arithmetic(self, kind: type[ast.operator], left: object, right: object) -> object:
        name, function = ARITHMETIC.get(kind, ("", None))
        if isinstance(left, TENSORS) or isinstance(right, TENSORS):
            return self.tensors(kind, name, left, right)
        if isinstance(left, Meta) or isinstance(right, Meta):
            return left if isinstance(left, Meta) else right
        if function is None or isinstance(left, Hidden) or isinstance(right, Hidden):
            raise Unknown("arithmetic on what is not known")
        return attempt(function, left, right)

    def tensors(self, kind: type[ast.operator], name: str, left: object, right: object) -> object:
        self.graph.call += 1
        left, right = (self.tensor(v) if isinstance(v, Parameter) else v for v in (left, right))
        try:
            if kind is ast.Pow:
                return power(self.graph, left, right)
            if name:
                return apply(self.graph, name, left, right)
        except Unknown:
            pass
        if kind not in SIGNS:
            raise Unreadable("an operator that I can't follow")
        nodes: list[int] = []
        text = f"({self.rendered(left, nodes)} {SIGNS[kind]} {self.rendered(right, nodes)})"
        self.kept.append(SIGNS[kind])
        value = self.kept_node(text, nodes)
        rule = "matmul" if kind is ast.MatMult else ""
        return self.reshaped(value, rule, [left, right], {})

    def signed(self, op: ast.unaryop, value: object) -> object:
        if isinstance(value, TENSORS):
            tensor = self.tensor(value)
            if isinstance(op, ast.USub):
                return self.call(Method(owner=tensor, name="neg"), [], {})
            if isinstance(op, ast.Invert):
                return apply(self.graph, "not", tensor)
            raise Unreadable("a branch that depends on a tensor's numbers")
        if isinstance(op, ast.Not):
            return not plainly(value)
        if isinstance(op, ast.USub) and isinstance(value, int | float):
            return -value
        raise Unknown("a sign before what is not a number")

    def compared(self, op: ast.cmpop, left: object, right: object) -> object:
        if isinstance(op, ast.Is | ast.IsNot):
            if isinstance(left, Hidden) or right is not None:
                raise Unreadable("a comparison with `is` that I can't follow")
            return (left is None) == isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, tuple | list | str):
            inside = plainly(left) in right
            return inside == isinstance(op, ast.In)
        if type(op) not in COMPARISONS:
            raise Unreadable("a comparison that I can't follow")
        name, _, function = COMPARISONS[type(op)]
        if isinstance(left, TENSORS) or isinstance(right, TENSORS):
            pair = [self.tensor(v) if isinstance(v, Parameter) else v for v in (left, right)]
            return apply(self.graph, name, *pair)
        return attempt(function, plainly(left), plainly(right))

    def index(self, node: ast.expr, names: Names) -> object:
        if isinstance(node, ast.Tuple):
            return tuple(self.index(part, names) for part in node.elts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if end is None else self.value(end, names) for end in ends))
        return self.value(node, names)

    def item(self, owner: object, index: object) -> object:
        if isinstance(owner, Module) and owner.children is not None:
            owner = owner.children
        if isinstance(owner, TENSORS):
            self.graph.call += 1
            tensor = self.tensor(owner)
            try:
                return sliced(self.graph, tensor, index)
            except (Unknown, IndexError):
                nodes: list[int] = []
                where = self.rendered(index, nodes[:0]) if index is not ... else "..."
                text = f"{self.rendered(tensor, nodes)}[{where}]"
                self.kept.append("indexing")
                return self.kept_node(text, nodes)
        if isinstance(owner, tuple | list | str) and isinstance(index, int | slice):
            return attempt(operator.getitem, owner, index)
        raise Unknown("an index into what is not known")


def symbol(name: str) -> object:
    """A dotted name, or the number that it stands for."""
    numbers = {"pi": math.pi, "inf": math.inf, "e": math.e, "tau": math.tau, "nan": math.nan}
    head, _, last = name.rpartition(".")
    return numbers[last] if head in ("math", "torch") and last in numbers else Symbol(name=name)


def plainly(value: object) -> object:
    """A value that Python itself can decide on."""
    if isinstance(value, Tensor | Parameter):
        raise Unreadable("a branch that depends on a tensor's numbers")
    if isinstance(value, Hidden | Symbol | Method):
        raise Unreadable("a branch on something whose value I don't know")
    return value
