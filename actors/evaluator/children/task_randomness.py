"""Tasks that draw random numbers: what decides their outputs, and how calls are repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import torch

from actors.evaluator.children import slot_scaling
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.correctness import is_real
from actors.evaluator.children.random_state import RandomStart, RandomState
from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import UnsuitableTaskError, task_errors_as
from actors.evaluator.children.task_module import TaskModule, are_equal
from actors.evaluator.children.tensors.held_state import held_state, set_state
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import InputsBefore, clone

InputsOf: TypeAlias = Callable[[int], list[object]]  # of a slot
Repetition: TypeAlias = tuple[bool, bool]  # outputs follow from inputs; from the state as well
RANDOM_OUTPUTS: Final = (
    "the task draws random numbers: each call of ModelNew has to draw the same ones as Model from "
    "torch's generators, and as many, since calls of both begin at one seed"
)
# What that leaves uncompared is no part of a request: decision 138 says it.
# Where the module's state decides the rest, outputs of timed calls are compared all the same.
NOT_REPEATED: Final = (
    "the task's outputs depend on earlier calls: ModelNew has to keep and draw the same from call "
    "to call"
)

OTHER_DRAWS = 2  # a ring that attention reads showed nothing of its state in one draw of fifty
SEEDS_OF_A_DRAW = 2  # a call and the one after it have inputs of their own


def randomness_notes(*, is_deterministic: bool, is_repeated: bool) -> Iterator[str]:
    """Yield what a reader has to know of a task's outputs."""
    if not is_repeated:
        yield NOT_REPEATED
    elif not is_deterministic:
        yield RANDOM_OUTPUTS


def is_steady(task: TaskModule, inputs: list[object], seed: int) -> bool:
    """Whether the same inputs give the same outputs, unseeded, after other inputs.

    Raise `UnsuitableTaskError` where they don't with `seed` either.
    """
    is_steady = task.is_deterministic(inputs, None, between=seed + 2)
    if not is_steady and not task.is_deterministic(inputs, seed):
        raise UnsuitableTaskError(
            "Model.forward gives different outputs for the same inputs, parameters and seed: "
            "nothing can be compared with it"
        )
    return is_steady


def find_repetition(
    task: TaskModule, seed: int, state: Sequence[str], *, is_steady: bool
) -> Repetition:
    """Return whether each call can be repeated alone, and if not, whether it follows from `state`.

    `state`: tensors that calls change; `is_steady`: of one draw.  How much of a state an output
    shows is decided by the inputs, so where there is one, also in attributes, other draws have to
    agree.  Where a call follows from nothing that is known, the module is made anew for each
    candidate from now on.

    Two calls change an average that follows slowly by less than outputs show, and the hundreds of a
    block by more.  Blocks begin at other values of it, and so do the repeated calls here.
    """
    keeps_something = bool(state) or task.attributes_made.differ(task.model)
    further = OTHER_DRAWS if keeps_something else 0
    seeds = [seed + SEEDS_OF_A_DRAW * draw for draw in range(further + (not is_steady))]
    is_alone = all(is_repeated(task, each, scaled=state) for each in seeds)
    follows_state = not is_alone and all(is_repeated(task, each, state) for each in seeds)
    task.is_repeated, task.is_made_anew = is_alone, not is_alone and not follows_state
    return is_alone, follows_state


def follows_from(
    task: TaskModule, seed: int, state: Sequence[str], changed: Sequence[str] = ()
) -> bool:
    """Whether a call follows from its inputs and `state`, in some draws; not from `changed`."""
    seeds = [seed + SEEDS_OF_A_DRAW * draw for draw in range(OTHER_DRAWS + 1)]
    return all(is_repeated(task, each, state, changed=changed) for each in seeds)


def is_repeated(
    task: TaskModule,
    seed: int,
    state: Sequence[str] = (),
    *,
    changed: Sequence[str] = (),
    scaled: Sequence[str] = (),
    keeps_draw: bool = False,
) -> bool:
    """Whether nothing but inputs and random numbers decides what a call returns and leaves.

    That is so if the same call, after another one, returns and draws the same.  `state`: tensors
    of the module that may decide, too.  No earlier call had these inputs: a state may keep them.
    `changed`: tensors that get other values before the repeated calls.  What earlier calls have put
    into a cache stays there, so its contents show only then.  `scaled`: that get values as far off
    as those at which timed blocks begin.
    `keeps_draw`: the first draw is used again, since another of its seed differs (the task made a
    generator when it was imported).
    """
    model, states = module_copy(task.model), []
    held = held_state(model)
    before = {name: held[name].clone() for name in state}
    first: object = None
    kept: list[object] = []
    is_same = True
    # Two and three calls later: a state that takes turns is not taken for none.
    for number, drawn in enumerate((seed + 4, seed + 5, seed + 4, seed + 4)):
        # One draw at a time where that does: they may be large.
        inputs = clone(kept) if number >= 2 and keeps_draw else task.inputs(drawn)
        if number == 0:
            drawn_first, kept = InputsBefore(inputs), clone(inputs) if keeps_draw else []
        elif number >= 2:
            if any(drawn_first.differences(inputs)):
                return is_repeated(
                    task, seed, state, changed=changed, scaled=scaled, keeps_draw=True
                )
            held = held_state(model)
            others = {name: _other_values(held[name]) for name in changed}
            set_state(model, {**before, **others, **_scaled({name: held[name] for name in scaled})})
        seed_all(seed)
        with task_errors_as("Model.forward"), torch.no_grad():
            returned = _results(task, model, inputs)
        states.append(RandomState(task.device))
        if number == 0:
            first = returned
        elif number >= 2:
            is_same = is_same and are_equal(first, returned)
        del inputs, returned
    return is_same and all(states[0].is_equal(each) for each in states[2:])


def _results(task: TaskModule, model: torch.nn.Module, inputs: list[object]) -> list[object]:
    """Return a call's outputs, and what it adds to each input to which it writes.

    An optimiser's step follows from its state, and the parameters less a small step do not show it.
    """
    before = InputsBefore(inputs)
    results = [clone(task.call(model, inputs))]
    written, held = before.differences(inputs), before.copies()
    for number, now in enumerate(tensors_in(inputs)):
        if written[number]:
            adds = bool(held) and is_real(now)  # large inputs are not copied
            results.append(now - held[number] if adds else now.clone())
    return results


def _scaled(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return other values of what timed blocks begin with other values of."""
    least = 1 - slot_scaling.MOST
    return {
        name: value * least for name, value in state.items() if slot_scaling.can_scale_state(value)
    }


def _other_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return other values that are as large; whole numbers may be places, and stay."""
    return 1 - 0.5 * tensor if tensor.is_floating_point() else tensor


def repeat_calls(
    task: TaskModule,
    inputs_of: InputsOf,
    calls: int,
    seed: int | None,
    *,
    after_first: Callable[[], None] | None = None,
) -> None:
    """Make a block's first calls; `seed`: where their random numbers begin, if they draw any.

    Inputs may be drawn for each call; its random numbers follow those of the call before.
    """
    if seed is not None:
        seed_all(seed)
    with task_errors_as("Model.forward"), torch.no_grad():
        for slot in range(calls):
            state = None if seed is None else RandomState(task.device)
            inputs = inputs_of(slot)
            if state is not None:
                state.restore()
            task.call(task.model, inputs)
            if after_first is not None and not slot:
                after_first()


def random_start_after(task: TaskModule, inputs_of: InputsOf, seed: int, calls: int) -> RandomStart:
    """Return where random numbers go on after a block's first calls, which begin at `seed`."""
    if not calls:
        return seed
    repeat_calls(task, inputs_of, calls, seed)
    return RandomState(task.device)
