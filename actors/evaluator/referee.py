"""The referee: draws inputs, computes what is expected, compares.  Trusted; runs the task's code.

The task comes from the user and is trusted, a candidate is not: what it returned arrives here as
typed bytes only.  Seeds come from the judge, who draws them from the operating system.
"""

from __future__ import annotations

import copy
import linecache
import os
import socket
import traceback
from collections.abc import Callable
from types import ModuleType

import torch

from actors.evaluator import correctness, tensors
from actors.evaluator import device as devices
from actors.evaluator.channel import Channel, Closed, close_all
from actors.evaluator.copies import clone, parcel, same_bytes, to_device, widened
from actors.evaluator.layout import Layout, leaves, others
from actors.evaluator.orders import (
    Compare,
    Compared,
    Deal,
    Dealt,
    Describe,
    Described,
    Done,
    Draw,
    Drawn,
    Expect,
    Expected,
    Forget,
    FromReferee,
    Leave,
    Prepare,
    Prepared,
    ToReferee,
    Unfit,
)
from actors.evaluator.runner import import_file, seed_all
from protocol.values import DeviceKind

NEEDED = ("Model", "get_inputs", "get_init_inputs")


class Unfitting(Exception):
    """The task can't be judged; the words say why."""


class Round:
    """One draw of inputs and what the reference makes of it."""

    def __init__(self, inputs: list[object]) -> None:
        self.inputs = inputs
        self.before = inputs  # as they were before the reference's call, for the float64 one
        self.eager: object = None
        self.exact: object = None


class Referee:
    """The task's module, and the rounds under way."""

    def __init__(self, device: DeviceKind) -> None:
        self.device = device
        self._task: ModuleType = ModuleType("task")
        self._model: torch.nn.Module = torch.nn.Module()
        self._precise = False
        self._rounds: dict[int, Round] = {}
        self._drawn = 0

    def answer(self, order: ToReferee, carried: list[int]) -> tuple[FromReferee, list[int]]:
        """Do what `order` says; raise `Unfitting` when the task is at fault."""
        match order:
            case Describe():
                self._find_device()
                found = devices.of_cuda() if self.device == "cuda" else devices.of_cpu()
                return Described(device=found), []
            case Prepare():
                return self._prepare(order)
            case Draw():
                return self._draw(order.seed)
            case Deal():
                return self._deal(order)
            case Expect():
                self._expect(self._rounds[order.draw], order.seed)
                return Expected(outputs=tensors.layout_of(self._rounds[order.draw].eager)), []
            case Compare():
                return self._compare(order, carried[0]), []
            case Forget():
                for number in range(order.draw, order.draw + order.count):
                    self._rounds.pop(number, None)
            case Leave():
                pass
        return Done(), []

    def _prepare(self, order: Prepare) -> tuple[FromReferee, list[int]]:
        self._find_device()
        with blaming("the task"):
            self._task = import_file(order.source, "task")
        for name in NEEDED:
            if not callable(getattr(self._task, name, None)):
                raise Unfitting(f"the task defines no {name}")
        init = self._list("get_init_inputs", self._task.get_init_inputs)
        self._crossable("get_init_inputs()", tensors.layout_of(init))
        seed_all(order.seed)
        with blaming("Model(...)"):
            self._model = self._task.Model(*to_device(init, self.device)).to(self.device)
        state = {name: value.detach() for name, value in self._model.state_dict().items()}
        trial = Round(self._inputs(order.seed + 1))
        steady = self._steady(trial)
        self._precise = self._can_double(trial)
        self._expect(trial, order.seed)
        answer = Prepared(
            init=tensors.layout_of(init),
            state=tensors.layout_of(state),
            inputs=tensors.layout_of(trial.inputs),
            outputs=tensors.layout_of(trial.eager),
            steady=steady,
            precise=self._precise,
            notes=() if steady else ("the task's outputs differ from call to call",),
        )
        self._crossable("Model's state", answer.state)
        self._crossable("Model.forward", answer.outputs)
        if not list(leaves(answer.outputs)):
            raise Unfitting("Model.forward returns no tensor: there is nothing to compare")
        return answer, [parcel(init, "init"), parcel(state, "state")]

    def _find_device(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Unfitting("no CUDA device can be used here; use --device cpu")

    def _list(self, name: str, make: Callable[[], object]) -> list[object]:
        with blaming(f"{name}()"):
            made = make()
        if not isinstance(made, list | tuple):
            raise Unfitting(f"{name}() returns a {type(made).__name__}, expected a list")
        return list(made)

    def _crossable(self, where: str, layout: Layout) -> None:
        found = next(others(layout), None)
        if found is not None:
            raise Unfitting(f"{where} has a {found}: only tensors and plain values can be judged")

    def _inputs(self, seed: int) -> list[object]:
        seed_all(seed)
        inputs = self._list("get_inputs", self._task.get_inputs)
        self._crossable("get_inputs()", tensors.layout_of(inputs))
        return to_device(inputs, self.device)

    def _draw(self, seed: int) -> tuple[FromReferee, list[int]]:
        self._drawn += 1
        inputs = self._inputs(seed)
        self._rounds[self._drawn] = Round(inputs)
        layout = tensors.layout_of(inputs)
        return Drawn(draw=self._drawn, inputs=layout), [parcel(inputs, "inputs")]

    def _deal(self, order: Deal) -> tuple[FromReferee, list[int]]:
        seed_all(order.seed)
        first, all_inputs = self._drawn + 1, []
        for _number in range(order.count):
            inputs = to_device(self._list("get_inputs", self._task.get_inputs), self.device)
            self._drawn += 1
            self._rounds[self._drawn] = Round(inputs)
            all_inputs.append(inputs)
        layouts = tuple(tensors.layout_of(inputs) for inputs in all_inputs)
        return Dealt(first=first, inputs=layouts), [parcel(all_inputs, "deal")]

    def _expect(self, drawn: Round, seed: int) -> None:
        if drawn.eager is not None:
            return
        drawn.before = clone(drawn.inputs)
        if self._precise:
            drawn.exact = self._double(drawn.before, seed)
        seed_all(seed)
        with blaming("Model.forward"), torch.no_grad():
            # Cloned: a reference that returns its own buffer must not change it later.
            drawn.eager = clone(self._model(*drawn.inputs))

    def _steady(self, trial: Round) -> bool:
        """Whether the module gives the same outputs again without being seeded."""
        model = copy.deepcopy(self._model)
        with blaming("Model.forward"), torch.no_grad():
            first, second = (clone(model(*clone(trial.inputs))) for _ in range(2))
        pairs = list(zip(tensors.tensors_in(first), tensors.tensors_in(second), strict=True))
        return all(
            a.shape == b.shape and not correctness.compare(b, a, None, "").reason for a, b in pairs
        )

    def _can_double(self, trial: Round) -> bool:
        held = [*tensors.tensors_in(trial.inputs), *self._model.parameters()]
        floating = [tensor for tensor in held if tensor.is_floating_point()]
        if not floating or all(tensor.dtype == torch.float64 for tensor in floating):
            return False
        try:
            exact = self._double(trial.inputs, 0)
        # Whatever a module raises when its precision is changed: then there is no such reference.
        except Exception:  # noqa: BLE001
            return False
        return all(
            tensor.dtype in (torch.float64, torch.complex128) or not tensor.is_floating_point()
            for tensor in tensors.tensors_in(exact)
        )

    def _double(self, inputs: list[object], seed: int) -> object:
        model = copy.deepcopy(self._model).double()
        seed_all(seed)
        with torch.no_grad():
            return clone(model(*widened(inputs)))

    def _compare(self, order: Compare, descriptor: int) -> Compared:
        drawn = self._rounds[order.draw]
        if order.what == "inputs":
            return self._compare_inputs(drawn, descriptor)
        layout = tensors.layout_of(drawn.eager)
        got = list(tensors.tensors_in(tensors.read(layout, descriptor, self.device, order.place)))
        eager = list(tensors.tensors_in(drawn.eager))
        exact = list(tensors.tensors_in(drawn.exact)) if self._precise else [None] * len(eager)
        worst = 0.0
        for number, (mine, theirs, truth) in enumerate(zip(got, eager, exact, strict=True)):
            where = "output" if len(eager) == 1 else f"output {number}"
            finding = correctness.compare(mine, theirs, truth, where)
            worst = max(worst, finding.max_error)
            if finding.reason:
                return Compared(reason=finding.reason, max_error=worst)
        return Compared(max_error=worst)

    def _compare_inputs(self, drawn: Round, descriptor: int) -> Compared:
        layout = tensors.layout_of(drawn.inputs)
        got = tensors.tensors_in(tensors.read(layout, descriptor, self.device))
        before = tensors.tensors_in(drawn.before)
        for number, (mine, own, old) in enumerate(
            zip(got, tensors.tensors_in(drawn.inputs), before, strict=True)
        ):
            # Where the task's own module writes to its input, a candidate may or may not.
            if same_bytes(own, old) and not same_bytes(mine, own):
                return Compared(reason=f"input {number} is changed by the call")
        return Compared()


class blaming:  # reads as a word of the sentence: `with blaming("get_inputs()")`
    """Turn what the task's code raises into `Unfitting`, with the task's own line."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Unfitting):
            return
        line = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.endswith("/task.py"):
                line = f" (line {frame.lineno})"
        if isinstance(error, SyntaxError) and error.lineno:
            line = f" (line {error.lineno})"
        said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise Unfitting(f"{self.where} raised {said}{line}") from error


def serve(descriptor: int, device: DeviceKind) -> None:
    """Answer the judge until it says `Leave` or is gone."""
    channel: Channel[ToReferee] = Channel(
        socket.socket(fileno=descriptor), ToReferee, descriptors=True
    )
    referee = Referee(device)
    while True:
        try:
            order, carried = channel.receive()
        except Closed:
            os._exit(0)
        made: list[int] = []
        answer: FromReferee
        try:
            answer, made = referee.answer(order, carried)
        except Unfitting as error:
            answer = Unfit(words=str(error))
        finally:
            close_all(carried)
        linecache.clearcache()
        channel.send(answer, made)
        close_all(made)
        if isinstance(order, Leave):
            return
