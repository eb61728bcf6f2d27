"""Reading a whole task: its constructor's arguments, its inputs, its forward."""

from __future__ import annotations

from actors.agents.recipes.frontend.attributes import Namespace
from actors.agents.recipes.frontend.forward_arguments import (
    DTYPED,
    ArgumentReader,
    ForwardArguments,
    split_at_commas,
)
from actors.agents.recipes.frontend.statements import ForwardProgram, ForwardReader
from actors.agents.recipes.frontend.symbolic_values import (
    DataclassValue,
    EndlessLoopError,
    ModuleValue,
    ParameterValue,
    Symbol,
    TaskFunction,
    UnsupportedSourceError,
)
from actors.agents.recipes.frontend.task_source import TaskSource
from actors.agents.recipes.frontend.value_paths import (
    assign_paths,
    flatten_output,
    is_plain,
    with_paths,
)
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.tensor_views import TensorView, is_identity_view, materialized


def read_task(
    text: str, inputs: str = "", *, outputs: str = "", fold_bias: bool = False
) -> ForwardProgram:
    """The task's forward as a graph.

    `inputs` and `outputs` are the reference's: "float32[64, 8], int64[64]", "" where not known.
    Raises Unreadable with a sentence for a person that names the line.
    """
    source = TaskSource(text)
    reader = ForwardReader(source, OperationGraph(), fold_bias)
    try:
        reader.read_constants()
        return whole_program(reader, inputs, outputs)
    except UnsupportedSourceError as problem:
        raise UnsupportedSourceError(with_line(str(problem), reader)) from problem
    except UnsupportedOperationError as problem:
        raise UnsupportedSourceError(with_line(f"{problem} is not known", reader)) from problem
    except RecursionError as problem:
        raise UnsupportedSourceError(
            with_line("the source is nested too deeply", reader)
        ) from problem


def with_line(words: str, reader: ForwardReader) -> str:
    """The words with the line where the reader is, unless they name one."""
    if "line " in words or not reader.line:
        return words
    return f"{words} ({reader.source.at(reader.line)})"


def whole_program(reader: ForwardReader, inputs: str, outputs: str) -> ForwardProgram:
    source, graph = reader.source, reader.graph
    made = call_getter(reader, "get_init_inputs")
    if not isinstance(made, tuple | list):
        if source.method(source.model, "__init__") is not None and source.constructor(source.model):
            raise UnsupportedSourceError("what get_init_inputs() returns is not known")
        made = ()
    model = ModuleValue(text="self", kind="Model", body=source.model)
    start = reader.run_constructor(model, source.model, list(made), {})
    assign_paths(model, "self")
    for name, value in reader.constants.items():
        reader.constants[name] = with_paths(value, name)
    found = source.method(source.model, "forward")
    if found is None:
        raise UnsupportedSourceError("Model has no forward")
    forward = TaskFunction(body=found[0], owner=model, home=found[1])
    given = call_getter(reader, "get_inputs")
    forget_side_nodes(reader)
    reader.line = found[0].lineno
    arguments = ArgumentReader(reader, graph, inputs).read(found[0].args, given)
    forget_calls(reader)
    output = returned_nodes(reader, call_forward(reader, forward, arguments))
    compare_outputs(graph, output, outputs)
    return ForwardProgram(
        source=source,
        graph=graph,
        given=tuple(arguments.passed),
        guards=tuple(arguments.guards),
        output=output,
        made_for=constructor_guard(source, start),
        kept=tuple(dict.fromkeys(reader.placeholders)),
        kept_at=dict(reader.kept_at),
        misfits=(*arguments.misfits, *reader.misfits.values()),
        evaluated=tuple(dict.fromkeys(reader.evaluated)),
    )


def call_forward(
    reader: ForwardReader, forward: TaskFunction, arguments: ForwardArguments
) -> object:
    """What forward returns for the arguments."""
    spec = forward.body.args
    names = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
    places: list[object] = []
    named = dict(arguments.values)
    if arguments.more:
        places = [named.pop(name) for name in names]
    return reader.inline(forward, [*places, *arguments.more], named)


def forget_side_nodes(reader: ForwardReader) -> None:
    """Only the forward's own nodes count."""
    graph = reader.graph
    graph.nodes.clear()
    graph.origin.clear()
    graph._known.clear()
    reader.constructing = False
    forget_calls(reader)


def forget_calls(reader: ForwardReader) -> None:
    for told in (
        reader.placeholders,
        reader.kept_at,
        reader.misfits,
        reader.evaluated,
        reader.spoilt,
    ):
        told.clear()


def call_getter(reader: ForwardReader, name: str) -> object:
    """What one of the task's get_… functions returns, None where it can't be worked out."""
    body = reader.source.functions.get(name)
    if body is None:
        value = reader.constants.get(name)
        if not isinstance(value, TaskFunction):
            return None
        body = value.body
    try:
        return reader.inline(TaskFunction(body=body), [], {})
    except EndlessLoopError:
        raise
    except (UnsupportedOperationError, UnsupportedSourceError):
        return None


def returned_nodes(reader: ForwardReader, value: object) -> object:
    """The returned nodes, in the nesting of what was returned."""
    if isinstance(value, ParameterValue):
        value = reader.as_tensor(value)
    if isinstance(value, TensorView):
        graph = reader.graph
        if graph[value.node].is_mask:
            raise UnsupportedSourceError("the result is a tensor of booleans")
        if graph[value.node].op == "const":
            raise UnsupportedSourceError("the result is a constant")
        if graph[value.node].shape is None or is_identity_view(graph, value):
            return value.node
        return materialized(graph, value)
    if isinstance(value, tuple | list) and value:
        items = [returned_nodes(reader, item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        return {key: returned_nodes(reader, item) for key, item in value.items()}
    raise UnsupportedSourceError("the result is not made of tensors alone")


def compare_outputs(graph: OperationGraph, output: object, words: str) -> None:
    """Raise where what was read is not what the reference gave: then something was misread."""
    given = [
        DTYPED.fullmatch(part) for part in split_at_commas(words.replace("(", "").replace(")", ""))
    ]
    nodes = flatten_output(output)
    if len(given) != len(nodes):
        return
    for place, (match, node) in enumerate(zip(given, nodes, strict=True)):
        shape = graph[node].shape
        if match is None or shape is None:
            continue
        said = tuple(int(n) for n in match[2].split(",") if n.strip())
        if match[1] != "float32":
            raise UnsupportedSourceError(
                f"output {place} is {match[1]}{list(said)}, and the rule book writes kernels for"
                " float32 alone"
            )
        if said != shape:
            raise UnsupportedSourceError(
                f"output {place} was read as float32{list(shape)}, and the reference gives"
                f" float32{list(said)}: the rule book does not understand this module"
            )


def constructor_guard(source: TaskSource, start: Namespace) -> str:
    """Python text that tells a ModelNew made for these arguments; "" where they are not plain."""
    words = {name: plain_text(start.get(name)) for name in source.constructor(source.model)}
    names = [name for name, word in words.items() if word is not None]
    if not names:
        return ""
    now = "".join(
        f"vars({n}), " if isinstance(start.get(n), DataclassValue) else f"{n}, " for n in names
    )
    return f"({now}) == ({''.join(f'{words[name]}, ' for name in names)})"


def plain_text(value: object) -> str | None:
    """Python text for a plain value, or a dataclass's fields; None for anything else."""
    if is_plain(value):
        return repr(value)
    if isinstance(value, Symbol) and value.spelling:
        return value.spelling
    if isinstance(value, DataclassValue) and is_plain(value.fields):
        return repr(value.fields)
    return None
