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
    BoundMethod,
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
    text: str,
    inputs: str = "",
    *,
    outputs: str = "",
    fold_bias: bool = False,
    half: str = "",
) -> ForwardProgram:
    """The task's forward as a graph.

    `inputs` and `outputs` describe the reference's tensors, as in "float32[64, 8], int64[64]"; ""
    where they are not known.  `half`: the half that the module computes in, which is read as if it
    were float32.  Raises `UnsupportedSourceError` with a sentence for the user that
    names the line.
    """
    source = TaskSource(text)
    reader = ForwardReader(source, OperationGraph(), fold_bias)
    reader.half = half
    try:
        reader.read_constants()
        return read_program(reader, inputs, outputs)
    except UnsupportedSourceError as problem:
        raise UnsupportedSourceError(with_line(str(problem), reader)) from problem
    except UnsupportedOperationError as problem:
        raise UnsupportedSourceError(with_line(f"{problem} is not known", reader)) from problem
    except RecursionError as problem:
        raise UnsupportedSourceError(
            with_line("the source is nested too deeply", reader)
        ) from problem


def with_line(problem: str, reader: ForwardReader) -> str:
    """The problem with the line that the reader has reached, unless the problem names a line."""
    if "line " in problem or not reader.line:
        return problem
    return f"{problem} ({reader.source.describe_line(reader.line)})"


def read_program(reader: ForwardReader, inputs: str, outputs: str) -> ForwardProgram:
    """Follow the constructor, then the forward, for the arguments of the two get_… functions."""
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
    clear_graph(reader)
    reader.line = found[0].lineno
    arguments = ArgumentReader(reader, graph, inputs).read(found[0].args, given)
    clear_call_records(reader)
    output = returned_nodes(reader, call_forward(reader, forward, arguments))
    compare_outputs(graph, output, outputs)
    return ForwardProgram(
        source=source,
        graph=graph,
        call_arguments=tuple(arguments.call_arguments),
        guards=tuple(arguments.guards),
        output=output,
        constructor_guard=constructor_guard(source, start),
        left_to_torch=tuple(dict.fromkeys(reader.left_to_torch)),
        torch_lines=dict(reader.torch_lines),
        unsupported_tensors=(*arguments.unsupported_tensors, *reader.unsupported_tensors.values()),
        eval_mode_modules=tuple(dict.fromkeys(reader.eval_mode_modules)),
    )


def call_forward(
    reader: ForwardReader, forward: TaskFunction, arguments: ForwardArguments
) -> object:
    """The value that forward returns for the arguments."""
    spec = forward.body.args
    names = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
    places: list[object] = []
    named = dict(arguments.values)
    if arguments.starred:
        places = [named.pop(name) for name in names]
    return reader.inline(forward, [*places, *arguments.starred], named)


def clear_graph(reader: ForwardReader) -> None:
    """Drop the constructor's nodes: the graph is the forward's alone."""
    graph = reader.graph
    graph.nodes.clear()
    graph.origin.clear()
    graph.orders.clear()
    graph.function_of.clear()
    graph._known.clear()
    reader.constructing = False
    clear_call_records(reader)


def clear_call_records(reader: ForwardReader) -> None:
    """Drop what was recorded about calls before the forward."""
    for records in (
        reader.left_to_torch,
        reader.torch_lines,
        reader.unsupported_tensors,
        reader.eval_mode_modules,
        reader.changed_in_place,
    ):
        records.clear()


def call_getter(reader: ForwardReader, name: str) -> object:
    """The value of one of the task's get_… functions; None where it can't be followed."""
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
    """The returned nodes, nested as the returned tensors."""
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
    if isinstance(value, BoundMethod):
        raise UnsupportedSourceError(f"the result has .{value.name} in it, which is not known")
    shown = f"has {value!r} in it" if is_plain(value) else "has something else in it"
    raise UnsupportedSourceError(f"the result {shown}, and not tensors alone")


def compare_outputs(graph: OperationGraph, output: object, description: str) -> None:
    """Raise where the outputs that were read differ from the reference's: a misreading."""
    parts = split_at_commas(description.replace("(", "").replace(")", ""))
    matches = [DTYPED.fullmatch(part) for part in parts]
    nodes = flatten_output(output)
    if len(matches) != len(nodes):
        return
    for place, (match, node) in enumerate(zip(matches, nodes, strict=True)):
        shape = graph[node].shape
        if match is None or shape is None:
            continue
        measured = tuple(int(n) for n in match[2].split(",") if n.strip())
        if match[1] != "float32":
            raise UnsupportedSourceError(
                f"output {place} is {match[1]}{list(measured)}, and the rule book writes kernels"
                " for float32 alone"
            )
        if measured != shape:
            raise UnsupportedSourceError(
                f"output {place} was read as float32{list(shape)}, and the reference gives"
                f" float32{list(measured)}: the rule book does not understand this module"
            )


def constructor_guard(source: TaskSource, start: Namespace) -> str:
    """A Python condition: ModelNew is constructed with these arguments; "": none is plain."""
    texts = {name: plain_text(start.get(name)) for name in source.constructor(source.model)}
    names = [name for name, text in texts.items() if text is not None]
    if not names:
        return ""
    now = "".join(
        f"vars({n}), " if isinstance(start.get(n), DataclassValue) else f"{n}, " for n in names
    )
    return f"({now}) == ({''.join(f'{texts[name]}, ' for name in names)})"


def plain_text(value: object) -> str | None:
    """Python text for a plain value, or a dataclass's fields; None for anything else."""
    if is_plain(value):
        return repr(value)
    if isinstance(value, Symbol) and value.spelling:
        return value.spelling
    if isinstance(value, DataclassValue) and is_plain(value.fields):
        return repr(value.fields)
    return None
