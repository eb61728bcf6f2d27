"""What calls of the task's module change in its own state: running statistics, for example."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import torch

from actors.evaluator.children import correctness, slot_scaling, small_parts
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.carried_state import find_deciding
from actors.evaluator.children.random_state import RandomState
from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import task_errors_as
from actors.evaluator.children.task_module import TaskModule, without_tf32
from actors.evaluator.children.task_randomness import (
    InputsOf,
    Repetition,
    find_repetition,
    repeat_calls,
)
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.held_state import held_state, set_state
from actors.evaluator.children.tensors.tensor_copies import as_double, clone, has_same_bytes
from actors.evaluator.ipc.layout_checks import Nest
from actors.evaluator.ipc.referee_orders import Compared, CompareState, RepeatBlock, ShareState

NUDGE = 1e-6  # some of the last digits of float32; of halves it is the last one
MOST_NUDGES = 4  # of an element, by lot
CONTROLS = 3  # begins with other last digits: an element that may jump does so in one of them
# Calls whose error is measured: after two, a running mean of momentum 0.1 has a fifth of what many
# calls bring in, so eight times that error is more than theirs.
MEASURED_CALLS = 2


def find_updates(
    task: TaskModule, inputs: list[object], seed: int, floor: float, *, is_steady: bool
) -> tuple[Nest, Repetition]:
    """Return the layout of what a call changes, and whether outputs follow from it.

    `inputs`: others than those of the calls before, which have changed the state already.  The
    errors that pass in it are kept.  Plain attributes are added where outputs follow from no state
    in the state dict, but from these as well.
    """
    updated = _updated_layout(task, inputs, seed)
    task.state_floors = _state_floors(task, updated.keys, inputs, seed, floor)
    is_repeated, follows_state = find_repetition(task, seed, updated.keys, is_steady=is_steady)
    if is_repeated or follows_state:
        return updated, (is_repeated, follows_state)
    deciding = find_deciding(task, seed, updated)
    if not deciding.items:
        return updated, (False, False)
    inputs = task.inputs(seed + 3)
    # What follows from these as well: a cache, written where a count says.
    updated = _updated_layout(task, inputs, seed)
    keys, items = (*updated.keys, *deciding.keys), (*updated.items, *deciding.items)
    task.state_floors = _state_floors(task, keys, inputs, seed, floor)
    return Nest(kind="dict", keys=keys, items=items), (False, True)


def _updated_layout(task: TaskModule, inputs: list[object], seed: int) -> Nest:
    """Return the layout of what a call changes in the state that candidates get.

    What else decides the change (a count in an attribute, the first call of all) leaves a tensor
    out: no candidate's state would be that of a module which has made other calls.
    """
    updated: dict[str, torch.Tensor] = {}
    own = task.model.state_dict()
    if not all(has_same_bytes(own[name], value) for name, value in task.state.items()):
        model = module_copy(task.model)
        first, second = (clone(_after_calls(task, model, inputs, seed, 1)) for _time in range(2))
        updated = {
            name: second[name]
            for name, value in task.state.items()
            if not has_same_bytes(first[name], value)
            and not correctness.compare(second[name], first[name], None, "").reason
        }
    items = tuple(map(tensor_bytes.layout_of, updated.values()))
    return Nest(kind="dict", keys=tuple(updated), items=items)


def _state_floors(
    task: TaskModule, names: Sequence[str], inputs: list[object], seed: int, floor: float
) -> dict[str, float]:
    """Return the relative error that passes in each tensor that calls change.

    It is compared with the module's own, which is not exact: on a card convolutions of float32 are
    done in TF32 unless a task forbids it.  So what is right may be off by eager's own error and
    `ERROR_FACTOR` times that, measured against float64, or without TF32 where there is none.
    Up to TF32's error, what passes in one tensor passes in all of its dtype: a fused kernel rounds
    elsewhere, and means of what a normalisation has scaled keep none of the errors before it.
    `floor`: the error that the user allows.
    """
    if not names:
        return {}
    try:
        eager = _after_calls(task, module_copy(task.model), inputs, seed, MEASURED_CALLS)
        if task.has_double:
            model = module_copy(task.model).double()
            exact = _after_calls(task, model, as_double(inputs), seed, MEASURED_CALLS)
        else:
            with without_tf32():
                exact = _after_calls(task, module_copy(task.model), inputs, seed, MEASURED_CALLS)
    # A module may fail in its second call in another precision: then the usual error passes.
    except Exception:  # noqa: BLE001
        return {}
    own = {name: correctness.floor_beside_eager(eager[name], exact[name]) for name in names}
    shared: dict[torch.dtype, float] = {}
    for name, here in own.items():
        least = min(here, correctness.PRECISIONS["tf32"])
        shared[eager[name].dtype] = max(floor, least, shared.get(eager[name].dtype, 0.0))
    return {name: max(here, shared[eager[name].dtype]) for name, here in own.items()}


def _after_calls(
    task: TaskModule, model: torch.nn.Module, inputs: list[object], seed: int, calls: int
) -> dict[str, torch.Tensor]:
    """Return the model's own state, in any precision, after calls that begin at the task's."""
    set_state(model, {**task.state, **task.attributes})
    seed_all(seed)
    with task_errors_as("Model.forward"), torch.no_grad():
        for _call in range(calls):
            task.call(model, clone(inputs))
    return dict(held_state(model))


def repeat_block(task: TaskModule, order: RepeatBlock, inputs_of: InputsOf) -> Compared | None:
    """Give the module the task's state, as a candidate has it, and make the calls of a block."""
    begin_state(task, order.names)
    repeat_calls(task, inputs_of, order.calls, order.seed)
    if not order.is_control:
        return None
    held = held_state(task.model)
    first = {name: held[name].clone() for name in order.names}
    repeat_nudged(task, order, inputs_of)
    # Asked for again: a call may have put another tensor in a buffer's place.
    return _compared(task, held_state(task.model), first)


def repeat_nudged(
    task: TaskModule, order: RepeatBlock, inputs_of: InputsOf, number: int = 0
) -> None:
    """Repeat a block with other last digits of the state, before its first call and after it.

    A state of zeros has no last digits before the first call.  `number`: which other ones.
    """
    begin_state(task, order.names)
    nudge(task, order.names, number)
    repeat_calls(
        task,
        inputs_of,
        order.calls,
        order.seed,
        after_first=lambda: nudge(task, order.names, number),
    )


def nudged_outputs(task: TaskModule, order: RepeatBlock, inputs_of: InputsOf) -> Iterator[object]:
    """Yield what the call after a block's first calls returns after other last digits."""
    for number in range(CONTROLS):
        repeat_nudged(task, order, inputs_of, number)
        start = RandomState(task.device)
        yield task.eager_outputs(inputs_of(order.calls), start)


def begin_state(task: TaskModule, names: Sequence[str]) -> None:
    """Give the module these tensors as both sides are given them before each timed block."""
    set_state(task.model, named_state(task, names))


def named_state(task: TaskModule, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return these tensors of the state that candidates get."""
    held = {**task.attributes, **task.state, **task.varied}
    return {name: held[name] for name in names}


def given_state(task: TaskModule, order: ShareState) -> dict[str, torch.Tensor]:
    """Return the state at which blocks begin from now on: with a seed, other values of it.

    Each tensor's floating values are multiplied by a factor of its own.  Numbers that count may be
    indices, which have to stay in their table.
    """
    if order.seed is not None:
        task.varied = {}
        rng = random.Random(order.seed)  # noqa: S311  # the seed is the secret
        for name, value in named_state(task, order.names).items():
            if slot_scaling.can_scale_state(value):
                task.varied[name] = value * slot_scaling.factor(rng)
    return named_state(task, order.names)


def nudge(task: TaskModule, names: Sequence[str], number: int) -> None:
    """Change last digits of the module's own tensors of these names; `number`: which ones."""
    own = held_state(task.model)
    set_state(task.model, {name: _nudged(own[name], number) for name in names})


def _nudged(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Return a tensor with other last digits, towards zero: the largest values stay finite.

    Elements have different ones, by numbers of their own: the module's calls draw theirs.
    """
    if not tensor.is_floating_point():
        return tensor
    lots = torch.Generator(tensor.device).manual_seed(number)
    most = MOST_NUDGES + 1
    times = torch.randint(1, most, tensor.shape, generator=lots, device=tensor.device)
    return tensor * (1 - times * max(NUDGE, torch.finfo(tensor.dtype).eps)).to(tensor.dtype)


def compare_state(task: TaskModule, order: CompareState, region: int) -> Compared:
    """Compare the bytes of a candidate's tensors with the module's own, and what calls add to both.

    An average that follows slowly changes by less than the error of all of it.
    """
    own = held_state(task.model)
    expected = {name: own[name] for name in order.names}
    begins = {**task.attributes, **task.state, **(task.varied if order.is_block else {})}
    layout = tensor_bytes.layout_of(expected)
    with tensor_bytes.open_value(layout, region, task.device) as value:
        given = dict(zip(order.names, tensor_bytes.tensors_in(value), strict=True))
        found = _compared(task, given, expected)
        return found if found.reason else _compared_changes(task, order, given, expected, begins)


def _compared_changes(
    task: TaskModule,
    order: CompareState,
    got: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    begins: Mapping[str, torch.Tensor],
) -> Compared:
    for name, own in expected.items():
        before, mine = begins.get(name), got[name].to(own.device)  # a number is on the host
        if before is None or before.shape != own.shape or has_same_bytes(mine, own):
            continue
        held = before.to(own.device)
        floor, where = task.state_floors.get(name, 0.0), f"buffer {name}"
        found = small_parts.compare_change(mine, own, held, where, floor=floor, calls=order.calls)
        if found.reason:
            return Compared(reason=found.reason, max_error=found.max_error)
    return Compared()


def _compared(
    task: TaskModule, got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> Compared:
    for name, own in expected.items():
        floor = task.state_floors.get(name, 0.0)
        mine = got[name].to(own.device)  # a number is on the host
        # Calls on draws of all kinds have changed it.
        leeway = correctness.leeway_of(own, correctness.OTHER_KINDS_LEEWAY)
        floor = max(floor, leeway * correctness.floor_of(own))
        found = correctness.compare(mine, own, None, f"buffer {name}", floor=floor)
        if found.reason:
            return Compared(reason=found.reason, max_error=found.max_error)
    return Compared()
