"""Reading a whole task: its constructor's arguments, its inputs, its forward."""

from __future__ import annotations

from actors.agents.recipes.arguments import DTYPED, Arguments, Reading, parts
from actors.agents.recipes.frames import Tensor, plain, stored
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.members import Names
from actors.agents.recipes.objects import (
    Endless,
    Function,
    Module,
    Parameter,
    Record,
    Symbol,
    Unreadable,
)
from actors.agents.recipes.reaching import flat, is_plain, reach, reached
from actors.agents.recipes.reading import Program, Reader
from actors.agents.recipes.source import Source


def read(text: str, inputs: str = "", *, outputs: str = "", fold_bias: bool = False) -> Program:
    """The task's forward as a graph.

    `inputs` and `outputs` are the reference's: "float32[64, 8], int64[64]", "" where not known.
    Raises Unreadable with a sentence for a person that names the line.
    """
    source = Source(text)
    reader = Reader(source, Graph(), fold_bias)
    try:
        reader.read_constants()
        return whole_program(reader, inputs, outputs)
    except Unreadable as problem:
        raise Unreadable(located(str(problem), reader)) from problem
    except Unknown as problem:
        raise Unreadable(located(f"{problem} is not known", reader)) from problem
    except RecursionError as problem:
        raise Unreadable(located("the source is nested too deeply", reader)) from problem


def located(words: str, reader: Reader) -> str:
    """The words with the line where the reader is, unless they name one."""
    if "line " in words or not reader.line:
        return words
    return f"{words} ({reader.source.at(reader.line)})"


def whole_program(reader: Reader, inputs: str, outputs: str) -> Program:
    source, graph = reader.source, reader.graph
    made = asked(reader, "get_init_inputs")
    if not isinstance(made, tuple | list):
        if source.method(source.model, "__init__") is not None and source.constructor(source.model):
            raise Unreadable("what get_init_inputs() returns is not known")
        made = ()
    model = Module(text="self", kind="Model", body=source.model)
    start = reader.made(model, source.model, list(made), {})
    reach(model, "self")
    for name, value in reader.constants.items():
        reader.constants[name] = reached(value, name)
    found = source.method(source.model, "forward")
    if found is None:
        raise Unreadable("Model has no forward")
    forward = Function(body=found[0], owner=model, home=found[1])
    given = asked(reader, "get_inputs")
    forget(reader)
    reader.line = found[0].lineno
    arguments = Reading(reader, graph, inputs).of(found[0].args, given)
    forget_calls(reader)
    output = result(reader, called(reader, forward, arguments))
    compare_outputs(graph, output, outputs)
    return Program(
        source=source,
        graph=graph,
        given=tuple(arguments.passed),
        guards=tuple(arguments.guards),
        output=output,
        made_for=made_for(source, start),
        kept=tuple(dict.fromkeys(reader.kept)),
        kept_at=dict(reader.kept_at),
        misfits=(*arguments.misfits, *reader.misfits.values()),
        evaluated=tuple(dict.fromkeys(reader.evaluated)),
    )


def called(reader: Reader, forward: Function, arguments: Arguments) -> object:
    """What forward returns for the arguments."""
    spec = forward.body.args
    names = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
    places: list[object] = []
    named = dict(arguments.values)
    if arguments.more:
        places = [named.pop(name) for name in names]
    return reader.inline(forward, [*places, *arguments.more], named)


def forget(reader: Reader) -> None:
    """Only the forward's own nodes count."""
    graph = reader.graph
    graph.nodes.clear()
    graph.origin.clear()
    graph._known.clear()
    reader.constructing = False
    forget_calls(reader)


def forget_calls(reader: Reader) -> None:
    for told in (reader.kept, reader.kept_at, reader.misfits, reader.evaluated, reader.spoilt):
        told.clear()


def asked(reader: Reader, name: str) -> object:
    """What one of the task's get_… functions returns, None where it can't be worked out."""
    body = reader.source.functions.get(name)
    if body is None:
        value = reader.constants.get(name)
        if not isinstance(value, Function):
            return None
        body = value.body
    try:
        return reader.inline(Function(body=body), [], {})
    except Endless:
        raise
    except (Unknown, Unreadable):
        return None


def result(reader: Reader, value: object) -> object:
    """The returned nodes, in the nesting of what was returned."""
    if isinstance(value, Parameter):
        value = reader.tensor(value)
    if isinstance(value, Tensor):
        graph = reader.graph
        if graph[value.node].mask:
            raise Unreadable("the result is a tensor of booleans")
        if graph[value.node].op == "const":
            raise Unreadable("the result is a constant")
        if graph[value.node].shape is None or plain(graph, value):
            return value.node
        return stored(graph, value)
    if isinstance(value, tuple | list) and value:
        items = [result(reader, item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        return {key: result(reader, item) for key, item in value.items()}
    raise Unreadable("the result is not made of tensors alone")


def compare_outputs(graph: Graph, output: object, words: str) -> None:
    """Raise where what was read is not what the reference gave: then something was misread."""
    given = [DTYPED.fullmatch(part) for part in parts(words.replace("(", "").replace(")", ""))]
    nodes = flat(output)
    if len(given) != len(nodes):
        return
    for place, (match, node) in enumerate(zip(given, nodes, strict=True)):
        shape = graph[node].shape
        if match is None or shape is None:
            continue
        said = tuple(int(n) for n in match[2].split(",") if n.strip())
        if match[1] != "float32":
            raise Unreadable(
                f"output {place} is {match[1]}{list(said)}, and the rule book writes kernels for"
                " float32 alone"
            )
        if said != shape:
            raise Unreadable(
                f"output {place} was read as float32{list(shape)}, and the reference gives"
                f" float32{list(said)}: the rule book does not understand this module"
            )


def made_for(source: Source, start: Names) -> str:
    """Python text that tells a ModelNew made for these arguments; "" where they are not plain."""
    words = {name: written(start.get(name)) for name in source.constructor(source.model)}
    names = [name for name, word in words.items() if word is not None]
    if not names:
        return ""
    now = "".join(f"vars({n}), " if isinstance(start.get(n), Record) else f"{n}, " for n in names)
    return f"({now}) == ({''.join(f'{words[name]}, ' for name in names)})"


def written(value: object) -> str | None:
    """Python text for a plain value, or a dataclass's fields; None for anything else."""
    if is_plain(value):
        return repr(value)
    if isinstance(value, Symbol) and value.spelled:
        return value.spelled
    if isinstance(value, Record) and is_plain(value.fields):
        return repr(value.fields)
    return None
