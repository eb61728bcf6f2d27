"""The runner: imports one module file and calls it, as the judge orders.

It runs in the confined child.  After `ImportSource` nothing in this process can be trusted.  The
same code runs the task's own module for the clock, so that both sides have the same overhead.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from typing import Any

import torch

from actors.evaluator.children import profiler, triton_driver
from actors.evaluator.children.call_clock import CallClock, CardWaker
from actors.evaluator.children.call_form import call_of, placed
from actors.evaluator.children.dependent_inputs import Turn, decided_turns
from actors.evaluator.children.device_check import check_device
from actors.evaluator.children.exception_reports import describe_exception
from actors.evaluator.children.source_import import import_candidate, import_task, seed_all
from actors.evaluator.children.tensors import (
    malloc,
    parameter_loading,
    tensor_addresses,
    tensor_bytes,
)
from actors.evaluator.children.tensors.arena import Arena, CallPool
from actors.evaluator.children.tensors.input_slots import SlotMemory
from actors.evaluator.children.tensors.random_fills import large_fills
from actors.evaluator.children.tensors.redzones import RedZones
from actors.evaluator.children.tensors.tensor_copies import to_device
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.orders import CallForm, Done, Exit, ImportSource, Order
from actors.evaluator.ipc.runner_orders import (
    ArenaUsed,
    AwaitCall,
    AwaitCard,
    CallDependent,
    CallOnce,
    CallProfiled,
    CallRepeatedly,
    CallReturned,
    CallsReturned,
    CheckDevice,
    CheckRelease,
    CollectOutputs,
    CompileModule,
    ConstructModule,
    CopySlots,
    FromRunner,
    LoadParameters,
    LocateOutputs,
    MapSlots,
    OutputAddresses,
    OutputsCollected,
    ParametersLoaded,
    ReleaseChecked,
    ReleaseTensors,
    SetInputs,
    SetState,
    SlotsMapped,
    StateWritten,
    TakeProfile,
    ToRunner,
    UseArena,
    UsePool,
    WriteState,
    WriteTensors,
)
from actors.prctl import PR_SET_DUMPABLE, prctl
from protocol.values import DeviceKind

SPIN_S = 0.002  # awake between the orders of a timed window; a card's host has cores to spare


class MissingClassError(Exception):
    """The file does not define the class that was ordered."""


class Runner:
    """One module, its inputs by slot, and the outputs of its calls."""

    def __init__(self, device: DeviceKind) -> None:
        self.device = device
        self._class: object = None
        self._made: object = None  # the module itself
        self._places: dict[str, parameter_loading.Place] = {}  # of tensors with other names
        self._form = CallForm()
        self._module: object = None  # what is called: the module, or what differentiates it
        self._slots: dict[int, tuple[object, ...]] = {}
        self._layouts: dict[int, object] = {}
        self._checked_outputs: dict[int, object] = {}  # outputs of checked calls, by their number
        self._redzones: RedZones | None = None  # around the last checked call's tensors
        self._outputs: list[object] = []  # of the last block, by slot
        self._handed_over: list[object] = []  # what the judge takes for the outputs of a block
        self._slot_memories: list[SlotMemory] = []  # the last has the inputs of timed calls
        self._slot_values: list[tuple[object, ...]] = []  # these inputs
        self._program = b""  # decides inputs on a card
        self._pool: CallPool | None = None  # where timed calls allocate
        self._card_waker = CardWaker(device)
        self._left_s = 0.0  # the card took for the last block once its stream was done
        self._handlers = self._handlers_by_order()

    def _handlers_by_order(
        self,
    ) -> dict[type[Order], Callable[[Any, list[int]], FromRunner | None]]:
        """Return what each order does; a handler returns an answer, or None for `Done`.

        Each lambda looks its method up at the call.
        """
        calls = lambda order, _: self._call_repeatedly(order)  # noqa: E731  # one frame for both
        return {
            ImportSource: lambda order, _: self._import_source(order),
            ConstructModule: lambda order, carried: self._construct(order, carried[0]),
            LoadParameters: lambda order, carried: self._load_parameters(order, carried),
            CompileModule: lambda order, _: self._compile_module(order.mode),
            SetInputs: lambda order, carried: self._set_inputs(
                order.slot, order.inputs, carried[0]
            ),
            MapSlots: lambda order, carried: self._map_slots(order, carried[0]),
            CopySlots: lambda order, _: self._copy_slots(order.count),
            UseArena: lambda order, carried: self._use_arena(order, carried[0]),
            UsePool: lambda _order, _: self._use_pool(CallPool()),
            CallOnce: lambda order, _: self._call_once(order),
            AwaitCall: lambda _order, _: self._await_call(),
            ReleaseTensors: lambda _order, _: self._release_tensors(),
            CallRepeatedly: calls,
            CallDependent: calls,
            AwaitCard: lambda order, _: self._await_card(order),
            TakeProfile: lambda order, _: self._profile(order),
            CheckRelease: lambda order, _: self._check_release(order),
            CheckDevice: lambda _order, _: check_device(self.device),
            CollectOutputs: lambda order, carried: self._collect_outputs(order, carried[0]),
            LocateOutputs: lambda _order, _: self._locate_outputs(),
            WriteTensors: lambda order, carried: self._write_tensors(order, carried[0]),
            SetState: lambda order, carried: self._set_state(order.state, carried[0]),
            WriteState: lambda order, carried: self._write_state(order, carried[0]),
        }

    def answer(self, order: ToRunner, carried: list[int]) -> FromRunner:
        """Carry out `order` and return the answer; an exception of the module passes through."""
        handler = self._handlers.get(type(order))
        answer = handler(order, carried) if handler else None
        return Done() if answer is None else answer

    # --- the module --------------------------------------------------------------------------

    def _import_source(self, order: ImportSource) -> None:
        import_module = import_candidate if order.class_name == "ModelNew" else import_task
        found = getattr(import_module(order.source, order.modules), order.class_name, None)
        if not callable(found):
            raise MissingClassError(f"the file defines no class {order.class_name}")
        self._class = found

    def _construct(self, order: ConstructModule, region: int) -> None:
        seed_all(order.seed)
        init = tensor_bytes.read(order.init, region, self.device)
        with large_fills(on_card=order.fills_on_card):
            made = self._class(*init)  # type: ignore[operator,misc]
        self._form = order.form
        self._made = placed(made, order.form, self.device)
        self._module = call_of(self._made, self._made, order.form)

    def _load_parameters(self, order: LoadParameters, regions: list[int]) -> ParametersLoaded:
        wanted, first = (tensor_bytes.read(order.state, each, self.device) for each in regions)
        answer, self._places = parameter_loading.load_parameters(self._made, wanted, first)  # type: ignore[arg-type]  # both dicts
        return answer

    def _compile_module(self, mode: str) -> None:
        torch.compiler.reset()  # what another mode compiled
        compiled = torch.compile(self._made, mode=mode)  # type: ignore[call-overload]
        self._module = call_of(compiled, self._made, self._form)

    def _profile(self, order: TakeProfile) -> CallProfiled:
        module, inputs = self._module, self._slots[order.slot]
        call = lambda: module(*inputs)  # type: ignore[operator]  # noqa: E731
        return CallProfiled(profile=profiler.profile_call(call, self.device, order.calls))

    def _check_release(self, order: CheckRelease) -> ReleaseChecked:
        # Imported here, because torch's compilers take seconds to import.
        from actors.evaluator.children.release_checks import gpu_release_checks

        return gpu_release_checks.run_check(
            sys.modules["candidate"],
            self.device,
            order.name,
            order.case,
            fills_on_card=order.fills_on_card,
        )

    # --- inputs ------------------------------------------------------------------------------

    def _set_inputs(self, slot: int, layout: Layout, region: int) -> None:
        """Put the value that `region` holds into a slot."""
        if self._layouts.get(slot) == layout:
            # New contents in the same storage: an answer cached for the storage is now wrong.
            tensor_bytes.fill([self._slots[slot]], [layout], region)
        else:
            fresh = tensor_bytes.read(layout, region, self.device)
            self._slots[slot] = tuple(fresh)  # type: ignore[arg-type]  # always a list
            self._layouts[slot] = layout
        self._synchronize()

    def _map_slots(self, order: MapSlots, region: int) -> SlotsMapped:
        memory = SlotMemory(region, order.inputs, order.count)
        self._program = order.program
        self._slot_values = memory.values()
        if self.device == "cuda" and not memory.is_on_card:
            self._slot_values = [
                tuple(to_device(list(each), self.device)) for each in self._slot_values
            ]
        self._slots, self._layouts = dict(enumerate(self._slot_values)), {}
        # Earlier slots stay: a module may have kept an input of an earlier call.
        self._slot_memories.append(memory)
        return SlotsMapped(begin=memory.begin)

    def _copy_slots(self, count: int) -> None:
        """Copy new inputs from memory that the card can't use."""
        shared = self._slot_memories[-1].values()[:count]
        for value, source in zip(self._slot_values, shared, strict=False):
            pairs = zip(
                tensor_bytes.tensors_in(value), tensor_bytes.tensors_in(source), strict=True
            )
            for target, tensor in pairs:
                target.data.copy_(tensor)
        self._synchronize()

    def _use_arena(self, order: UseArena, region: int) -> ArenaUsed:
        arena = Arena(region, order.size)
        arena.take(self._outputs[:1], order.calls + 1)
        self._outputs, self._handed_over = [], []
        self._use_pool(arena)
        return ArenaUsed(begin=arena.begin)

    def _use_pool(self, pool: CallPool) -> None:
        self._pool = pool
        torch.cuda.empty_cache()  # torch's own pool, which timed calls no longer use
        pool.reclaim()  # takes memory for that now

    # --- calls and outputs -------------------------------------------------------------------

    def _call_once(self, order: CallOnce) -> CallReturned | None:
        seed_all(order.seed)
        # The output before is kept for one more comparison: this call must not have changed it.
        numbers = {order.keep - 1, *([0] if order.keeps_first else [])}
        kept = {k: v for k, v in self._checked_outputs.items() if k in numbers}
        self._checked_outputs = kept
        self._redzones = RedZones(self.device, order.guard) if order.guard else None
        with torch.no_grad():
            kept[order.keep] = self._module(*self._slots[order.slot])  # type: ignore[operator]
        return self._await_call() if order.waits else None

    def _await_call(self) -> CallReturned:
        self._synchronize()
        redzones, self._redzones = self._redzones, None
        return CallReturned(
            output=tensor_bytes.layout_of(self._checked_outputs[max(self._checked_outputs)]),
            redzone_breach=redzones.breach() if redzones else "",
        )

    def _release_tensors(self) -> None:
        self._slots, self._layouts, self._checked_outputs = {}, {}, {}
        self._outputs, self._handed_over, self._slot_values, self._pool = [], [], [], None
        while self._slot_memories:
            self._slot_memories.pop().close()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _call_repeatedly(self, order: CallRepeatedly) -> CallsReturned:
        """Call the module on the inputs of a block, whatever decides these.

        One function: no name in a caller's frame tells a candidate what decides them.
        """
        if order.seed is not None:
            seed_all(order.seed)
        module, clock = self._module, CallClock(self.device, order.calls)
        count, turns = min(order.calls, order.slots), self._turns(order, clock.first)
        with self._block(0 if order.is_empty else count) as outputs:
            if isinstance(order, CallDependent) and order.is_empty:
                deque(chain(*turns), maxlen=0)
            if not order.is_empty:
                for slot, given in turns[0]:
                    outputs[slot] = module(*given)  # type: ignore[operator]
                clock.begin()
                for slot, given in turns[1]:
                    outputs[slot] = module(*given)  # type: ignore[operator]
                clock.end()
        if order.is_empty:
            times = -(-order.calls // max(1, len(outputs)))
            self._handed_over = (outputs * times)[: order.calls]
            return CallsReturned()
        self._handed_over = outputs[:count]
        return CallsReturned(call_s=clock.call_s(), left_s=self._left_s)

    def _await_card(self, order: AwaitCard) -> CallsReturned:
        return CallsReturned(left_s=self._card_waker.await_work(order.seconds))

    def _turns(self, order: CallRepeatedly, first: int) -> tuple[Iterable[Turn], Iterable[Turn]]:
        """Return slot and inputs of each call: of the `first` ones, and of those after them."""
        if isinstance(order, CallDependent):
            memory, program = self._slot_memories[-1], self._program
            decided = decided_turns(order, memory, self._slots, self._outputs, program)
            return islice(decided, first), decided
        inputs = [self._slots[slot] for slot in range(order.slots)]
        turns = list(enumerate(inputs)) * -(-order.calls // order.slots)
        return turns[:first], turns[first : order.calls]

    @contextmanager
    def _block(self, count: int) -> Iterator[list[object]]:
        """Make the calls of a block, which allocate in the pool; yield where `count` outputs go.

        Each output replaces the slot's last one, and others stay: all that is freed in a block
        takes time, and many outputs at once would return to the system.
        """
        self._outputs += [None] * (count - len(self._outputs))
        self._handed_over = []
        with torch.no_grad(), self._pool.allocating() if self._pool else nullcontext():
            self._card_waker.wake()
            yield self._outputs
        self._left_s = self._card_waker.await_all()

    def _collect_outputs(self, order: CollectOutputs, region: int) -> OutputsCollected:
        tensor_bytes.write(self._handed_over, region, order.limit)
        return OutputsCollected(outputs=tuple(map(tensor_bytes.layout_of, self._handed_over)))

    def _locate_outputs(self) -> OutputAddresses:
        if self._pool is not None:
            self._pool.slots = self._slot_memories[-1]
        self._handed_over, addresses = tensor_addresses.output_addresses(
            self._handed_over, self._pool
        )
        return addresses

    def _write_tensors(self, order: WriteTensors, region: int) -> None:
        value: object
        if order.what == "inputs":
            value = list(self._slots[order.number])
        else:
            value = self._checked_outputs[order.number]
        tensor_bytes.write(value, region, order.limit)

    def _set_state(self, layout: Layout, region: int) -> None:
        # One thread: idle OpenMP threads would spin for a while, in the next timed window.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        values = tensor_bytes.read(layout, region, self.device)
        parameter_loading.set_state(self._made, self._places, values)  # type: ignore[arg-type]  # a dict
        torch.set_num_threads(threads)
        self._synchronize()

    def _write_state(self, order: WriteState, region: int) -> StateWritten:
        state = parameter_loading.state_of(self._made, self._places, order.names)
        tensor_bytes.write(state, region, order.limit)
        return StateWritten(state=tensor_bytes.layout_of(state))

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def serve(descriptor: int, device: DeviceKind, kind: type[Runner] = Runner) -> None:
    """Answer the judge's orders until `Exit`, or until the judge is gone."""
    malloc.never_trim()
    prctl(PR_SET_DUMPABLE, 1)  # the judge may read and write this process's memory
    faulthandler.enable()  # the stack of a segfault helps the agent that repairs the candidate
    channel: Channel[ToRunner] = Channel(
        socket.socket(fileno=descriptor), ToRunner, descriptors=True
    )
    if device == "cuda":
        triton_driver.install()
    runner = kind(device)
    while True:
        try:
            order, carried = channel.receive(SPIN_S if device == "cuda" else 0.0)
        except ChannelClosedError:
            os._exit(0)
        try:
            answer = runner.answer(order, carried)
        except BaseException as error:  # noqa: BLE001  # the candidate's own, SystemExit too
            answer = describe_exception(error)
        finally:
            close_all(carried)
        channel.send(answer)
        if isinstance(order, Exit):
            return
