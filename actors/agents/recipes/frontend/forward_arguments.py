"""What forward is called with: tensors as leaves of the graph, everything else as it is.

The task's `get_inputs` is read, and the reference's own words ("float32[64, 8], int64[64]") say
what came of it.  A value that is no tensor is taken as it is, and the candidate checks that it is
still that one.
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
from actors.agents.recipes.ir.tensor_views import TensorView, identity_view

DTYPED = re.compile(r"(?:torch\.)?([a-z]+[a-z0-9_]*)\[([0-9, ]*)\]")
PlacedArgument = tuple[str, object]  # an argument's name and its value


class ForwardArguments(msgspec.Struct, kw_only=True):
    """The arguments by name, and what follows from them."""

    values: dict[str, object] = {}
    more: list[object] = []  # those of *args
    passed: list[str] = []  # how a call passes them on: "x", "*rest", "scale=scale"
    guards: list[str] = []  # Python conditions on those that are no tensors
    misfits: list[str] = []  # tensors that no kernel can take, in words


class ArgumentReader:
    """Reads the arguments of one forward."""

    def __init__(self, reader: ForwardReader, graph: OperationGraph, inputs: str) -> None:
        self._reader = reader
        self._graph = graph
        self._described = split_at_commas(inputs)
        self._at = ""
        body = reader.source.functions.get("get_inputs")
        if body is not None:
            self._at = f" ({reader.source.at(last_return(body))})"

    def read(self, spec: ast.arguments, made: object) -> ForwardArguments:
        """The arguments; raises Unreadable where what is given is not known or does not fit."""
        given = list(made) if isinstance(made, tuple | list) else []
        count = len(self._described) or len(given)
        names = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
        if not isinstance(made, tuple | list) and not self._described:
            raise UnsupportedSourceError("what get_inputs() returns is not known")
        if len(given) != count:
            given = [OpaqueValue()] * count
        if count > len(names) and spec.vararg is None:
            raise UnsupportedSourceError(
                f"get_inputs() gives {count} values and forward() takes {len(names)}"
            )
        found = ForwardArguments()
        for place, value in enumerate(given):
            rest = place - len(names)
            text = names[place] if rest < 0 else f"{spec.vararg.arg}[{rest}]"  # type: ignore[union-attr]
            read = self._argument(place, text, value, found)
            if rest < 0:
                found.values[names[place]] = read
            else:
                found.more.append(read)
        self._defaults(spec, names, found)
        return found

    def _argument(self, place: int, text: str, value: object, found: ForwardArguments) -> object:
        words = self._described[place] if place < len(self._described) else ""
        which = f"input {place} ({text})"
        match = DTYPED.fullmatch(words)
        if match is not None:
            shape = tuple(int(n) for n in match[2].split(",") if n.strip())
            return self._tensor(which, text, MetaTensor(shape=shape, dtype=match[1]), found)
        if words and not isinstance(value, dict | list | tuple):
            value = plainly_said(words, value)
        return self._value(which, text, value, found)

    def _tensor(
        self, which: str, text: str, made: MetaTensor, found: ForwardArguments
    ) -> TensorView:
        if made.dtype == "float32" and 0 not in made.shape:
            return identity_view(self._graph, self._graph.leaf(text, made.shape))
        if made.dtype != "float32":
            found.misfits.append(f"{which} is {made.dtype}{list(made.shape)}{self._at}")
        else:
            found.misfits.append(f"{which} is empty{self._at}")
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
        """Arguments that are not given have their defaults, as long as no caller gives them."""
        found.passed += names
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
            found.passed.append(f"*{spec.vararg.arg}")
            found.guards.append(f"len({spec.vararg.arg}) == {len(found.more)}")
        found.passed += [f"{arg.arg}={arg.arg}" for arg in spec.kwonlyargs]
        if spec.kwarg is not None:
            found.passed.append(f"**{spec.kwarg.arg}")
            found.guards.append(f"not {spec.kwarg.arg}")


def last_return(body: ast.FunctionDef) -> int:
    """The line on which a function returns."""
    lines = [node.lineno for node in ast.walk(body) if isinstance(node, ast.Return)]
    return max(lines, default=body.lineno)


def split_at_commas(words: str) -> list[str]:
    """What stands between the commas, those inside of brackets left alone."""
    found, depth, begin = [], 0, 0
    for place, char in enumerate(words):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            found.append(words[begin:place].strip())
            begin = place + 1
    last = words[begin:].strip()
    return [*found, last] if last or found else []


def plainly_said(words: str, value: object) -> object:
    """The value that the reference's words stand for, where the source alone does not say."""
    if is_plain(value) or isinstance(value, Symbol):
        return value
    if words == "none":
        return None
    try:
        return ast.literal_eval(words)
    except (ValueError, SyntaxError):
        return value


def same_value(text: str, value: object) -> str:
    """Python text that tells whether an argument is this plain value and no tensor."""
    if value is None or isinstance(value, bool):
        return f"{text} is {value}"
    return f"type({text}) is {type(value).__name__} and {text} == {value!r}"
