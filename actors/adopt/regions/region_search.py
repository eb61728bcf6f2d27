"""The regions of a traced forward: maximal connected sets of steps between library calls.

A step's stage is the number of borders behind it: library calls and submodules that stay calls.
Steps of one stage that are connected are a region, so no value leaves a region and comes back.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from actors.adopt.regions.forward_trace import ForwardTrace, StepKind, TraceStep
from actors.adopt.regions.function_text import StateWord

LEAST_OPERATIONS = 2  # that compute: one alone can't be fused with anything


@dataclass(frozen=True, kw_only=True)
class TraceRegion:
    """Some steps of a trace, by number."""

    steps: tuple[int, ...]  # in order
    inputs: tuple[int, ...]  # values from outside, in order of use
    state: tuple[str, ...]  # paths of parameters and buffers, in order of use
    outputs: tuple[int, ...]  # values that are used outside


def regions_of(trace: ForwardTrace) -> list[TraceRegion]:
    """Return the regions of a trace, in order."""
    members = _components(trace)
    _absorb(trace, members)
    found = [_region(trace, steps) for steps in members.values()]
    return sorted((each for each in found if each is not None), key=lambda each: each.steps)


def ordered(trace: ForwardTrace, regions: list[TraceRegion]) -> list[int | TraceRegion]:
    """Return steps and regions in an order that has every value before its use.

    Where there is a choice the original order is kept.
    """
    owner = {number: region.steps[-1] for region in regions for number in region.steps}
    units: dict[int, int | TraceRegion] = {region.steps[-1]: region for region in regions}
    for number, step in enumerate(trace.steps):
        if number not in owner and step.kind is not StepKind.INPUT:
            owner[number] = units[number] = number
    waiting: dict[int, set[int]] = {unit: set() for unit in units}
    for number, unit in owner.items():
        before = {owner[each] for each in trace.steps[number].after if each in owner}
        waiting[unit] |= before - {unit}
    found = _sorted(waiting)
    if len(found) != len(units):
        raise AssertionError("regions depend on each other in a circle")
    return [units[unit] for unit in found]


def _sorted(waiting: dict[int, set[int]]) -> list[int]:
    """Return numbers behind those that they wait for, otherwise in order."""
    users: dict[int, list[int]] = defaultdict(list)
    for unit, before in waiting.items():
        for each in before:
            users[each].append(unit)
    ready = [unit for unit, before in waiting.items() if not before]
    heapq.heapify(ready)
    result = []
    while ready:
        result.append(heapq.heappop(ready))
        for user in users[result[-1]]:
            waiting[user].discard(result[-1])
            if not waiting[user]:
                heapq.heappush(ready, user)
    return result


def _is_glue(trace: ForwardTrace, step: TraceStep) -> bool:
    """Whether a step may be in a region: no tensor of its is changed in place anywhere."""
    return step.kind is StepKind.GLUE and trace.changed.isdisjoint(step.storages)


def _components(trace: ForwardTrace) -> dict[int, list[int]]:
    """Return the connected steps of one stage, by the first of them."""
    stages: list[int] = []
    first: dict[int, int] = {}  # step -> the first one of its component

    def root(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for number, step in enumerate(trace.steps):
        glue = _is_glue(trace, step)
        borders = (
            stages[each] + (glue and not _is_glue(trace, trace.steps[each])) for each in step.after
        )
        stages.append(max(borders, default=0))
        if not glue:
            continue
        first[number] = number
        for each in step.inputs:
            if each in first and stages[each] == stages[number]:
                first[max(root(each), root(number))] = min(root(each), root(number))
    found: dict[int, list[int]] = defaultdict(list)
    for number in first:
        found[root(number)].append(number)
    return found


def _absorb(trace: ForwardTrace, members: dict[int, list[int]]) -> None:
    """Add to a region the earlier ones whose values are used in it alone."""
    owner = {number: first for first, steps in members.items() for number in steps}
    followers = _followers(trace)
    for first in sorted(members, reverse=True):
        users = {owner.get(each, -1) for number in members[first] for each in followers[number]} - {
            first
        }
        is_returned = not trace.returned.isdisjoint(members[first])
        if len(users) == 1 and -1 not in users and not is_returned:
            target = users.pop()
            owner |= dict.fromkeys(members[first], target)
            members[target] = sorted([*members.pop(first), *members[target]])


def _followers(trace: ForwardTrace) -> list[set[int]]:
    """Return for each step the steps that follow it."""
    return _inverted([step.after for step in trace.steps])


def _region(trace: ForwardTrace, members: list[int]) -> TraceRegion | None:
    """Return a region of these steps, without views of outside values that are used outside."""
    steps = set(members)
    while True:
        outputs = _outputs(trace, steps)
        outside = _outside_storages(trace, steps)
        views = {each for each in outputs if trace.steps[each].storages & outside}
        views |= {each for each in steps if _takes_from_outside(trace, steps, each)}
        views |= _views_of_others(trace, steps, outputs)
        if not views:
            break
        steps -= views
    inside = sorted(steps)
    if sum(trace.steps[each].computes for each in inside) < LEAST_OPERATIONS or not outputs:
        return None
    if any(trace.steps[each].tensor is None for each in outputs):
        return None  # a tuple that is used outside
    words = [word for each in inside for word in trace.steps[each].words]
    inputs = [word for word in words if isinstance(word, int) and word not in steps]
    if not inputs:
        return None  # a constant
    if not _is_closed(trace, steps, inputs):
        return None
    state = [word.path for word in words if isinstance(word, StateWord)]
    return TraceRegion(
        steps=tuple(inside),
        inputs=tuple(dict.fromkeys(inputs)),
        state=tuple(dict.fromkeys(state)),
        outputs=tuple(outputs),
    )


def _takes_from_outside(trace: ForwardTrace, steps: set[int], number: int) -> bool:
    """Whether a step takes a tensor out of a tuple from outside: a region is given tensors."""
    return any(
        trace.steps[each].tensor is None and each not in steps
        for each in trace.steps[number].inputs
    )


def _views_of_others(trace: ForwardTrace, steps: set[int], outputs: list[int]) -> set[int]:
    """Return the outputs that are views of other outputs, and are used outside only.

    A kernel's outputs have memory of their own, and the caller may write into one of them.
    """
    followers = _used_by(trace)
    return {
        each
        for each in outputs
        if not trace.steps[each].computes
        and steps.isdisjoint(followers[each])
        and any(trace.steps[each].storages & trace.steps[n].storages for n in outputs if n != each)
    }


def _is_closed(trace: ForwardTrace, steps: set[int], inputs: list[int]) -> bool:
    """Whether no input depends on a step of the set: `a.view_as(b)` is a view, and needs `b`."""
    later = set(steps)
    for number in range(min(steps), len(trace.steps)):
        if not later.isdisjoint(trace.steps[number].after):
            later.add(number)
    return later.isdisjoint(inputs)


def _outputs(trace: ForwardTrace, steps: set[int]) -> list[int]:
    """Return the steps of a set whose values are used outside of it."""
    followers = _used_by(trace)
    return sorted(each for each in steps if each in trace.returned or not followers[each] <= steps)


def _used_by(trace: ForwardTrace) -> list[set[int]]:
    """Return for each step the steps that have its value in their text."""
    return _inverted([step.inputs for step in trace.steps])


def _inverted(before: Sequence[Iterable[int]]) -> list[set[int]]:
    """Return for each step the steps that have it in `before`."""
    found: list[set[int]] = [set() for _ in before]
    for number, earlier in enumerate(before):
        for each in earlier:
            found[each].add(number)
    return found


def _outside_storages(trace: ForwardTrace, steps: set[int]) -> set[int]:
    """Return the memory of values from outside that steps use, and of the module's tensors."""
    found = {tensor.untyped_storage()._cdata for tensor in trace.state.values()}
    for each in steps:
        for value in trace.steps[each].inputs:
            if value not in steps:
                found |= trace.steps[value].storages
    return found
