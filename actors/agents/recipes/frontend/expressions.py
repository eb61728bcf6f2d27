"""Expressions in a task's source, evaluated without being run.

An expression's value is one of these:

    TensorView          a tensor of the forward: a graph node, and its visible dimensions
    ParameterValue      a parameter or buffer, reached by text such as "self.bias"
    MetaTensor          a tensor that a constructor makes: shape and dtype, no numbers
    a Python value      a number, text, tuple, list or dict: plain Python computes with it
    Symbol, OpaqueValue, ModuleValue, TaskFunction, BoundMethod     names, objects and functions

Example: in `return x * self.scale + 1`, with x float32[64, 256] and self.scale float32[256],
`x * self.scale` becomes a node "mul" of shape [64, 256], and `+ 1` a node "add" with a constant.
Arithmetic that no rule covers becomes a PyTorch expression: `x @ w` is the node "torch" with text
"({0} @ {1})".
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
from collections.abc import Callable

from actors.agents.recipes.frontend.attributes import AttributeReader, Namespace, resolve_symbol
from actors.agents.recipes.frontend.plain_values import (
    NUMERIC,
    dictionary_key,
    evaluate_plain,
    meta_arithmetic,
    plain_value,
)
from actors.agents.recipes.frontend.symbolic_values import (
    ARGUMENT_ERRORS,
    BoundMethod,
    MetaTensor,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    Symbol,
    TaskFunction,
    UnsupportedSourceError,
)
from actors.agents.recipes.frontend.task_source import TaskSource
from actors.agents.recipes.ir.elementwise import apply
from actors.agents.recipes.ir.elementwise import pow as power
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.movement import slice_tensor
from actors.agents.recipes.ir.tensor_views import TensorView

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
OPERATOR_SIGNS = {
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
TENSOR_TYPES = (TensorView, ParameterValue)
BUILTINS = frozenset(
    ["print", "isinstance", "super", "hasattr", "getattr", "setattr", "type", "callable", "object"]
)


class ExpressionReader(AttributeReader):
    """The part of the reader that evaluates expressions; `names` holds the local variables."""

    def __init__(self, source: TaskSource, graph: OperationGraph, fold_bias: bool) -> None:
        super().__init__(graph, fold_bias)
        self.source = source
        self.constants: Namespace = {}
        self.line = 0  # of the task's file, where the reader is

    def evaluate(  # noqa: C901 - one case for each kind of expression
        self, node: ast.expr, names: Namespace
    ) -> object:
        """The value of an expression."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.look_up(node.id, names)
            case ast.Attribute():
                return self.attribute(self.evaluate(node.value, names), node.attr)
            case ast.Call():
                return self.evaluate_call(node, names)
            case ast.BinOp():
                left, right = self.evaluate(node.left, names), self.evaluate(node.right, names)
                return self.arithmetic(type(node.op), left, right)
            case ast.UnaryOp():
                return self.unary_operation(node.op, self.evaluate(node.operand, names))
            case ast.Compare(ops=[op], comparators=[other]):
                left = self.evaluate(node.left, names)
                return self.comparison(op, left, self.evaluate(other, names))
            case ast.Compare():
                return self.chained_comparison(node, names)
            case ast.BoolOp():
                return self.boolean_operation(node, names)
            case ast.IfExp():
                chosen = node.body if plain_value(self.evaluate(node.test, names)) else node.orelse
                return self.evaluate(chosen, names)
            case ast.Subscript():
                owner = self.evaluate(node.value, names)
                return self.subscript(owner, self.evaluate_index(node.slice, names))
            case ast.Lambda():
                return function_of(node, names)
            case ast.JoinedStr():
                return "".join(self.format_piece(part, names) for part in node.values)
            case ast.NamedExpr():
                names[node.target.id] = self.evaluate(node.value, names)
                return names[node.target.id]
        return self.collection(node, names)

    def collection(self, node: ast.expr, names: Namespace) -> object:
        """The value of a tuple, list or dictionary, or of a comprehension with one loop."""
        match node:
            case ast.Tuple():
                return tuple(self.evaluate_items(node.elts, names))
            case ast.List():
                return self.evaluate_items(node.elts, names)
            case ast.Dict():
                return self.dictionary(node, names)
            case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
                turns = self.comprehension_turns(loop, names)
                return [self.evaluate(node.elt, inner) for inner in turns]
            case ast.DictComp(generators=[loop]):
                return {
                    plain_value(self.evaluate(node.key, inner)): self.evaluate(node.value, inner)
                    for inner in self.comprehension_turns(loop, names)
                }
        kind = type(node).__name__.lower()
        raise UnsupportedSourceError(f"`{ast.unparse(node)}` ({kind}) can't be followed")

    def boolean_operation(self, node: ast.BoolOp, names: Namespace) -> object:
        """`and` and `or`, whose value is the operand that decides."""
        value: object = None
        for part in node.values:
            value = self.evaluate(part, names)
            if bool(plain_value(value)) is isinstance(node.op, ast.Or):
                return value
        return value

    def chained_comparison(self, node: ast.Compare, names: Namespace) -> object:
        """`a < b < c`, of values that plain Python can compare."""
        values = [self.evaluate(part, names) for part in (node.left, *node.comparators)]
        return all(
            plain_value(self.comparison(op, left, right))
            for op, left, right in zip(node.ops, values, values[1:], strict=False)
        )

    def dictionary(self, node: ast.Dict, names: Namespace) -> dict[object, object]:
        """`{a: b, **c}`; raises where a key is not plain."""
        made: dict[object, object] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.evaluate(item, names)
            if key is None:
                if not isinstance(value, dict):
                    raise UnsupportedOperationError("a dictionary that is not known")
                made.update(value)
            else:
                made[dictionary_key(plain_value(self.evaluate(key, names)))] = value
        return made

    def format_piece(self, part: ast.expr, names: Namespace) -> str:
        """A piece of an f-string."""
        if isinstance(part, ast.Constant):
            return str(part.value)
        if not isinstance(part, ast.FormattedValue) or part.conversion != -1:
            raise UnsupportedOperationError("an f-string whose text is not known")
        value = plain_value(self.evaluate(part.value, names))
        if not isinstance(value, bool | int | float | str | None):
            raise UnsupportedOperationError("an f-string whose text is not known")
        spec = "" if part.format_spec is None else self.evaluate(part.format_spec, names)
        return str(evaluate_plain(format, value, spec))

    def look_up(self, name: str, names: Namespace) -> object:
        """What a name means: a local, a name of the task's file, an import, a builtin."""
        for table in (names, self.constants, self.source.imports):
            if name in table:
                return self.require_unchanged(name, table[name])
        if name in self.source.functions:
            return TaskFunction(body=self.source.functions[name])
        if name in self.source.classes:
            return self.source.classes[name]
        if name in self.source.conditional_names:
            return OpaqueValue(text=name)
        if name in NUMERIC or name in BUILTINS:
            return Symbol(name=name)
        for module in self.source.star_imports:
            if module != "math" or hasattr(math, name):
                return resolve_symbol(f"{module}.{name}", name)
        raise UnsupportedOperationError(f"the name {name}")

    def require_unchanged(self, name: str, value: object) -> object:
        """The value; raises for a tensor that an earlier call changed in place."""
        if isinstance(value, TensorView) and value.node in self.changed_in_place:
            at = self.source.describe_line(self.changed_in_place[value.node])
            raise UnsupportedSourceError(
                f"{name} is used again after it was changed in place ({at})"
            )
        return value

    def evaluate_items(self, nodes: list[ast.expr], names: Namespace) -> list[object]:
        """The items of a list or an argument list, `*starred` ones unpacked."""
        out: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.evaluate(node.value, names)
                if not isinstance(inner, tuple | list):
                    raise UnsupportedSourceError(f"`*{ast.unparse(node.value)}` is not known")
                out.extend(inner)
            else:
                out.append(self.evaluate(node, names))
        return out

    def evaluate_call(self, node: ast.Call, names: Namespace) -> object:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and "super()" in names:
            return names["super()"]
        callee = self.evaluate(node.func, names)
        args = self.evaluate_items(node.args, names)
        kwargs = self.keywords(node, names)
        self.line = node.lineno
        return self.call(callee, args, kwargs)

    def keywords(self, node: ast.Call, names: Namespace) -> dict[str, object]:
        """A call's keyword arguments."""
        kwargs: dict[str, object] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, names)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                kwargs.update(value)
            else:
                raise UnsupportedSourceError(f"`**{ast.unparse(keyword.value)}` is not known")
        return kwargs

    def comprehension_turns(self, loop: ast.comprehension, names: Namespace) -> list[Namespace]:
        """The names of each turn of a comprehension."""
        items = self.evaluate(loop.iter, names)
        if isinstance(items, ModuleValue):
            items = items.children
        if isinstance(items, dict):
            items = list(items)
        if not isinstance(items, tuple | list) or loop.is_async:
            raise UnsupportedOperationError(f"a comprehension over {ast.unparse(loop.iter)}")
        found = []
        for item in items:
            inner = dict(names)
            self.assign(loop.target, item, inner)
            if all(plain_value(self.evaluate(test, inner)) for test in loop.ifs):
                found.append(inner)
        return found

    def assign(self, target: ast.expr, value: object, names: Namespace) -> None:
        raise NotImplementedError

    def arithmetic(self, kind: type[ast.operator], left: object, right: object) -> object:
        """`left op right`, of tensors, of a constructor's tensors, or of plain values."""
        name, function = ARITHMETIC.get(kind, ("", None))
        if isinstance(left, TENSOR_TYPES) or isinstance(right, TENSOR_TYPES):
            return self.tensor_arithmetic(kind, name, left, right)
        if isinstance(left, MetaTensor) or isinstance(right, MetaTensor):
            return meta_arithmetic(left, right)
        if function is None or isinstance(left, OpaqueValue) or isinstance(right, OpaqueValue):
            raise UnsupportedOperationError("arithmetic on what is not known")
        return evaluate_plain(function, left, right)

    def tensor_arithmetic(
        self, kind: type[ast.operator], name: str, left: object, right: object
    ) -> object:
        """A graph node for the operation `name`; else a PyTorch expression of both operands."""
        self.graph.call += 1
        left, right = (
            self.as_tensor(v) if isinstance(v, ParameterValue) else v for v in (left, right)
        )
        try:
            if kind is ast.Pow:
                return power(self.graph, left, right)
            if name:
                return apply(self.graph, name, left, right)
        except UnsupportedOperationError:
            pass
        if kind not in OPERATOR_SIGNS:
            raise UnsupportedSourceError("an operator that can't be followed")
        nodes: list[int] = []
        sign = OPERATOR_SIGNS[kind]
        texts = [self.argument_text(value, nodes) for value in (left, right)]
        self.left_to_torch.append(sign)
        value = self.torch_node(f"({texts[0]} {sign} {texts[1]})", nodes)
        rule = "matmul" if kind is ast.MatMult else ""
        return self.with_inferred_shape(value, rule, [left, right], {})

    def unary_operation(self, op: ast.unaryop, value: object) -> object:
        """`-value`, `~value` or `not value`; a tensor can't decide a branch."""
        if isinstance(value, TENSOR_TYPES):
            tensor = self.as_tensor(value)
            if isinstance(op, ast.USub):
                return self.call(BoundMethod(owner=tensor, name="neg"), [], {})
            if isinstance(op, ast.Invert):
                if self.graph[tensor.node].shape is not None:
                    return apply(self.graph, "not", tensor)
                nodes: list[int] = []
                return self.torch_node(f"(~{self.argument_text(tensor, nodes)})", nodes)
            raise UnsupportedSourceError("a branch depends on a tensor's numbers")
        if isinstance(op, ast.Not):
            return not plain_value(value)
        if isinstance(op, ast.USub) and isinstance(value, int | float):
            return -value
        raise UnsupportedOperationError("a sign before what is not a number")

    def comparison(self, op: ast.cmpop, left: object, right: object) -> object:
        """`left op right`: a mask node for tensors, a bool for what plain Python can compare."""
        if isinstance(op, ast.Is | ast.IsNot):
            if isinstance(left, OpaqueValue) or not (right is None or isinstance(right, bool)):
                raise UnsupportedSourceError("a comparison with `is` can't be followed")
            return (left is right) == isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, tuple | list | str | dict):
            if isinstance(right, tuple | list):
                for item in right:
                    plain_value(item)
            inside = plain_value(left) in right
            return inside == isinstance(op, ast.In)
        if type(op) not in COMPARISONS:
            raise UnsupportedSourceError("a comparison that can't be followed")
        name, sign, function = COMPARISONS[type(op)]
        if isinstance(left, Symbol) and isinstance(right, Symbol) and name in ("eq", "ne"):
            return (left.name == right.name) == (name == "eq")
        if isinstance(left, TENSOR_TYPES) or isinstance(right, TENSOR_TYPES):
            operands = [
                self.as_tensor(v) if isinstance(v, ParameterValue) else v for v in (left, right)
            ]
            with contextlib.suppress(UnsupportedOperationError):
                return apply(self.graph, name, *operands)
            nodes: list[int] = []
            texts = [self.argument_text(value, nodes) for value in operands]
            self.left_to_torch.append(sign)
            return self.torch_node(f"({texts[0]} {sign} {texts[1]})", nodes)
        return evaluate_plain(function, plain_value(left), plain_value(right))

    def evaluate_index(self, node: ast.expr, names: Namespace) -> object:
        """The value between brackets: an index, a slice, or a tuple of these."""
        if isinstance(node, ast.Tuple):
            return tuple(self.evaluate_index(part, names) for part in node.elts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if end is None else self.evaluate(end, names) for end in ends))
        return self.evaluate(node, names)

    def subscript(self, owner: object, index: object) -> object:
        """`owner[index]`: a view of a tensor's node where a rule covers it, else PyTorch."""
        if isinstance(owner, ModuleValue) and owner.children is not None:
            owner = owner.children
        if isinstance(owner, TENSOR_TYPES):
            self.graph.call += 1
            tensor = self.as_tensor(owner)
            try:
                return slice_tensor(self.graph, tensor, index)
            except (UnsupportedOperationError, *ARGUMENT_ERRORS):
                nodes: list[int] = []
                text = f"{self.argument_text(tensor, nodes)}[{self.argument_text(index, nodes)}]"
                self.left_to_torch.append("indexing")
                made = self.torch_node(text, nodes)
                return self.with_inferred_shape(made, "indexing", [tensor, index], {})
        if isinstance(owner, tuple | list | str) and isinstance(index, int | slice):
            return evaluate_plain(operator.getitem, owner, index)
        if isinstance(owner, dict) and isinstance(index, bool | int | float | str):
            return evaluate_plain(operator.getitem, owner, index)
        if isinstance(owner, ModuleValue | OpaqueValue) and owner.text:
            if isinstance(index, int | str):
                return OpaqueValue(text=f"{owner.text}[{index!r}]")
            inside: list[int] = []
            self.left_to_torch.append("indexing")
            return self.torch_node(f"{owner.text}[{self.argument_text(index, inside)}]", inside)
        raise UnsupportedOperationError("an index into what is not known")


def function_of(node: ast.Lambda, names: Namespace) -> TaskFunction:
    """A lambda as a function."""
    body: list[ast.stmt] = [ast.copy_location(ast.Return(value=node.body), node)]
    made = ast.FunctionDef(name="lambda", args=node.args, body=body, decorator_list=[])
    return TaskFunction(body=ast.copy_location(made, node), closure=names)
