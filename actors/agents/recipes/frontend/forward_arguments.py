"""The arguments of forward: tensors as leaves of the graph, other values as they are.

The task's `get_inputs` is read, and the reference's description ("float32[64, 8], int64[64]") says
what it returned.  The value of an argument that is not a tensor is written into the candidate,
which checks at every call that the argument still has that value.
"""

from __future__ import annotations

import ast
import re

import msgspec

from actors.agents.recipes.frontend.statements import ForwardReader
from actors.agents.recipes.frontend.symbolic_values import (
    MetaTensor,
    OpaqueValue,
    Symbol,
    UnsupportedSourceError,
)
from actors.agents.recipes.frontend.value_paths import is_plain
from actors.agents.recipes.ir.graph import OperationGraph
from actors.agents.recipes.ir.memory_orders import drawn_orders
from actors.agents.recipes.ir.tensor_views import TensorView, identity_view

DTYPED = re.compile(r"(?:torch\.)?([a-z]+[a-z0-9_]*)\[([0-9, ]*)\]")


class ForwardArguments(msgspec.Struct, kw_only=True):
    """The arguments by name, and what follows from them for the candidate."""

    values: dict[str, object] = {}
    starred: list[object] = []  # the values of *args
    call_arguments: list[str] = []  # how a call passes them on: "x", "*rest", "scale=scale"
    guards: list[str] = []  # Python conditions on the values that are not tensors
    unsupported_tensors: list[str] = []  # tensors that no kernel can take, and why


class ArgumentReader:
    """Reads the arguments of one forward."""

    def __init__(self, reader: ForwardReader, graph: OperationGraph, inputs: str) -> None:
        self._reader = reader
        self._graph = graph
        self._described = split_at_commas(inputs)
        self._at = ""
        body = reader.source.functions.get("get_inputs")
        self._orders = drawn_orders(body)
        if body is not None:
            self._at = f" ({reader.source.describe_line(last_return(body))})"

    def read(self, spec: ast.arguments, made: object) -> ForwardArguments:
        """The arguments; raises `UnsupportedSourceError` where they are not known or do not fit."""
        values = list(made) if isinstance(made, tuple | list) else []
        count = len(self._described) or len(values)
        names = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
        if not isinstance(made, tuple | list) and not self._described:
            raise UnsupportedSourceError("what get_inputs() returns is not known")
        if len(values) != count:
            values = [OpaqueValue()] * count
        if count > len(names) and spec.vararg is None:
            raise UnsupportedSourceError(
                f"get_inputs() gives {count} values and forward() takes {len(names)}"
            )
        found = ForwardArguments()
        for place, value in enumerate(values):
            rest = place - len(names)
            text = names[place] if rest < 0 else f"{spec.vararg.arg}[{rest}]"  # type: ignore[union-attr]
            read = self._argument(place, text, value, found)
            if rest < 0:
                found.values[names[place]] = read
            else:
                found.starred.append(read)
        self._defaults(spec, names, found)
        return found

    def _argument(self, place: int, text: str, value: object, found: ForwardArguments) -> object:
        description = self._described[place] if place < len(self._described) else ""
        which = f"input {place} ({text})"
        match = DTYPED.fullmatch(description)
        if match is not None:
            shape = tuple(int(n) for n in match[2].split(",") if n.strip())
            made = MetaTensor(shape=shape, dtype=match[1])
            return self._in_order(place, self._tensor(which, text, made, found))
        if description and not isinstance(value, dict | list | tuple):
            value = value_of_description(description, value)
        read = self._value(which, text, value, found)
        return self._in_order(place, read) if isinstance(read, TensorView) else read

    def _in_order(self, place: int, read: TensorView) -> TensorView:
        """Note an input's order in memory, where get_inputs shows that it is not the shape's."""
        order = self._orders.get(place)
        if order is not None and len(order) == len(self._graph[read.node].shape or ()):
            self._graph.orders[read.node] = order
        return read

    def _tensor(
        self, which: str, text: str, made: MetaTensor, found: ForwardArguments
    ) -> TensorView:
        if made.dtype == "float32" and 0 not in made.shape:
            return identity_view(self._graph, self._graph.leaf(text, made.shape))
        if made.dtype != "float32":
            found.unsupported_tensors.append(f"{which} is {made.dtype}{list(made.shape)}{self._at}")
        else:
            found.unsupported_tensors.append(f"{which} is empty{self._at}")
        escaped = text.replace("{", "{{").replace("}", "}}")
        return TensorView(node=self._graph.torch_node(escaped, (), None), groups=())

    def _value(self, which: str, text: str, value: object, found: ForwardArguments) -> object:
        match value:
            case MetaTensor():
                return self._tensor(which, text, value, found)
            case dict():
                return {
                    key: self._value(which, f"{text}[{key!r}]", item, found)
                    for key, item in value.items()
                }
            case list() | tuple() if not is_plain(value):
                items = [
                    self._value(which, f"{text}[{n}]", item, found) for n, item in enumerate(value)
                ]
                found.guards.append(f"len({text}) == {len(items)}")
                return items if isinstance(value, list) else tuple(items)
            case Symbol(name=name) if value.spelling:
                found.guards.append(f"{text} is {value.spelling}")
                return msgspec.structs.replace(value, name=name)
        if not is_plain(value):
            raise UnsupportedSourceError(
                f"{which} is neither a tensor nor a plain value that get_inputs() shows{self._at}"
            )
        found.guards.append(same_value(text, value))
        return value

    def _defaults(self, spec: ast.arguments, names: list[str], found: ForwardArguments) -> None:
        """Arguments that get_inputs does not give have their defaults, which the guards check."""
        found.call_arguments += names
        defaults = dict(zip(names[::-1], spec.defaults[::-1], strict=False))
        defaults |= {
            arg.arg: default
            for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if default is not None
        }
        for name, default in defaults.items():
            if name not in found.values:
                value = self._reader.evaluate(default, {})
                if isinstance(value, Symbol) or is_plain(value):
                    found.values[name] = self._value(f"argument {name}", name, value, found)
                else:
                    raise UnsupportedSourceError(f"the default of forward's {name} is not known")
        if spec.vararg is not None:
            found.call_arguments.append(f"*{spec.vararg.arg}")
            found.guards.append(f"len({spec.vararg.arg}) == {len(found.starred)}")
        found.call_arguments += [f"{arg.arg}={arg.arg}" for arg in spec.kwonlyargs]
        if spec.kwarg is not None:
            found.call_arguments.append(f"**{spec.kwarg.arg}")
            found.guards.append(f"not {spec.kwarg.arg}")


def last_return(body: ast.FunctionDef) -> int:
    """The line on which a function returns."""
    lines = [node.lineno for node in ast.walk(body) if isinstance(node, ast.Return)]
    return max(lines, default=body.lineno)


def split_at_commas(text: str) -> list[str]:
    """The parts between commas, except for commas inside brackets."""
    found, depth, begin = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            found.append(text[begin:place].strip())
            begin = place + 1
    last = text[begin:].strip()
    return [*found, last] if last or found else []


def value_of_description(description: str, value: object) -> object:
    """The value that the reference's description names, where the source alone does not tell."""
    if is_plain(value) or isinstance(value, Symbol):
        return value
    if description == "none":
        return None
    try:
        return ast.literal_eval(description)
    except (ValueError, SyntaxError):
        return value


def same_value(text: str, value: object) -> str:
    """A Python condition: the argument is this plain value, and not a tensor."""
    if value is None or isinstance(value, bool):
        return f"{text} is {value}"
    return f"type({text}) is {type(value).__name__} and {text} == {value!r}"
