"""The gradients of a forward as a program of their own: what a candidate's backward computes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import msgspec

from actors.agents.recipes.frontend.statements import ForwardProgram
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.ir.derivatives import Derivatives
from actors.agents.recipes.ir.graph import UnsupportedOperationError

GRADIENT = "g{}_"  # the name of a result's gradient
STATISTIC = re.compile(r"\.running_(?:mean|var)$")


class GradientNodes(msgspec.Struct, frozen=True, kw_only=True):
    """What the backward of one case computes."""

    program: ForwardProgram  # whose output are the gradients
    tensors: tuple[int, ...]  # the forward's inputs, then parameters: leaves
    found: tuple[int | None, ...]  # the gradient of each


def gradient_nodes(program: ForwardProgram, wanted_inputs: tuple[int, ...]) -> GradientNodes:
    """Add the gradients to a forward's graph.

    `wanted_inputs`: the numbers of the inputs that get one.  Raises UnsupportedSourceError.
    """
    graph = program.graph
    live = sorted(graph.ancestors(program.results))
    leaves = {graph[index].text: index for index in live if graph[index].op == "leaf"}
    names = _argument_names(program, leaves)
    parameters = [text for text in leaves if text.startswith("self.") and not _is_buffer(
        program, text)]  # fmt: skip
    wanted = [names[n] for n in wanted_inputs if n < len(names) and names[n] in leaves]
    nodes = _gradients(program, tuple(leaves[text] for text in (*wanted, *parameters)))
    tensors = tuple(leaves.get(text, -1) for text in names) + tuple(leaves[t] for t in parameters)
    if -1 in tensors or not any(node is not None for node in nodes.values()):
        raise UnsupportedSourceError("the forward does not compute with each of its arguments")
    found = tuple(nodes.get(index) for index in tensors)
    output = tuple(node for node in found if node is not None)
    return GradientNodes(
        program=msgspec.structs.replace(program, output=output), tensors=tensors, found=found
    )


def _argument_names(program: ForwardProgram, leaves: Iterable[str]) -> list[str]:
    """Return the names of the forward's arguments; raise where not each is a tensor.

    `leaves`: the texts of the graph's leaves.
    """
    forward = program.source.method(program.source.model, "forward")
    if forward is None:
        raise UnsupportedSourceError("Model has no forward")
    spec = forward[0].args
    names = [arg.arg for arg in spec.posonlyargs + spec.args][1:]
    others = [text for text in leaves if text not in names and not text.startswith("self.")]
    nested = not isinstance(program.output, int) and not (
        isinstance(program.output, tuple) and all(isinstance(n, int) for n in program.output)
    )
    if spec.vararg or spec.kwarg or spec.kwonlyargs or program.guards or others or nested:
        raise UnsupportedSourceError(
            "a backward has rules for tensors as arguments and results, not for nested ones, for"
            " numbers or keywords"
        )
    return names


def _gradients(program: ForwardProgram, asked: tuple[int, ...]) -> dict[int, int | None]:
    """Add the gradients of these leaves to the graph; return the node of each."""
    graph = program.graph
    try:
        given = tuple(
            graph.leaf(GRADIENT.format(number), graph[node].sizes)
            for number, node in enumerate(program.results)
        )
        found = Derivatives(graph).gradients(program.results, given, asked)
    except UnsupportedOperationError as problem:
        raise UnsupportedSourceError(f"the backward needs {problem}, which no rule covers") from (
            problem
        )
    return dict(zip(asked, found, strict=True))


def _is_buffer(program: ForwardProgram, text: str) -> bool:
    """Whether a tensor of the module has no gradient, as far as the source says it."""
    name = text.rpartition(".")[2]
    calls = (
        node
        for node in ast.walk(program.source.tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_buffer"
    )
    registered = {
        call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)
    }
    return name in registered or STATISTIC.search(text) is not None
