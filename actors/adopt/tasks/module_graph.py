"""A module's computation for one kind of call, as a flat graph of ATen operations.

torch.export follows the call with fake tensors.  The graph holds no class of the user's code, and
its parameters and buffers are named by their paths in the module.
"""

from __future__ import annotations

import copy
import operator
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from actors.adopt.model.call_layouts import CallKind, as_called
from actors.adopt.stage.errors import first_line
from actors.adopt.tasks.operation_text import INFIX, UntranslatableError, operation_name

MOST_LITERALS = 64  # elements of a constant tensor that is written out
VIEWS = frozenset(
    [
        *("view", "reshape", "permute", "transpose", "t", "select", "slice", "expand", "unbind"),
        *("split", "split_with_sizes", "chunk", "squeeze", "unsqueeze", "flatten", "narrow"),
        *("detach", "alias", "contiguous", "to", "unflatten", "movedim", "diagonal", "unfold"),
    ]
)
RANDOM = frozenset(
    ["rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "multinomial", "normal",
     "randperm", "uniform", "exponential"]
)  # fmt: skip


class ChangeInPlaceError(UntranslatableError):
    """An operation changes a tensor that other operations can see."""


@dataclass(frozen=True, kw_only=True)
class ModuleGraph:
    """One module's graph; nodes in order."""

    nodes: list[fx.Node]  # operations that are needed, in order
    inputs: list[tuple[str, int]]  # name, number among the call's tensors; unused ones are left out
    state: dict[str, str]  # name in the graph -> path of a parameter or buffer in the module
    constants: dict[str, torch.Tensor]  # name in the graph -> small constant
    outputs: list[fx.Node | None]  # leaves of the result, in order


def module_graph(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    kind: CallKind | None = None,
) -> ModuleGraph:
    """Return the graph of one call; raise UntranslatableError with the reason.

    Of calls under autocast it has the casts as operations.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with as_called(kind) if kind else nullcontext():
                program, owner = _exported(module, args, kwargs)
                if kind and kind.autocast_dtype:
                    # torch writes its casts while it follows the graph again
                    program = program.run_decompositions({})
        except Exception as error:  # the user's forward is run; anything may be raised
            reason = first_line(error, 160)
            raise UntranslatableError(
                f"torch.export can't follow its forward ({reason})"
            ) from error
        try:
            return _Reader(program, owner).graph()
        except ChangeInPlaceError:
            # torch writes the changes as new values; the text is longer and has more names.
            return _Reader(program.run_decompositions({}), owner).graph()


def _exported(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, str]:
    """Return the exported program, and what the paths of the module's tensors begin with in it."""
    leaves, structure = tree_flatten((args, kwargs))
    if not any(isinstance(leaf, torch.dtype) for leaf in leaves):
        return torch.export.export(module, args, kwargs, strict=False), ""
    rest = tuple(leaf for leaf in leaves if not isinstance(leaf, torch.dtype))
    wrapped = _WithDtypes(module, leaves, structure)
    return torch.export.export(wrapped, rest, strict=False), "inner."


class _WithDtypes(torch.nn.Module):
    """A module with the dtypes among its arguments in place: torch.export takes no dtype."""

    def __init__(self, module: torch.nn.Module, leaves: list[Any], structure: Any) -> None:
        super().__init__()
        self.inner = module
        self._leaves, self._structure = leaves, structure

    def forward(self, *given: Any) -> Any:
        rest = iter(given)
        leaves = [leaf if isinstance(leaf, torch.dtype) else next(rest) for leaf in self._leaves]
        args, kwargs = tree_unflatten(leaves, self._structure)
        return self.inner(*args, **kwargs)


class _Reader:
    """Reads one exported program."""

    def __init__(self, program: Any, owner: str) -> None:
        self._program = program
        self._nodes: list[fx.Node] = list(copy.deepcopy(program.graph).nodes)
        signature = program.graph_signature
        state = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self._state = {name: path.removeprefix(owner) for name, path in state.items()}
        self._lifted = dict(signature.inputs_to_lifted_tensor_constants)
        changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        if changed:
            raise UntranslatableError(f"it changes {changed[0]} in place")

    def graph(self) -> ModuleGraph:
        """Return the graph, without operations that do nothing."""
        inputs = self._inputs()
        self._remove_idle()
        self._remove_changes_in_place()
        output = self._nodes[-1]
        leaves = list(output.args[0])
        needed = _needed([leaf for leaf in leaves if isinstance(leaf, fx.Node)])
        operations = [node for node in self._nodes if node.op == "call_function" and node in needed]
        for node in operations:
            if node.target is not operator.getitem and operation_name(node)[0] in RANDOM:
                raise UntranslatableError("it draws random numbers")
        used = {node.name for node in needed}
        if any(not isinstance(leaf, fx.Node | None) for leaf in leaves):
            raise UntranslatableError("a part of its result is not a tensor")
        return ModuleGraph(
            nodes=operations,
            inputs=[(name, number) for name, number in inputs if name in used],
            state={name: path for name, path in self._state.items() if name in used},
            constants={name: self._constant(name) for name in self._lifted if name in used},
            outputs=leaves,
        )

    def _inputs(self) -> list[tuple[str, int]]:
        """Return the names of the call's tensors; mark their nodes."""
        held = {*self._state, *self._lifted}
        found: list[tuple[str, int]] = []
        for node in self._nodes:
            is_input = node.op == "placeholder" and node.name not in held
            if is_input and isinstance(node.meta.get("val"), torch.Tensor):
                node.meta["input"] = True
                found.append((node.name, len(found)))
        return found

    def _constant(self, name: str) -> torch.Tensor:
        value = self._program.constants[self._lifted[name]]
        if not isinstance(value, torch.Tensor) or value.numel() > MOST_LITERALS:
            raise UntranslatableError(
                f"it uses a tensor ({self._lifted[name]}) that is neither a parameter nor a buffer"
            )
        return value

    def _remove_idle(self) -> None:
        """Replace operations that return their input: dropout in evaluation, equal conversions."""
        for node in self._nodes:
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            if _is_idle(node):
                node.replace_all_uses_with(node.args[0])

    def _remove_changes_in_place(self) -> None:
        """Write `relu_` of a value that is not used elsewhere as `relu`; refuse other changes."""
        for place, node in enumerate(self._nodes):
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            name, overload = operation_name(node)
            if not name.endswith("_") or name.endswith("__"):
                continue
            changed = node.args[0]
            plain = getattr(getattr(torch.ops.aten, name[:-1], None), overload, None)
            if plain is None or not isinstance(changed, fx.Node) or not _is_own_value(changed):
                raise ChangeInPlaceError(f"it changes a tensor in place ({name})")
            node.target = plain
            for later in [user for user in changed.users if user is not node]:
                if self._nodes.index(later) > place:
                    later.replace_input_with(changed, node)


def _is_own_value(node: fx.Node) -> bool:
    """Whether a value has memory of its own, which no view shares."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return not any(_is_view(each) for each in (node, *node.users))


def _is_view(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return operation_name(node)[0] in VIEWS


def _is_idle(node: fx.Node) -> bool:
    name, _ = operation_name(node)
    if name in ("dropout", "feature_dropout", "alpha_dropout"):
        return node.args[2] is False or node.args[1] == 0.0
    if name in ("alias", "detach", "lift_fresh_copy", "detach_"):
        return True
    if name in ("to", "type_as", "contiguous") and isinstance(node.args[0], fx.Node):
        before, after = node.args[0].meta.get("val"), node.meta.get("val")
        is_equal = before is not None and after is not None and before.dtype == after.dtype
        is_equal = is_equal and before.device == after.device
        return is_equal and before.stride() == after.stride() and True not in node.args[1:]
    if name in ("expand", "expand_as"):
        return bool(node.users) and all(_is_broadcast(node, user) for user in node.users)
    return False


def _is_broadcast(node: fx.Node, user: fx.Node) -> bool:
    """Whether an operator gives an expanded tensor this shape anyway: `x / norm.expand_as(x)`."""
    if not isinstance(user.target, torch._ops.OpOverload) or user.kwargs:
        return False
    name = ".".join(operation_name(user))
    if name not in INFIX or name.startswith("matmul"):
        return False
    shape = node.meta["val"].shape
    others = [each for each in user.all_input_nodes if each is not node]
    return any(each.meta["val"].shape == shape for each in others)


def _needed(outputs: list[fx.Node]) -> set[fx.Node]:
    """Return the nodes that the outputs depend on, and the outputs."""
    found: set[fx.Node] = set()
    waiting: list[fx.Node] = list(outputs)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found
