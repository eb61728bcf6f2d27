"""A task's file in KernelBench's form, from a module's graph and recorded calls."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Sequence

import msgspec
import torch
from torch import fx

from actors.adopt.tasks.module_graph import ModuleGraph
from actors.adopt.tasks.operation_text import UntranslatableError, operation_text
from actors.adopt.tasks.tensor_draws import draw_text, weight_text

TAKEN_NAMES = frozenset(["torch", "nn", "F", "self", *keyword.kwlist])
WIDTH = 96


class TaskText(msgspec.Struct, frozen=True, kw_only=True):
    """A task's source, and how its tensors are found in the model."""

    source: str
    arguments: tuple[str, ...]  # of the forward
    inputs: tuple[int, ...]  # the forward's arguments: numbers among the call's tensors
    state: dict[str, str]  # attribute of the task's Model -> path in the module
    outputs: tuple[int, ...]  # for each leaf of the result the task's output; -1: None
    forward: str  # the lines of the forward: equal for modules that compute the same

    def with_forward(self, forward: str) -> TaskText:
        """Return the task with other lines in its forward."""
        source = self.source.replace(self.forward, forward, 1)
        return msgspec.structs.replace(self, source=source, forward=forward)


def task_text(
    graph: ModuleGraph,
    module: torch.nn.Module,
    tensors: Sequence[torch.Tensor],
    about: str,
    wanted: Sequence[bool] = (),
) -> TaskText:
    """Return the task for one graph; raise UntranslatableError with the reason.

    `tensors`: the tensors of a recorded call, in order, whose ranges the inputs are drawn from.
    `wanted`: for each of them, in a training step, whether its gradient is wanted.
    """
    if not graph.inputs:
        raise UntranslatableError("its result does not depend on a tensor that it is given")
    attributes = _attributes(graph.state.values())
    lines = _state_lines(graph, module, attributes)
    names = _name_nodes(graph, attributes)
    body = "\n".join(f"        {names[node]} = {operation_text(node)}" for node in graph.nodes)
    results, outputs = _results(graph)
    arguments = tuple(_local(name) for name, _ in graph.inputs)
    source = _FILE.format(
        about=about,
        state="\n".join(lines),
        mode="" if module.training else "        self.eval()\n",
        arguments=", ".join(arguments),
        body=body,
        result=", ".join(results),
        inputs="".join(
            f"        {_input(tensors[number], bool(wanted) and wanted[number])},\n"
            for _, number in graph.inputs
        ),
    )
    return TaskText(
        source=source,
        arguments=arguments,
        inputs=tuple(number for _, number in graph.inputs),
        state={attributes[path]: path for path in graph.state.values()},
        outputs=outputs,
        forward=body,
    )


_FILE = '''"""{about}"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{state}
{mode}
    def forward(self, {arguments}):
{body}
        return {result}


def get_inputs():
    return [
{inputs}    ]


def get_init_inputs():
    return []
'''


def _results(graph: ModuleGraph) -> tuple[list[str], tuple[int, ...]]:
    """Return the names that the forward returns, each once, and for each leaf which one it is."""
    leaves = [None if leaf is None else str(leaf.meta["text"]) for leaf in graph.outputs]
    results = list(dict.fromkeys(leaf for leaf in leaves if leaf is not None))
    if not results:
        raise UntranslatableError("it returns no tensor")
    return results, tuple(-1 if leaf is None else results.index(leaf) for leaf in leaves)


def _input(tensor: torch.Tensor, is_wanted: bool) -> str:
    """Return the expression that draws an input; `is_wanted`: its gradient is."""
    text = draw_text(tensor)
    return f"({text}).requires_grad_()" if is_wanted else text


def _attributes(paths: Iterable[str]) -> dict[str, str]:
    """Return path -> attribute of the task's Model, all different."""
    found: dict[str, str] = {}
    for path in paths:
        name = path.replace(".", "_")
        name = name if name.isidentifier() and not keyword.iskeyword(name) else f"state_{name}"
        while name in found.values() or hasattr(torch.nn.Module, name):
            name += "_"
        found.setdefault(path, name)
    return found


def _state_lines(
    graph: ModuleGraph, module: torch.nn.Module, attributes: dict[str, str]
) -> list[str]:
    """Return the statements that make parameters, buffers and constants."""
    lines = []
    for path in dict.fromkeys(graph.state.values()):
        owner, _, key = path.rpartition(".")
        part = module.get_submodule(owner)
        name = attributes[path]
        value: torch.Tensor | None
        if key in part._parameters:
            value = part._parameters[key]
            _refuse_subclass(value, path)
            frozen = "" if value is None or value.requires_grad else ", requires_grad=False"
            lines.append(f"        self.{name} = nn.Parameter({_draw(value)}{frozen})")
        else:
            value = part._buffers[key]
            _refuse_subclass(value, path)
            lines.append(f'        self.register_buffer("{name}", {_draw(value)})')
    for name, constant in graph.constants.items():
        literal = f"torch.tensor({constant.tolist()!r}, dtype={constant.dtype})"
        lines.append(f'        self.register_buffer("{name}", {literal}, persistent=False)')
    return lines


def _draw(value: torch.Tensor | None) -> str:
    if value is None:
        raise UntranslatableError("a parameter is missing")
    return weight_text(value)


def _refuse_subclass(value: object, path: str) -> None:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise UntranslatableError(f"its weight {path} is a {type(value).__name__}")


def _name_nodes(graph: ModuleGraph, attributes: dict[str, str]) -> dict[fx.Node, str]:
    """Decide each node's text in the forward, and note it at the node."""
    names = {}
    for node in graph.nodes:
        names[node] = _local(node.name)
    reached = {each for node in graph.nodes for each in node.all_input_nodes}
    reached |= {leaf for leaf in graph.outputs if leaf is not None}
    for node in reached | set(names):
        if node.name in graph.state:
            node.meta["text"] = f"self.{attributes[graph.state[node.name]]}"
        elif node.name in graph.constants:
            node.meta["text"] = f"self.{node.name}"
        else:
            node.meta["text"] = _local(node.name)
    return names


def _local(name: str) -> str:
    return f"{name}_" if name in TAKEN_NAMES else name
