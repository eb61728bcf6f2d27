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

from actors.evaluator.children import correctness, cuda_vmm, tensors
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.task_module import TaskModule, require_transferable
from actors.evaluator.children.tensor_copies import (
    clone,
    has_same_bytes,
    in_memory_order,
    to_buffer,
)
from actors.evaluator.devices import device as devices
from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.layout_checks import tensor_leaves
from actors.evaluator.ipc.orders import Done, Exit
from actors.evaluator.ipc.referee_orders import (
    BatchDrawn,
    CompareBytes,
    Compared,
    ComputeExpected,
    DescribeDevice,
    DeviceDescribed,
    DrawBatch,
    DrawInputs,
    ExpectedLayout,
    ForgetDraws,
    FreshBuffers,
    FromReferee,
    ImportTask,
    InputKindResult,
    InputsDrawn,
    LendMemory,
    MakeModel,
    PrepareTask,
    RestoreParameters,
    StashOutputs,
    TaskPrepared,
    TaskUnsuitable,
    ToReferee,
    TryInputKind,
)
from protocol.values import DeviceKind

MAX_INPUT_BYTES = 1 << 32
RANDOM_OUTPUTS: Final = "the task draws random numbers: its outputs differ from call to call"


class ReferenceRound:
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
        self._task_module: TaskModule
        self._uses_device_memory = False
        self._floor = 0.0
        self._rounds: dict[int, ReferenceRound] = {}
        self._drawn = 0
        self._stashed: list[torch.Tensor] = []

    def answer(self, order: ToReferee, carried: list[int]) -> tuple[FromReferee, list[int]]:
        """Do what `order` says; raise `UnsuitableTaskError` when the task is at fault."""
        match order:
            case DescribeDevice():
                self._find_device()
                if self.device == "cpu":
                    return DeviceDescribed(device=devices.cpu_device()), []
                return DeviceDescribed(
                    device=devices.cuda_device(), uuid=devices.uuid_of_cuda()
                ), []
            case PrepareTask():
                return self._prepare(order)
            case TryInputKind():
                return InputKindResult(
                    accepted=self._task_module.accepts_kind(order.kind, order.seed)
                ), []
            case RestoreParameters():
                self._task_module.restore(order.names)
            case FreshBuffers():
                return Done(), self._buffers()
            case LendMemory():
                return Done(), [self._lent(order.size)]
            case DrawInputs():
                return self._draw(order)
            case DrawBatch():
                return self._draw_batch(order)
            case _:
                return self._result(order, carried), []
        return Done(), []

    def release_cached_memory(self) -> None:
        """Give memory back that the allocator keeps, where it is much: a card is shared."""
        if self.device == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            if kept > MAX_INPUT_BYTES:
                torch.cuda.empty_cache()

    def _result(self, order: ToReferee, carried: list[int]) -> FromReferee:
        match order:
            case ImportTask():
                self._find_device()
                self._task_module = TaskModule(order.source, self.device, order.modules)
            case MakeModel():
                self._task_module.make(order.seed)
            case ComputeExpected():
                self._expect(self._rounds[order.draw], order.seed)
                return ExpectedLayout(outputs=tensors.layout_of(self._rounds[order.draw].eager))
            case StashOutputs():
                self._stash(order, carried[0])
            case CompareBytes():
                return self._compare(order, carried)
            case ForgetDraws():
                for number in range(order.draw, order.draw + order.count):
                    self._rounds.pop(number, None)
                self._stashed = []
            case _:
                pass
        return Done()

    def _prepare(self, order: PrepareTask) -> tuple[FromReferee, list[int]]:
        self._uses_device_memory = order.use_device_memory and self.device == "cuda"
        self._floor = correctness.PRECISIONS.get(order.precision, 0.0)
        task = self._task_module
        inputs = task.inputs(order.seed + 1)
        steady = task.is_deterministic(inputs, None)
        if not steady and not task.is_deterministic(inputs, order.seed):
            raise UnsuitableTaskError(
                "Model.forward gives different outputs for the same inputs, parameters and seed: "
                "nothing can be compared with it"
            )
        task.find_precision(inputs)
        task.perturb(order.seed)
        outputs = task.eager_outputs(clone(inputs), order.seed)
        answer = TaskPrepared(
            init=tensors.layout_of(task.init),
            state=tensors.layout_of(task.state),
            inputs=tensors.layout_of(inputs),
            outputs=tensors.layout_of(outputs),
            is_deterministic=steady,
            aliases=task.has_aliases(inputs, order.seed),
            has_double=task.has_double,
            input_bytes=_input_room() if self._uses_device_memory else 0,
            notes=(
                *(() if steady else (RANDOM_OUTPUTS,)),
                *correctness.unchecked([*tensors.tensors_in(outputs)]),
            ),
        )
        require_transferable("Model's state", answer.state)
        require_transferable("Model.forward", answer.outputs)
        if not list(tensor_leaves(answer.outputs)):
            raise UnsuitableTaskError(
                "Model.forward returns no tensor: there is nothing to compare"
            )
        return answer, self._buffers()

    def _buffers(self) -> list[int]:
        task = self._task_module
        return [to_buffer(each, self._lent) for each in (task.init, task.state, task.first)]

    def _find_device(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UnsuitableTaskError("no CUDA device can be used here; use --device cpu")

    def _lent(self, size: int) -> int:
        return (
            cuda_vmm.allocate(size)
            if self._uses_device_memory
            else shared_memory.allocate(size, "parcel")
        )

    # --- draws -------------------------------------------------------------------------------

    def _draw(self, order: DrawInputs) -> tuple[FromReferee, list[int]]:
        self._drawn += 1
        inputs = self._task_module.inputs(order.seed, order.kind)
        self._rounds[self._drawn] = ReferenceRound(inputs)
        layout = tensors.layout_of(inputs)
        return InputsDrawn(draw=self._drawn, inputs=layout), [to_buffer(inputs, self._lent)]

    def _draw_batch(self, order: DrawBatch) -> tuple[FromReferee, list[int]]:
        first, hand = self._drawn + 1, []
        for number in range(order.count):
            hand.append(self._task_module.inputs(order.seed + number))
            self._drawn += 1
            self._rounds[self._drawn] = ReferenceRound(hand[-1])
        layouts = tuple(tensors.layout_of(inputs) for inputs in hand)
        # On the card one side could write to what the other is about to read: two, then.
        sides = 2 if self._uses_device_memory else 1
        given = in_memory_order(hand) if order.strided else hand
        return BatchDrawn(first=first, inputs=layouts), [
            to_buffer(given, self._lent) for _ in range(sides)
        ]

    def _expect(self, drawn: ReferenceRound, seed: int) -> None:
        if drawn.eager is None:
            drawn.before = clone(drawn.inputs)
            drawn.exact = self._task_module.double_outputs(drawn.before, seed)
            drawn.eager = self._task_module.eager_outputs(drawn.inputs, seed)

    # --- comparisons -------------------------------------------------------------------------

    def _stash(self, order: StashOutputs, descriptor: int) -> None:
        """Copy bytes at once: whoever wrote them may still be writing."""
        # By one thread: others would spin for a while, in the midst of somebody's window.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with tensors.open_buffer(descriptor, order.size) as window:
            taken = [window[begin:end].clone() for begin, end in order.parts]
        if order.strided:
            pairs = zip(taken, order.strided, strict=True)
            taken = [tensors.in_logical_order(part, layout) for part, layout in pairs]
        if order.keep:
            self._stashed = taken
        torch.set_num_threads(threads)

    def _compare(self, order: CompareBytes, carried: list[int]) -> Compared:
        drawn = self._rounds[order.draw]
        expected = drawn.inputs if order.what == "inputs" else drawn.eager
        layout = tensors.layout_of(expected)
        if order.stashed is None:
            value = tensors.read(layout, carried[0], self.device)
        else:
            value = tensors.value_of(layout, self._stashed[order.stashed], self.device)
        got = list(tensors.tensors_in(value))
        if order.what == "inputs":
            return _compare_inputs(drawn, got)
        return self._compare_outputs(drawn, got, share=order.share)

    def _compare_outputs(
        self, drawn: ReferenceRound, got: list[torch.Tensor], *, share: bool
    ) -> Compared:
        eager = list(tensors.tensors_in(drawn.eager))
        exact = [None] * len(eager) if drawn.exact is None else tensors.tensors_in(drawn.exact)
        worst = taken = 0.0
        for number, (mine, theirs, truth) in enumerate(zip(got, eager, exact, strict=True)):
            where = "output" if len(eager) == 1 else f"output {number}"
            comparison = correctness.compare(mine, theirs, truth, where, floor=self._floor)
            worst = max(worst, comparison.max_error)
            taken = max(taken, correctness.kernelbench_error(mine, theirs)) if share else 0.0
            if comparison.reason:
                return Compared(reason=comparison.reason, max_error=worst)
        return Compared(max_error=worst, share=taken if share else None)


def _input_room() -> int:
    """Return what one block's calls may take: they lie there half a dozen times."""
    free, _whole = torch.cuda.mem_get_info()
    return min(MAX_INPUT_BYTES, free // 32)


def _compare_inputs(drawn: ReferenceRound, got: list[torch.Tensor]) -> Compared:
    before = tensors.tensors_in(drawn.before)
    for number, (mine, own, old) in enumerate(
        zip(got, tensors.tensors_in(drawn.inputs), before, strict=True)
    ):
        # Where the task's own module writes to its input, a candidate may or may not.
        if has_same_bytes(own, old) and not has_same_bytes(mine, own):
            return Compared(reason=f"input {number} is changed by the call")
    return Compared()


def serve(descriptor: int, device: DeviceKind) -> None:
    """Answer the judge until it says `Exit` or is gone."""
    channel: Channel[ToReferee] = Channel(
        socket.socket(fileno=descriptor), ToReferee, descriptors=True
    )
    referee = Referee(device)
    while True:
        try:
            order, carried = channel.receive()
        except ChannelClosedError:
            os._exit(0)
        made: list[int] = []
        answer: FromReferee
        try:
            answer, made = referee.answer(order, carried)
        except UnsuitableTaskError as error:
            answer = TaskUnsuitable(reason=str(error))
        finally:
            close_all(carried)
        linecache.clearcache()
        referee.release_cached_memory()
        channel.send(answer, made)
        close_all(made)
        if isinstance(order, Exit):
            return
