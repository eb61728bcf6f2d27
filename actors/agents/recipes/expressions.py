"""Expressions in a task's source."""

from __future__ import annotations

import ast
import contextlib
import math
import operator
from collections.abc import Callable

from actors.agents.recipes.frames import Tensor
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.members import Members, Names, symbol
from actors.agents.recipes.moves import sliced
from actors.agents.recipes.objects import (
    MISFITS,
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
from actors.agents.recipes.plain_values import NUMERIC, attempt, hashable, meta_arithmetic, plainly
from actors.agents.recipes.source import Source

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
BUILTINS = frozenset(
    ["print", "isinstance", "super", "hasattr", "getattr", "setattr", "type", "callable", "object"]
)


class Expressions(Members):
    """The part of the reader that evaluates expressions."""

    def __init__(self, source: Source, graph: Graph, fold_bias: bool) -> None:
        super().__init__(graph, fold_bias)
        self.source = source
        self.constants: Names = {}
        self.line = 0  # of the task's file, where the reader is

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
            case ast.Compare():
                return self.chained(node, names)
            case ast.BoolOp():
                return self.either(node, names)
            case ast.IfExp():
                chosen = node.body if plainly(self.value(node.test, names)) else node.orelse
                return self.value(chosen, names)
            case ast.Tuple():
                return tuple(self.items(node.elts, names))
            case ast.List():
                return self.items(node.elts, names)
            case ast.Dict():
                return self.dictionary(node, names)
            case ast.Subscript():
                return self.item(self.value(node.value, names), self.index(node.slice, names))
            case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
                return [self.value(node.elt, inner) for inner in self.turns(loop, names)]
            case ast.DictComp(generators=[loop]):
                return {
                    plainly(self.value(node.key, inner)): self.value(node.value, inner)
                    for inner in self.turns(loop, names)
                }
            case ast.Lambda():
                return function_of(node, names)
            case ast.JoinedStr():
                return "".join(self.written(part, names) for part in node.values)
            case ast.NamedExpr():
                names[node.target.id] = self.value(node.value, names)
                return names[node.target.id]
        kind = type(node).__name__.lower()
        raise Unreadable(f"`{ast.unparse(node)}` ({kind}) can't be followed")

    def either(self, node: ast.BoolOp, names: Names) -> object:
        """`and` and `or`, which give the value that decides."""
        value: object = None
        for part in node.values:
            value = self.value(part, names)
            if bool(plainly(value)) is isinstance(node.op, ast.Or):
                return value
        return value

    def chained(self, node: ast.Compare, names: Names) -> object:
        """`a < b < c`, of what Python itself can decide on."""
        values = [self.value(part, names) for part in (node.left, *node.comparators)]
        return all(
            plainly(self.compared(op, left, right))
            for op, left, right in zip(node.ops, values, values[1:], strict=False)
        )

    def dictionary(self, node: ast.Dict, names: Names) -> dict[object, object]:
        made: dict[object, object] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, names)
            if key is None:
                if not isinstance(value, dict):
                    raise Unknown("a dictionary that is not known")
                made.update(value)
            else:
                made[hashable(plainly(self.value(key, names)))] = value
        return made

    def written(self, part: ast.expr, names: Names) -> str:
        """A piece of an f-string."""
        if isinstance(part, ast.Constant):
            return str(part.value)
        if not isinstance(part, ast.FormattedValue) or part.conversion != -1:
            raise Unknown("an f-string whose text is not known")
        value = plainly(self.value(part.value, names))
        if not isinstance(value, bool | int | float | str | None):
            raise Unknown("an f-string whose text is not known")
        spec = "" if part.format_spec is None else self.value(part.format_spec, names)
        return str(attempt(format, value, spec))

    def name(self, name: str, names: Names) -> object:
        for table in (names, self.constants, self.source.imports):
            if name in table:
                return self.unspoilt(name, table[name])
        if name in self.source.functions:
            return Function(body=self.source.functions[name])
        if name in self.source.classes:
            return self.source.classes[name]
        if name in self.source.hidden:
            return Hidden(text=name)
        if name in NUMERIC or name in BUILTINS:
            return Symbol(name=name)
        for module in self.source.star:
            if module != "math" or hasattr(math, name):
                return symbol(f"{module}.{name}", name)
        raise Unknown(f"the name {name}")

    def unspoilt(self, name: str, value: object) -> object:
        """The value; raises for a tensor that an earlier call changed in place."""
        if isinstance(value, Tensor) and value.node in self.spoilt:
            at = self.source.at(self.spoilt[value.node])
            raise Unreadable(f"{name} is used again after it was changed in place ({at})")
        return value

    def items(self, nodes: list[ast.expr], names: Names) -> list[object]:
        out: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.value(node.value, names)
                if not isinstance(inner, tuple | list):
                    raise Unreadable(f"`*{ast.unparse(node.value)}` is not known")
                out.extend(inner)
            else:
                out.append(self.value(node, names))
        return out

    def called(self, node: ast.Call, names: Names) -> object:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and "super()" in names:
            return names["super()"]
        callee = self.value(node.func, names)
        args = self.items(node.args, names)
        kwargs = self.keywords(node, names)
        self.line = node.lineno
        return self.call(callee, args, kwargs)

    def keywords(self, node: ast.Call, names: Names) -> dict[str, object]:
        """A call's keyword arguments."""
        kwargs: dict[str, object] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, names)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                kwargs.update(value)
            else:
                raise Unreadable(f"`**{ast.unparse(keyword.value)}` is not known")
        return kwargs

    def turns(self, loop: ast.comprehension, names: Names) -> list[Names]:
        """The names of each turn of a comprehension."""
        items = self.value(loop.iter, names)
        if isinstance(items, Module):
            items = items.children
        if isinstance(items, dict):
            items = list(items)
        if not isinstance(items, tuple | list) or loop.is_async:
            raise Unknown(f"a comprehension over {ast.unparse(loop.iter)}")
        found = []
        for item in items:
            inner = dict(names)
            self.assign(loop.target, item, inner)
            if all(plainly(self.value(test, inner)) for test in loop.ifs):
                found.append(inner)
        return found

    def assign(self, target: ast.expr, value: object, names: Names) -> None:
        raise NotImplementedError

    def arithmetic(self, kind: type[ast.operator], left: object, right: object) -> object:
        name, function = ARITHMETIC.get(kind, ("", None))
        if isinstance(left, TENSORS) or isinstance(right, TENSORS):
            return self.tensors(kind, name, left, right)
        if isinstance(left, Meta) or isinstance(right, Meta):
            return meta_arithmetic(left, right)
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
            raise Unreadable("an operator that can't be followed")
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
                if self.graph[tensor.node].shape is not None:
                    return apply(self.graph, "not", tensor)
                nodes: list[int] = []
                return self.kept_node(f"(~{self.rendered(tensor, nodes)})", nodes)
            raise Unreadable("a branch depends on a tensor's numbers")
        if isinstance(op, ast.Not):
            return not plainly(value)
        if isinstance(op, ast.USub) and isinstance(value, int | float):
            return -value
        raise Unknown("a sign before what is not a number")

    def compared(self, op: ast.cmpop, left: object, right: object) -> object:
        if isinstance(op, ast.Is | ast.IsNot):
            if isinstance(left, Hidden) or not (right is None or isinstance(right, bool)):
                raise Unreadable("a comparison with `is` can't be followed")
            return (left is right) == isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, tuple | list | str | dict):
            if isinstance(right, tuple | list):
                for item in right:
                    plainly(item)
            inside = plainly(left) in right
            return inside == isinstance(op, ast.In)
        if type(op) not in COMPARISONS:
            raise Unreadable("a comparison that can't be followed")
        name, sign, function = COMPARISONS[type(op)]
        if isinstance(left, Symbol) and isinstance(right, Symbol) and name in ("eq", "ne"):
            return (left.name == right.name) == (name == "eq")
        if isinstance(left, TENSORS) or isinstance(right, TENSORS):
            pair = [self.tensor(v) if isinstance(v, Parameter) else v for v in (left, right)]
            with contextlib.suppress(Unknown):
                return apply(self.graph, name, *pair)
            nodes: list[int] = []
            words = [self.rendered(value, nodes) for value in pair]
            self.kept.append(sign)
            return self.kept_node(f"({words[0]} {sign} {words[1]})", nodes)
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
            except (Unknown, *MISFITS):
                nodes: list[int] = []
                text = f"{self.rendered(tensor, nodes)}[{self.rendered(index, nodes)}]"
                self.kept.append("indexing")
                return self.kept_node(text, nodes)
        if isinstance(owner, tuple | list | str) and isinstance(index, int | slice):
            return attempt(operator.getitem, owner, index)
        if isinstance(owner, dict) and isinstance(index, bool | int | float | str):
            return attempt(operator.getitem, owner, index)
        if isinstance(owner, Module | Hidden) and owner.text:
            if isinstance(index, int | str):
                return Hidden(text=f"{owner.text}[{index!r}]")
            inside: list[int] = []
            self.kept.append("indexing")
            return self.kept_node(f"{owner.text}[{self.rendered(index, inside)}]", inside)
        raise Unknown("an index into what is not known")


def function_of(node: ast.Lambda, names: Names) -> Function:
    """A lambda as a function."""
    body: list[ast.stmt] = [ast.copy_location(ast.Return(value=node.body), node)]
    made = ast.FunctionDef(name="lambda", args=node.args, body=body, decorator_list=[])
    return Function(body=ast.copy_location(made, node), closure=names)
