"""The referee: draws inputs, computes expected outputs, compares.  Trusted; runs the task's code.

A candidate's outputs arrive here as typed bytes only.  Seeds come from the judge, which draws them
from the operating system.
"""

from __future__ import annotations

import linecache
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import torch

from actors.evaluator.children import correctness, input_kinds, module_updates, task_randomness
from actors.evaluator.children.carried_state import find_carried
from actors.evaluator.children.chain_comparison import ChainComparison
from actors.evaluator.children.input_memory import find_aliases
from actors.evaluator.children.integer_losses import find_losses
from actors.evaluator.children.reference_round import OutputRules, ReferenceRound
from actors.evaluator.children.stashed_outputs import StashedOutputs
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.task_module import TaskModule, require_comparable
from actors.evaluator.children.task_notes import task_notes
from actors.evaluator.children.tensors import cuda_vmm, tensor_bytes
from actors.evaluator.children.tensors.fixed_inputs import FixedInputs
from actors.evaluator.children.tensors.tensor_copies import clone, to_buffer
from actors.evaluator.children.timing_memory import TimingMemory
from actors.evaluator.devices import device_description as devices
from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.layout_checks import Nest
from actors.evaluator.ipc.orders import Done, Exit, InputKind, Order
from actors.evaluator.ipc.referee_orders import (
    AwaitIdleCard,
    CompareBytes,
    CompareChain,
    Compared,
    CompareState,
    ComputeExpected,
    DescribeDevice,
    DescribeTask,
    DeviceDescribed,
    DrawDependent,
    DrawFromSlot,
    DrawInputs,
    ExpectedLayout,
    FillSlots,
    ForgetDraws,
    FreshBuffers,
    FromReferee,
    ImportTask,
    InputKindResult,
    InputsDrawn,
    LendMemory,
    MakeModel,
    MeasureRates,
    PrepareArena,
    PrepareReplacement,
    PrepareSlots,
    PrepareTask,
    RatesMeasured,
    ReleaseTimingMemory,
    RepeatBlock,
    ReplaceContents,
    RestoreContents,
    RestoreParameters,
    ShareState,
    SlotDrawn,
    StashFromArena,
    StashOutputs,
    TaskDescribed,
    TaskPrepared,
    TaskUnsuitable,
    ToReferee,
    TryInputKind,
    TryMixing,
)
from protocol.values import DeviceKind

MAX_UNUSED_BYTES = 1 << 32
# Of inputs and outputs of one block: what a referee's time allows.  A block of one call of 1 ms has
# as much time besides the call: with a quarter of this a speed-up of 2 came out as 0 to 1.3.
HOST_BLOCK_BYTES = 1 << 27
Answer: TypeAlias = FromReferee | tuple[FromReferee, list[int]] | None


class Referee:
    """The task's module, and the rounds whose outputs are still to be compared."""

    def __init__(self, device: DeviceKind) -> None:
        self.device = device
        self._task_module: TaskModule
        self._uses_device_memory = False
        self._floor = 0.0
        self._output_rules: OutputRules
        self._rounds: dict[int, ReferenceRound] = {}
        self._drawn = 0
        self._stashed = StashedOutputs(device)
        self._aliases: tuple[bool, ...] = ()  # outputs that the task returns in its inputs
        self._timing_memory: TimingMemory
        self._is_timing = False  # slots are prepared
        self._handlers = self._handlers_by_order()

    def _handlers_by_order(self) -> dict[type[Order], Callable[[Any, list[int]], Answer]]:
        """Return what each order does; a handler returns None for `Done`."""
        return {
            DescribeDevice: lambda _order, _: self._describe_device(),
            ImportTask: lambda order, _: self._import_task(order),
            MakeModel: lambda order, _: self._task_module.make(order.seed),
            PrepareTask: lambda order, _: self._prepare(order),
            MeasureRates: lambda _order, _: self._measure_rates(),
            DescribeTask: lambda order, _: self._describe_task(order.seed),
            TryInputKind: lambda order, _: self._try_input_kind(order),
            RestoreParameters: lambda order, _: self._task_module.restore(order.names),
            FreshBuffers: lambda _order, _: (Done(), self._buffers()),
            ShareState: lambda order, _: (
                Done(),
                [to_buffer(module_updates.given_state(self._task_module, order), self._allocate)],
            ),
            LendMemory: lambda order, _: (Done(), [self._allocate(order.size)]),
            DrawInputs: lambda order, _: self._draw(order),
            TryMixing: lambda order, _: self._timing_memory.try_mixing(order.seed),
            PrepareSlots: lambda order, _: self._timing_memory.prepare_slots(order),
            FillSlots: lambda order, _: self._timing_memory.fill(order),
            PrepareReplacement: lambda order, _: self._timing_memory.prepare_replacement(order),
            ReplaceContents: lambda _order, _: self._timing_memory.replace_contents(),
            RestoreContents: lambda _order, _: self._timing_memory.restore_contents(),
            DrawFromSlot: lambda order, _: self._draw_from_slot(order.slot),
            DrawDependent: lambda order, _: self._draw_dependent(order),
            PrepareArena: lambda order, _: self._timing_memory.prepare_arena(order),
            StashFromArena: lambda order, _: self._stashed.copy_from_arena(
                order, self._timing_memory
            ),
            AwaitIdleCard: lambda _order, _: self._timing_memory.await_idle_card(),
            ReleaseTimingMemory: lambda _order, _: self._release_timing_memory(),
            ComputeExpected: lambda order, _: self._compute_expected(order),
            StashOutputs: lambda order, carried: self._stashed.copy(order, carried[0]),
            CompareBytes: lambda order, carried: self._compare(order, carried),
            RepeatBlock: lambda order, _: self._repeat_block(order),
            CompareChain: lambda order, _: self._compare_chain(order),
            CompareState: lambda order, carried: module_updates.compare_state(
                self._task_module, order, carried[0]
            ),
            ForgetDraws: lambda order, _: self._forget(order),
        }

    def answer(self, order: ToReferee, carried: list[int]) -> tuple[FromReferee, list[int]]:
        """Carry out `order`; raise `UnsuitableTaskError` when the task is at fault."""
        handler = self._handlers.get(type(order))
        answer = handler(order, carried) if handler else None
        if isinstance(order, PrepareSlots | ReleaseTimingMemory):
            self._is_timing = isinstance(order, PrepareSlots)
        if answer is None:
            return Done(), []
        return answer if isinstance(answer, tuple) else (answer, [])

    def release_cached_memory(self) -> None:
        """Return the allocator's unused memory where it is much: other processes use the card.

        Not between timed blocks: the driver clears what is freed, and for some milliseconds that
        took a twelfth of an H200's bandwidth from the block that followed.
        """
        if self._is_timing:
            return
        if self.device == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            if unused > MAX_UNUSED_BYTES:
                torch.cuda.empty_cache()

    # --- the device and the task -------------------------------------------------------------

    def _describe_device(self) -> DeviceDescribed:
        self._find_device()
        if self.device == "cpu":
            return DeviceDescribed(device=devices.cpu_device())
        return DeviceDescribed(device=devices.cuda_device(), uuid=devices.uuid_of_cuda())

    def _measure_rates(self) -> RatesMeasured:
        from actors.evaluator.children import device_rates

        self._find_device()
        cache_bytes = devices.last_cache_bytes(self.device)
        rates, is_settled = device_rates.measure_rates(self.device, cache_bytes)
        return RatesMeasured(rates=rates, is_settled=is_settled)

    def _describe_task(self, seed: int) -> TaskDescribed:
        # Imported here: torch's counter of operations is not for the process that forks children.
        from actors.evaluator.children import task_description

        return task_description.describe_task(self._task_module, seed, self._floor)

    def _import_task(self, order: ImportTask) -> None:
        self._find_device()
        self._task_module = TaskModule(
            order.source, self.device, order.modules, order.case, backward=order.backward
        )
        if self.device == "cuda":
            # The driver makes a context while an earlier task's processes end, if there is room.
            with suppress(RuntimeError):
                torch.cuda.mem_get_info()

    def _try_input_kind(self, order: TryInputKind) -> InputKindResult:
        return InputKindResult(accepted=input_kinds.accepts(self._task_module, order))

    def _prepare(self, order: PrepareTask) -> tuple[FromReferee, list[int]]:
        self._uses_device_memory = order.use_device_memory and self.device == "cuda"
        self._floor = correctness.PRECISIONS.get(order.precision, 0.0)
        task, seed = self._task_module, order.seed
        inputs = task.inputs(seed + 1)
        steady = task_randomness.is_steady(task, inputs, seed)
        outputs, own_floors = self._first_outputs(inputs, seed, is_steady=steady)
        self._aliases, keeps_inputs = find_aliases(task, inputs, seed)
        losses = find_losses(task, outputs, seed)
        self._output_rules = OutputRules(task.form, self._aliases, self._floor, own_floors, losses)
        layout, fixed = tensor_bytes.layout_of(inputs), FixedInputs(task.arguments_in(inputs))
        inputs = []  # what they take is free
        inputs = task.inputs(seed + 3)
        fixed.compare(task.arguments_in(inputs))
        updated, (is_repeated, follows_state) = module_updates.find_updates(
            task, inputs, seed, self._floor, is_steady=steady
        )
        steady, inputs = steady and is_repeated, []
        kept = fixed.kept(lambda: task.inputs(seed + 4))
        answer = TaskPrepared(
            init=tensor_bytes.layout_of(task.init),
            state=tensor_bytes.layout_of(task.state),
            inputs=layout,
            outputs=tensor_bytes.layout_of(outputs),
            is_deterministic=steady,
            is_repeated=is_repeated,
            follows_state=follows_state,
            updated=updated,
            carried=find_carried(task, seed),
            fixed_inputs=kept,
            keeps_inputs=keeps_inputs,
            aliases=self._aliases,
            has_double=task.has_double,
            working_bytes=task.working_bytes,
            notes=task_notes(task, outputs, kept, seed, is_steady=steady, is_repeated=is_repeated),
            free_bytes=self._free_bytes(),
            form=task.form,
            fills_on_card=task.fills_on_card,
        )
        self._timing_memory = TimingMemory(task, answer.inputs, self._allocate_for_results)
        require_comparable(answer.state, answer.outputs)
        return answer, self._buffers()

    def _first_outputs(
        self, inputs: list[object], seed: int, *, is_steady: bool
    ) -> tuple[object, tuple[float, ...]]:
        """Give parameters other values; return a call's outputs, and the errors that pass."""
        self._task_module.find_precision(inputs, is_random=not is_steady)
        self._task_module.perturb(inputs, seed)
        own_floors = self._task_module.own_error_floors(inputs, seed)
        return self._task_module.eager_outputs(clone(inputs), seed), own_floors

    def _free_bytes(self) -> int:
        """Return the bytes that are free on a card; on a host, those of one timed block."""
        if self.device == "cpu":
            return HOST_BLOCK_BYTES
        torch.cuda.empty_cache()  # preparing the task has used some
        return torch.cuda.mem_get_info()[0]

    def _buffers(self) -> list[int]:
        task = self._task_module
        return [to_buffer(each, self._allocate) for each in (task.init, task.state, task.first)]

    def _release_timing_memory(self) -> None:
        self._timing_memory.release()
        self._task_module.varied = {}

    def _find_device(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UnsuitableTaskError("no CUDA device can be used here; use --device cpu")

    def _allocate(self, size: int) -> int:
        if self._uses_device_memory:
            return cuda_vmm.allocate(size)
        return shared_memory.allocate(size, "buffer")

    def _allocate_for_results(self, size: int) -> int:
        """Return memory that other processes write to, too, and that they can't seal."""
        if self._uses_device_memory:
            return cuda_vmm.allocate(size)
        return shared_memory.allocate_unsealed(size)

    # --- draws -------------------------------------------------------------------------------

    def _draw(self, order: DrawInputs) -> tuple[FromReferee, list[int]]:
        inputs = self._task_module.inputs(order.seed, order.kind)
        answer = InputsDrawn(
            draw=self._keep(inputs, order.kind), inputs=tensor_bytes.layout_of(inputs)
        )
        return answer, [to_buffer(inputs, self._allocate)]

    def _draw_from_slot(self, slot: int) -> SlotDrawn:
        inputs, kind, is_changed = self._timing_memory.drawn_from(slot)
        return SlotDrawn(draw=self._keep(inputs, kind), is_changed=is_changed)

    def _draw_dependent(self, order: DrawDependent) -> SlotDrawn:
        return SlotDrawn(draw=self._keep(self._decided_inputs(order)), is_changed=())

    def _decided_inputs(self, order: DrawDependent) -> list[object]:
        before = self._stashed.value(order.stashed, Nest(kind="list", items=order.tensors))
        return self._timing_memory.dependent_draw(order, before)

    def _keep(self, inputs: list[object], kind: InputKind = "plain") -> int:
        """Keep a draw until it is compared; return its number."""
        self._drawn += 1
        self._rounds[self._drawn] = ReferenceRound(inputs, kind)
        return self._drawn

    def _compute_expected(self, order: ComputeExpected) -> ExpectedLayout:
        drawn = self._rounds[order.draw]
        task = self._task_module
        if drawn.eager is None:
            if order.state:
                module_updates.begin_state(task, order.state)
            start = task_randomness.random_start_after(
                task, self._timing_memory.inputs_of, order.seed, order.calls_before
            )
            drawn.call(task, start)
        return ExpectedLayout(outputs=tensor_bytes.layout_of(drawn.eager))

    def _repeat_block(self, order: RepeatBlock) -> Compared | None:
        task, inputs_of = self._task_module, self._timing_memory.inputs_of
        if order.draw is None:
            return module_updates.repeat_block(task, order, inputs_of)
        drawn, comparison = self._rounds[order.draw], CompareBytes(draw=order.draw, what="output")
        for outputs in module_updates.nudged_outputs(task, order, inputs_of):
            got = list(tensor_bytes.tensors_in(outputs))
            found = drawn.compare_outputs(got, comparison, self._output_rules)
            if found.reason:
                return found
        return Compared()

    def _forget(self, order: ForgetDraws) -> None:
        for number in range(order.draw, order.draw + order.count):
            self._rounds.pop(number, None)
        self._stashed.clear()

    # --- comparisons -------------------------------------------------------------------------

    def _compare(self, order: CompareBytes, carried: list[int]) -> Compared:
        drawn = self._rounds[order.draw]
        if order.slot is not None:
            return self._compared(drawn, self._timing_memory.slots.value(order.slot), order)
        layout = tensor_bytes.layout_of(drawn.inputs if order.what == "inputs" else drawn.eager)
        if order.stashed is not None:
            return self._compared(drawn, self._stashed.value(order.stashed, layout), order)
        with tensor_bytes.open_value(layout, carried[0], self.device) as value:
            return self._compared(drawn, value, order)

    def _compare_chain(self, order: CompareChain) -> Compared:
        def inputs_of(call: int) -> list[object]:
            if not call:
                return self._timing_memory.inputs_of(0)
            return self._decided_inputs(order.links[call - 1])

        rules = self._output_rules
        chain = ChainComparison(self._task_module, order, inputs_of, self._stashed, rules)
        return chain.compare()

    def _compared(self, drawn: ReferenceRound, value: object, order: CompareBytes) -> Compared:
        got = list(tensor_bytes.tensors_in(value))
        compare = drawn.compare_inputs if order.what == "inputs" else drawn.compare_outputs
        return compare(got, order, self._output_rules)


def serve(descriptor: int, device: DeviceKind) -> None:
    """Answer the judge's orders until `Exit`, or until the judge is gone."""
    channel: Channel[ToReferee] = Channel(
        socket.socket(fileno=descriptor), ToReferee, descriptors=True
    )
    referee = Referee(device)
    while True:
        try:
            order, carried = channel.receive()
        except ChannelClosedError:
            os._exit(0)
        buffers: list[int] = []
        answer: FromReferee
        try:
            answer, buffers = referee.answer(order, carried)
        except UnsuitableTaskError as error:
            answer = TaskUnsuitable(reason=str(error))
        finally:
            close_all(carried)
        linecache.clearcache()
        referee.release_cached_memory()
        channel.send(answer, buffers)
        close_all(buffers)
        if isinstance(order, Exit):
            return
