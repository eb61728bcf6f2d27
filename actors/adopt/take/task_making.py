"""One group of equal modules becomes a task: its graph as text, its cases, its proof."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import torch

from actors.adopt.look.site_groups import SiteGroup
from actors.adopt.model.call_layouts import (
    describe_call,
    is_same_nesting,
    is_same_order,
    tensor_layouts,
    tensors_of,
    unsupported,
)
from actors.adopt.model.call_recorder import KindOfCalls, ModuleCalls, recorded_calls
from actors.adopt.model.device_time import alone_device_us, calls_device_us
from actors.adopt.model.model_file import is_out_of_memory
from actors.adopt.model.model_state import KeptState, weights_hash
from actors.adopt.stage.errors import first_line
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.captures import CaptureSet, CaptureWriter, load_capture
from actors.adopt.take.taken_tasks import Options, TakenCase, TakenTask
from actors.adopt.tasks.cases_file import cases_text
from actors.adopt.tasks.module_graph import module_graph
from actors.adopt.tasks.operation_text import UntranslatableError
from actors.adopt.tasks.task_proof import (
    CallTimes,
    Proof,
    bound_task,
    calls_us,
    combined,
    compare,
    load_task,
    module_as_called,
    timed_seconds,
)
from actors.adopt.tasks.task_text import TaskText, task_text
from actors.adopt.tasks.varying_sizes import with_varying_sizes

TRIED_LAYOUTS = 4  # for the sizes in a task's text
RECORDED_KINDS = 8  # layouts of a module whose calls are recorded
LEAST_PART = 0.2  # of a module's time, that the recorded layouts must have
TRIES = 3  # of the comparison of times
CACHE_BYTES = 128 << 20  # inputs of this size together are in no cache
MOST_COPIES = 16
MOST_TURNS = 64


class ModelSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The model and how it is run."""

    model: torch.nn.Module
    run: Callable[[], None]  # one step for each batch
    count: int  # steps in `run`
    device: torch.device
    state: KeptState
    trains: bool  # a step calls backward


class TaskMaker:
    """Makes the tasks of one model."""

    def __init__(
        self,
        folder: StageFolder,
        options: Options,
        steps: ModelSteps,
        writer: CaptureWriter,
        rounds: int,
    ) -> None:
        """`rounds`: how often `steps.run` was called while the calls were counted."""
        self._folder, self._options = folder, options
        self._steps, self._model, self._device = steps, steps.model, steps.device
        self._writer, self._rounds = writer, rounds

    def task(self, group: SiteGroup, calls: ModuleCalls, sets: Sequence[CaptureSet]) -> TakenTask:
        """Make and prove one task; raise UntranslatableError with the reason."""
        most = most_costly(calls)
        captures = [each for each in sets if each.kind == most.kind]
        self._check_kind(most, calls, captures)
        sites, text = self._text(group, most, captures)
        text = self._for_other_sizes(text, captures[0], sites, sets)
        names = load_task(text.source, group.name)
        proof = self._prove(names, text, captures, sites)
        cases = [most, *self._more_cases(names, text, calls, sets, sites, most)]
        name, count = f"tasks/{group.name}/{group.name}.py", self._steps.count * self._rounds
        self._folder.write_text(name, text.source)
        table = cases_text(group.name, calls, cases, text.inputs, count)
        self._folder.write_text(f"tasks/{group.name}/cases.toml", table)
        part = sum(each.us for each in cases) / (calls.us or 1.0) * proof.times.own_part
        outputs, own = {each.kind.layout: each.output for each in sets}, group.of_sites(sites)
        return TakenTask(
            name=group.name,
            class_name=group.class_name,
            file=name,
            sha256=hashlib.sha256(text.source.encode()).hexdigest(),
            sites=sites,
            cases=tuple(
                TakenCase(
                    kind=each.kind,
                    output=outputs[each.kind.layout],
                    calls=each.calls / count,
                )
                for each in cases
            ),
            inputs=text.inputs,
            state=text.state,
            outputs=text.outputs,
            share=own.share * part,
            free_share=own.free_share * part,
            weights_sha256=weights_hash(self._model.get_submodule(sites[0])),
            proof=proof,
            place=group.place,
        )

    def _check_kind(
        self, most: KindOfCalls, calls: ModuleCalls, captures: Sequence[CaptureSet]
    ) -> None:
        """Raise UntranslatableError where calls of this kind can't become a task."""
        kind = most.kind
        if unsupported(kind.layout):
            raise UntranslatableError(f"it is given a {unsupported(kind.layout)}")
        if kind.gradients and not self._steps.trains:
            raise UntranslatableError(
                "gradients are recorded and no step calls backward(): put torch.no_grad() around"
                " the step"
            )
        if not captures:
            if most.call_bytes > self._writer.room:
                raise UntranslatableError(
                    f"to record one of its calls takes {most.call_bytes:,} bytes, and --cap leaves"
                    f" {self._writer.room:,}"
                )
            raise UntranslatableError(
                f"its calls differ from step to step ({len(calls.kinds)} layouts so far): none like"
                " its most costly one came again"
            )
        for capture in captures:
            problem = _output_problem(capture)
            if problem:
                raise UntranslatableError(problem)

    def _text(
        self, group: SiteGroup, most: KindOfCalls, captures: Sequence[CaptureSet]
    ) -> tuple[tuple[str, ...], TaskText]:
        """Return the sites that compute the same, the recorded one first, and the task's text."""
        first = captures[0]
        call = load_capture(self._folder.path, first, self._device)
        tensors = list(tensors_of((call["args"], call["kwargs"])))
        place = f"A region of a forward: the first one is {group.place}.\n" if group.place else ""
        about = (
            f"{group.class_name}, ×{len(group.sites)} in the model, called with"
            f" {describe_call(most.kind)}.\n{place}\n"
            "Shapes, dtypes and ranges are measured, values are drawn.\n"
        )
        texts: dict[str, TaskText] = {}
        for path in (first.site, *group.sites):
            module = self._model.get_submodule(path)
            if path not in texts:
                graph = module_graph(module, call["args"], call["kwargs"], most.kind)
                wanted = _wanted(captures) if most.kind.gradients else ()
                texts[path] = task_text(graph, module, tensors, about, wanted)
        text = texts[first.site]
        same = [
            path
            for path in group.sites
            if (texts[path].forward, texts[path].state) == (text.forward, text.state)
        ]
        return tuple(same), text

    def _for_other_sizes(
        self, text: TaskText, first: CaptureSet, sites: Sequence[str], sets: Sequence[CaptureSet]
    ) -> TaskText:
        """Return the task with sizes of its inputs for numbers in which two layouts differ."""
        chosen = {first.kind: first}
        for each in sets:
            if each.site in sites and is_same_nesting(each.kind, first.kind):
                chosen.setdefault(each.kind, each)
        calls = [
            (
                self._model.get_submodule(one.site),
                load_capture(self._folder.path, one, self._device),
            )
            for one in list(chosen.values())[:TRIED_LAYOUTS]
        ]
        return with_varying_sizes(text, calls, first.kind)

    def _prove(
        self,
        names: dict[str, Any],
        text: TaskText,
        captures: Sequence[CaptureSet],
        sites: Sequence[str],
    ) -> Proof:
        try:
            proof = self._compared(names, text, captures, sites)
            times = self._times(names, text, captures[0], sites)
        except (RuntimeError, MemoryError) as error:
            kind = "out of memory" if is_out_of_memory(error) else first_line(error, 160)
            raise UntranslatableError(f"the task can't be run: {kind}") from error
        return msgspec.structs.replace(proof, times=times)

    def _compared(
        self,
        names: dict[str, Any],
        text: TaskText,
        captures: Sequence[CaptureSet],
        sites: Sequence[str],
    ) -> Proof:
        """Compare the task with all recorded calls of its sites."""
        proofs = []
        for capture in captures:
            if capture.site in sites:
                module = self._model.get_submodule(capture.site)
                call = load_capture(self._folder.path, capture, self._device)
                task = bound_task(names, module, text.state)
                wanted = capture.wanted if capture.kind.gradients else None
                called = module_as_called(module, capture.kind)
                proofs.append(compare(task, called, call, text, wanted))
        if not proofs:
            raise UntranslatableError("no call of the modules that compute the same was recorded")
        return combined(proofs)

    def _more_cases(
        self,
        names: dict[str, Any],
        text: TaskText,
        calls: ModuleCalls,
        sets: Sequence[CaptureSet],
        sites: Sequence[str],
        most: KindOfCalls,
    ) -> list[KindOfCalls]:
        """Return the other kinds of calls for which the task's text is right, too."""
        found = []
        for each in costly_kinds(calls):
            captures = [one for one in sets if one.kind == each.kind]
            is_alike = each is not most and is_same_nesting(each.kind, most.kind)
            if not is_alike or not captures or any(map(_output_problem, captures)):
                continue
            drawn = [leaf for _, leaf in tensor_layouts(most.kind.layout)]
            leaves = [leaf for _, leaf in tensor_layouts(each.kind.layout)]
            if not all(map(is_same_order, leaves, drawn)):
                continue  # a case's inputs are drawn in the order of get_inputs()
            with contextlib.suppress(UntranslatableError, RuntimeError, TypeError, ValueError):
                self._compared(names, text, captures, sites)
                found.append(each)
        return found

    def _times(
        self,
        names: dict[str, Any],
        text: TaskText,
        capture: CaptureSet,
        sites: Sequence[str],
    ) -> CallTimes:
        """Return the times of a call; raise UntranslatableError for a task slower than its module.

        Task and module take turns with the same inputs, so that whatever else the machine does hits
        both.  Three tries: a difference that stays is the task's.
        """
        gap = self._options.max_gap
        for _ in range(TRIES):
            task_us, module_us = self._alone_us(names, text, capture, sites)
            if task_us <= module_us * (1 + gap):
                cold_us = self._cold_us(names, text, capture, sites)
                in_model_us = self._in_model_us(capture, sites)
                return CallTimes(task_us, cold_us, module_us, in_model_us)
        raise UntranslatableError(
            f"its task takes {task_us:.0f} µs alone, the module {module_us:.0f} µs: slower than"
            f" --max-gap {gap:.0%}, so that a gain of the task would be none of the model"
        )

    def _in_model_us(self, capture: CaptureSet, sites: Sequence[str]) -> float:
        """Return the time of such a call in the model; on a card that of its kernels.

        The least of all calls: there are few of them, and on a busy machine most are interrupted.
        """
        if self._device.type == "cuda":
            return calls_device_us(self._model, sites, capture.kind, self._steps.run)
        until = time.perf_counter() + timed_seconds()  # as long as it is timed alone
        with recorded_calls(self._model, {"": sites}, self._device) as calls:
            self._steps.run()
            while time.perf_counter() < until:
                self._steps.run()
        kinds = [each for each in calls[""].kinds if each.kind == capture.kind]
        return min((min(each.samples) for each in kinds), default=float("inf"))

    def _alone_us(
        self, names: dict[str, Any], text: TaskText, capture: CaptureSet, sites: Sequence[str]
    ) -> tuple[float, float]:
        """Return the times of the task and of the module alone, with the weights of all sites."""
        call = load_capture(self._folder.path, capture, self._device)
        given = list(tensors_of((call["args"], call["kwargs"])))
        modules = [self._model.get_submodule(site) for site in sites]
        tasks = [bound_task(names, module, text.state) for module in modules]
        chosen = [given[number] for number in text.inputs]
        turns = [
            [functools.partial(task, *chosen) for task in tasks],
            [
                functools.partial(
                    module_as_called(each, capture.kind), *call["args"], **call["kwargs"]
                )
                for each in modules
            ],
        ]
        with torch.set_grad_enabled(capture.kind.gradients), _hooked([*tasks, *modules]):
            task_us, module_us = self._timed(turns)
        return task_us, module_us

    def _cold_us(
        self, names: dict[str, Any], text: TaskText, capture: CaptureSet, sites: Sequence[str]
    ) -> float:
        """Return the task's time alone where each call has inputs of its own, in no cache."""
        call = load_capture(self._folder.path, capture, self._device)
        given = list(tensors_of((call["args"], call["kwargs"])))
        size = sum(given[number].nbytes for number in text.inputs) or 1
        count = max(2, min(MOST_COPIES, -(-CACHE_BYTES // size)))
        copies = [
            [
                given[number]
                .clone()
                .requires_grad_(capture.wanted[number] and capture.kind.gradients)
                for number in text.inputs
            ]
            for _ in range(count)
        ]
        tasks = [bound_task(names, self._model.get_submodule(site), text.state) for site in sites]
        turns = [
            functools.partial(tasks[turn % len(tasks)], *copies[turn % count])
            for turn in range(math.lcm(len(tasks), count))
        ][:MOST_TURNS]
        with torch.set_grad_enabled(capture.kind.gradients), _hooked(tasks):
            return self._timed([turns])[0]

    def _timed(self, sides: Sequence[Sequence[Callable[[], object]]]) -> list[float]:
        """Return the time of a call on each side; on a card that of its kernels."""
        if self._device.type == "cuda":
            return [alone_device_us(turns) for turns in sides]
        return calls_us(sides, self._device)


@contextlib.contextmanager
def _hooked(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Give modules hooks, as they have in the model, where hooks take the time of a call."""
    handles: list[Any] = []
    try:
        for module in modules:
            handles.append(module.register_forward_pre_hook(lambda *given: None, with_kwargs=True))
            handles.append(module.register_forward_hook(lambda *given: None))
        yield
    finally:
        for handle in handles:
            handle.remove()


def costly_kinds(calls: ModuleCalls) -> list[KindOfCalls]:
    """Return the kinds of calls that are recorded, the most costly first."""
    return sorted(calls.kinds, key=lambda each: -each.us)[:RECORDED_KINDS]


def most_costly(calls: ModuleCalls) -> KindOfCalls:
    """Return the kind with the most time; raise UntranslatableError for too many kinds."""
    if not calls.kinds:
        raise UntranslatableError("it was not called when calls were recorded")
    found = costly_kinds(calls)
    part = sum(each.us for each in found) / (calls.us or 1.0)
    if part < LEAST_PART:
        count = len(calls.kinds) + bool(calls.other_calls)
        raise UntranslatableError(
            f"it is called in {count} layouts or more, and the {len(found)} most costly ones have"
            f" only {part:.0%} of its time"
        )
    return found[0]


def _wanted(captures: Sequence[CaptureSet]) -> list[bool]:
    """Return for each tensor of a call whether its gradient was wanted in any of the calls.

    The first of equal modules is often given an input that needs none.
    """
    return [any(flags) for flags in zip(*(each.wanted for each in captures), strict=True)]


def _output_problem(capture: CaptureSet) -> str:
    """Return why a recorded call can't be a task's; "" when it can."""
    if unsupported(capture.output):
        return f"it returns a {unsupported(capture.output)}"
    return capture.effect
