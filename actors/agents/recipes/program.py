"""Reading a whole task: its constructor's arguments, its inputs, its forward."""

from __future__ import annotations

import re

from actors.agents.recipes.expressions import Names
from actors.agents.recipes.frames import Tensor, plain, stored, whole
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.objects import Function, Hidden, Meta, Module, Parameter, Unreadable
from actors.agents.recipes.reading import Program, Reader, reach, set_evaluating
from actors.agents.recipes.source import Source, constructor, method

Input = tuple[int, ...] | float | None  # a shape, a number, or something else
Shapes = list[Input]


def read(text: str, inputs: str = "", *, fold_bias: bool = False) -> Program:
    """The task's forward as a graph.  `inputs` is the reference's "float32[64, 8], int64[64]".

    Raises Unreadable with a sentence for a person.
    """
    source = Source(text)
    graph = Graph()
    reader = Reader(source, graph, fold_bias)
    made = asked(reader, "get_init_inputs")
    args = list(made) if isinstance(made, tuple | list) else None
    if args is None:
        if method(source.model, "__init__") is not None:
            raise Unreadable("get_init_inputs() returns something that I can't work out")
        args = []
    model = Module(text="self", kind="Model", body=source.model)
    start = reader.made(model, source.model, args, {})
    if model.evaluating:
        set_evaluating(model)
    reach(model, "self")
    forward = method(source.model, "forward")
    if forward is None:
        raise Unreadable("Model has no forward")
    names = [arg.arg for arg in forward.args.posonlyargs + forward.args.args][1:]
    shapes = input_shapes(reader, inputs)
    if len(shapes) > len(names):
        raise Unreadable("get_inputs() gives more than forward() takes")
    known = tuple(zip(names, shapes, strict=False))
    graph.nodes.clear()  # only the forward's own nodes count
    graph.origin.clear()
    graph._known.clear()
    reader.kept.clear()
    reader.evaluated.clear()
    reader.constructing = False
    tensors: list[object] = [leaf(graph, name, shape) for name, shape in known]
    try:
        output = outputs(reader, reader.inline(Function(body=forward, owner=model), tensors, {}))
    except Unknown as problem:
        raise Unreadable(f"the forward uses {problem}, which I don't know") from problem
    except RecursionError as problem:
        raise Unreadable("the forward is nested too deeply") from problem
    return Program(
        source=source,
        graph=graph,
        inputs=known,
        output=output,
        made_for=arguments(source, start),
        kept=tuple(dict.fromkeys(reader.kept)),
        evaluated=tuple(dict.fromkeys(reader.evaluated)),
    )


def asked(reader: Reader, name: str) -> object:
    """What one of the task's get_… functions returns, None where it can't be worked out."""
    body = reader.source.functions.get(name)
    if body is None:
        return None
    try:
        return reader.inline(Function(body=body), [], {})
    except (Unknown, Unreadable):
        return None


def input_shapes(reader: Reader, inputs: str) -> Shapes:
    parts = re.findall(r"[^,\[]+(?:\[[^\]]*\])?", inputs)
    shapes: Shapes = []
    for part in (p.strip() for p in parts):
        match = re.fullmatch(r"(?:torch\.)?float32\[([0-9, ]*)\]", part)
        if match is None:
            shapes.append(None)
        else:
            shapes.append(tuple(int(n) for n in match[1].split(",") if n.strip()))
    made = asked(reader, "get_inputs")
    if isinstance(made, tuple | list) and (not shapes or len(made) != len(shapes)):
        shapes = [m.shape if isinstance(m, Meta) and m.dtype == "float32" else None for m in made]
    if isinstance(made, tuple | list) and len(made) == len(shapes):
        for place, value in enumerate(made):
            if isinstance(value, int | float) and not isinstance(value, bool):
                shapes[place] = float(value)
    if not shapes:
        raise Unreadable("the shapes of the inputs are not known")
    return shapes


def leaf(graph: Graph, name: str, shape: Input) -> Tensor:
    if isinstance(shape, float):
        return Tensor(node=graph.const(shape), groups=())
    if shape is None or 0 in shape:
        return Tensor(node=graph.torch(name, (), None), groups=())
    return whole(graph, graph.leaf(name, shape))


def outputs(reader: Reader, value: object) -> object:
    """The returned nodes, in the nesting of what was returned."""
    if isinstance(value, Parameter):
        value = reader.tensor(value)
    if isinstance(value, Tensor):
        graph = reader.graph
        if graph[value.node].mask:
            raise Unknown("a boolean result")
        if graph[value.node].op == "const":
            raise Unknown("a constant result")
        if graph[value.node].shape is None or plain(graph, value):
            return value.node
        return stored(graph, value)
    if isinstance(value, tuple | list) and value:
        items = [outputs(reader, item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    raise Unknown("a result that is not a tensor or a tuple of tensors")


def arguments(source: Source, start: Names) -> str:
    """The constructor's arguments, by which a ModelNew made for others is told apart."""
    kept = [start.get(name, Hidden()) for name in constructor(source.model)]
    if any(isinstance(value, Hidden | Meta | Module) for value in kept):
        return ""
    return repr(tuple(kept))
