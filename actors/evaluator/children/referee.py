"""The referee: draws inputs, computes what is expected, compares.  Trusted; runs the task's code.

What a candidate returned arrives here as typed bytes only.  Seeds come from the judge, who draws
them from the operating system.
"""

from __future__ import annotations

import linecache
import os
import socket
from typing import Final

import torch

from actors.evaluator import correctness
from actors.evaluator.children import devmem, tensors
from actors.evaluator.children.blame import Unfitting
from actors.evaluator.children.copies import as_it_lies, clone, parcel, same_bytes
from actors.evaluator.children.original import Original, crossable
from actors.evaluator.devices import device as devices
from actors.evaluator.wire import region
from actors.evaluator.wire.channel import Channel, Closed, close_all
from actors.evaluator.wire.layout import leaves
from actors.evaluator.wire.orders import Done, Leave
from actors.evaluator.wire.referee_orders import (
    Bear,
    Bears,
    Compare,
    Compared,
    Deal,
    Dealt,
    Describe,
    Described,
    Draw,
    Drawn,
    Expect,
    Expected,
    Forget,
    FromReferee,
    ImportTask,
    Lend,
    MakeModel,
    Prepare,
    Prepared,
    Renew,
    Restore,
    Take,
    ToReferee,
    Unfit,
)
from protocol.values import DeviceKind

MOST_ROOM = 1 << 32
UNSTEADY: Final = "the task draws random numbers: its outputs differ from call to call"


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
        self._original: Original
        self._lends = False
        self._floor = 0.0
        self._rounds: dict[int, Round] = {}
        self._drawn = 0
        self._taken: list[torch.Tensor] = []

    def answer(self, order: ToReferee, carried: list[int]) -> tuple[FromReferee, list[int]]:
        """Do what `order` says; raise `Unfitting` when the task is at fault."""
        match order:
            case Describe():
                self._find_device()
                if self.device == "cpu":
                    return Described(device=devices.of_cpu()), []
                return Described(device=devices.of_cuda(), uuid=devices.uuid_of_cuda()), []
            case Prepare():
                return self._prepare(order)
            case Bear():
                return Bears(bears=self._original.bears(order.kind, order.seed)), []
            case Restore():
                self._original.restore(order.names)
            case Renew():
                return Done(), self._parcels()
            case Lend():
                return Done(), [self._lent(order.size)]
            case Draw():
                return self._draw(order)
            case Deal():
                return self._deal(order)
            case _:
                return self._result(order, carried), []
        return Done(), []

    def tidy(self) -> None:
        """Give memory back that the allocator keeps, where it is much: a card is shared."""
        if self.device == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            if kept > MOST_ROOM:
                torch.cuda.empty_cache()

    def _result(self, order: ToReferee, carried: list[int]) -> FromReferee:
        match order:
            case ImportTask():
                self._find_device()
                self._original = Original(order.source, self.device, order.modules)
            case MakeModel():
                self._original.make(order.seed)
            case Expect():
                self._expect(self._rounds[order.draw], order.seed)
                return Expected(outputs=tensors.layout_of(self._rounds[order.draw].eager))
            case Take():
                self._take(order, carried[0])
            case Compare():
                return self._compare(order, carried)
            case Forget():
                for number in range(order.draw, order.draw + order.count):
                    self._rounds.pop(number, None)
                self._taken = []
            case _:
                pass
        return Done()

    def _prepare(self, order: Prepare) -> tuple[FromReferee, list[int]]:
        self._lends = order.lend and self.device == "cuda"
        self._floor = correctness.PRECISIONS.get(order.precision, 0.0)
        task = self._original
        inputs = task.inputs(order.seed + 1)
        steady = task.repeats(inputs, None)
        if not steady and not task.repeats(inputs, order.seed):
            raise Unfitting(
                "Model.forward gives different outputs for the same inputs, parameters and seed: "
                "nothing can be compared with it"
            )
        task.find_precision(inputs)
        task.shake(order.seed)
        outputs = task.eager(clone(inputs), order.seed)
        answer = Prepared(
            init=tensors.layout_of(task.init),
            state=tensors.layout_of(task.state),
            inputs=tensors.layout_of(inputs),
            outputs=tensors.layout_of(outputs),
            steady=steady,
            aliases=task.aliases(inputs, order.seed),
            precise=task.precise,
            room=_room() if self._lends else 0,
            notes=(
                *(() if steady else (UNSTEADY,)),
                *correctness.unchecked([*tensors.tensors_in(outputs)]),
            ),
        )
        crossable("Model's state", answer.state)
        crossable("Model.forward", answer.outputs)
        if not list(leaves(answer.outputs)):
            raise Unfitting("Model.forward returns no tensor: there is nothing to compare")
        return answer, self._parcels()

    def _parcels(self) -> list[int]:
        task = self._original
        return [parcel(each, self._lent) for each in (task.init, task.state, task.first)]

    def _find_device(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Unfitting("no CUDA device can be used here; use --device cpu")

    def _lent(self, size: int) -> int:
        return devmem.make(size) if self._lends else region.make(size, "parcel")

    # --- draws -------------------------------------------------------------------------------

    def _draw(self, order: Draw) -> tuple[FromReferee, list[int]]:
        self._drawn += 1
        inputs = self._original.inputs(order.seed, order.kind)
        self._rounds[self._drawn] = Round(inputs)
        layout = tensors.layout_of(inputs)
        return Drawn(draw=self._drawn, inputs=layout), [parcel(inputs, self._lent)]

    def _deal(self, order: Deal) -> tuple[FromReferee, list[int]]:
        first, hand = self._drawn + 1, []
        for number in range(order.count):
            hand.append(self._original.inputs(order.seed + number))
            self._drawn += 1
            self._rounds[self._drawn] = Round(hand[-1])
        layouts = tuple(tensors.layout_of(inputs) for inputs in hand)
        # On the card one side could write to what the other is about to read: two, then.
        sides = 2 if self._lends else 1
        given = as_it_lies(hand) if order.strided else hand
        return Dealt(first=first, inputs=layouts), [parcel(given, self._lent) for _ in range(sides)]

    def _expect(self, drawn: Round, seed: int) -> None:
        if drawn.eager is None:
            drawn.before = clone(drawn.inputs)
            drawn.exact = self._original.exact(drawn.before, seed)
            drawn.eager = self._original.eager(drawn.inputs, seed)

    # --- comparisons -------------------------------------------------------------------------

    def _take(self, order: Take, descriptor: int) -> None:
        """Copy bytes at once: whoever wrote them may still be writing."""
        # By one thread: others would spin for a while, in the midst of somebody's window.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with tensors.opened(descriptor, order.size) as window:
            taken = [window[begin:end].clone() for begin, end in order.parts]
        if order.strided:
            pairs = zip(taken, order.strided, strict=True)
            taken = [tensors.in_order(part, layout) for part, layout in pairs]
        if order.kept:
            self._taken = taken
        torch.set_num_threads(threads)

    def _compare(self, order: Compare, carried: list[int]) -> Compared:
        drawn = self._rounds[order.draw]
        expected = drawn.inputs if order.what == "inputs" else drawn.eager
        layout = tensors.layout_of(expected)
        if order.taken is None:
            value = tensors.read(layout, carried[0], self.device)
        else:
            value = tensors.value_of(layout, self._taken[order.taken], self.device)
        got = list(tensors.tensors_in(value))
        if order.what == "inputs":
            return _compare_inputs(drawn, got)
        return self._compare_outputs(drawn, got, share=order.share)

    def _compare_outputs(self, drawn: Round, got: list[torch.Tensor], *, share: bool) -> Compared:
        eager = list(tensors.tensors_in(drawn.eager))
        exact = [None] * len(eager) if drawn.exact is None else tensors.tensors_in(drawn.exact)
        worst = taken = 0.0
        for number, (mine, theirs, truth) in enumerate(zip(got, eager, exact, strict=True)):
            where = "output" if len(eager) == 1 else f"output {number}"
            finding = correctness.compare(mine, theirs, truth, where, floor=self._floor)
            worst = max(worst, finding.max_error)
            taken = max(taken, correctness.kernelbench(mine, theirs)) if share else 0.0
            if finding.reason:
                return Compared(reason=finding.reason, max_error=worst)
        return Compared(max_error=worst, share=taken if share else None)


def _room() -> int:
    """Return what one block's calls may take: they lie there half a dozen times."""
    free, _whole = torch.cuda.mem_get_info()
    return min(MOST_ROOM, free // 32)


def _compare_inputs(drawn: Round, got: list[torch.Tensor]) -> Compared:
    before = tensors.tensors_in(drawn.before)
    for number, (mine, own, old) in enumerate(
        zip(got, tensors.tensors_in(drawn.inputs), before, strict=True)
    ):
        # Where the task's own module writes to its input, a candidate may or may not.
        if same_bytes(own, old) and not same_bytes(mine, own):
            return Compared(reason=f"input {number} is changed by the call")
    return Compared()


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
        referee.tidy()
        channel.send(answer, made)
        close_all(made)
        if isinstance(order, Leave):
            return
