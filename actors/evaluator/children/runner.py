"""The runner: imports one module file and calls it, as the judge orders.

It runs in the child that is confined; from `ImportSource` on nothing in this process can be
trusted. The same code runs the task's own module for the clock, so that both sides pay the same.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import random
import socket
import sys
from pathlib import Path
from types import ModuleType

import torch

from actors.evaluator.children import (
    cuda_vmm,
    device_check,
    fast_build_hook,
    malloc,
    parameter_loading,
    profiler,
    task_dependencies,
    tensor_addresses,
    tensors,
)
from actors.evaluator.children.exception_reports import describe_exception
from actors.evaluator.children.redzones import RedZones
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.layout_checks import Layout, total_bytes
from actors.evaluator.ipc.orders import Done, Exit, ImportSource
from actors.evaluator.ipc.runner_orders import (
    CallOnce,
    CallProfiled,
    CallRepeatedly,
    CallReturned,
    CheckDevice,
    CheckRelease,
    CollectOutputs,
    CompileModule,
    ConstructModule,
    FromRunner,
    InputAddresses,
    LoadParameters,
    LocateInputs,
    LocateOutputs,
    OutputsCollected,
    ParametersLoaded,
    ReleaseChecked,
    ReleaseTensors,
    SetInputBatch,
    SetInputs,
    TakeProfile,
    ToRunner,
    WriteTensors,
)
from actors.evaluator.sandbox import linux
from protocol.values import DeviceKind

SPIN_S = 0.002  # between the orders of a window; a card's host has cores to spare


class MissingClassError(Exception):
    """The file does not define what was asked for."""


def import_file(source: str, name: str) -> ModuleType:
    """Write `source` to NAME.py in the working directory and import it."""
    path = Path.cwd() / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def seed_all(seed: int) -> None:
    """Seed what a module or its inputs may draw from."""
    torch.manual_seed(seed)
    random.seed(seed)


class Runner:
    """One module, its inputs by slot, and the outputs that it gave."""

    def __init__(self, device: DeviceKind) -> None:
        self.device = device
        self._class: object = None
        self._module: object = None
        self._slots: dict[int, tuple[object, ...]] = {}
        self._layouts: dict[int, object] = {}
        self._kept: dict[int, object] = {}
        self._outputs: list[object] = []  # of the last block, by slot

    def answer(self, order: ToRunner, carried: list[int]) -> FromRunner:
        """Do what `order` says; whatever the module raises comes out."""
        match order:
            case ImportSource():
                self._import(order)
            case ConstructModule():
                seed_all(order.seed)
                init = tensors.read(order.init, carried[0], self.device)
                self._module = self._class(*init)  # type: ignore[operator,misc]
                if isinstance(self._module, torch.nn.Module):
                    self._module = self._module.to(self.device)
            case LoadParameters():
                return self._load(order, carried)
            case CompileModule():
                self._module = torch.compile(self._module, mode=order.mode)  # type: ignore[call-overload]
            case _:
                return self._use(order, carried)
        return Done()

    def _use(self, order: ToRunner, carried: list[int]) -> FromRunner:
        match order:
            case SetInputs():
                self._feed({order.slot: order.inputs}, carried[0])
            case SetInputBatch():
                self._feed_all(order, carried[0])
            case CallOnce():
                return self._call(order)
            case ReleaseTensors():
                self._clear()
            case CallRepeatedly():
                self._bench(order.calls, order.slots)
            case TakeProfile():
                module, inputs = self._module, self._slots[order.slot]
                look = lambda: module(*inputs)  # type: ignore[operator]  # noqa: E731
                return CallProfiled(profile=profiler.profile_call(look, self.device))
            case CheckRelease():
                return self._check_release(order.name)
            case CheckDevice():
                device_check.check_device(self.device)
            case _:
                return self._hand_over(order, carried)
        return Done()

    def _hand_over(self, order: ToRunner, carried: list[int]) -> FromRunner:
        match order:
            case CollectOutputs():
                tensors.write(self._outputs, carried[0], order.limit)
                return OutputsCollected(outputs=tuple(map(tensors.layout_of, self._outputs)))
            case LocateInputs():
                slots = [self._slots[slot] for slot in range(order.slots)]
                return InputAddresses(places=tensor_addresses.input_addresses(slots))
            case LocateOutputs():
                self._outputs, answer = tensor_addresses.output_addresses(self._outputs)
                return answer
            case WriteTensors():
                self._write(order, carried[0])
        return Done()

    def _import(self, order: ImportSource) -> None:
        name = "candidate" if order.class_name == "ModelNew" else "task"
        if name == "candidate":
            fast_build_hook.install_fast_builds(order.source)
        task_dependencies.write_dependencies(order.modules)
        module = import_file(order.source, name)
        found = getattr(module, order.class_name, None)
        if not callable(found):
            raise MissingClassError(f"the file defines no class {order.class_name}")
        self._class = found

    def _check_release(self, name: str) -> ReleaseChecked:
        # Here alone: torch's compilers take seconds to import.
        from actors.evaluator.children import gpu_release_checks

        return gpu_release_checks.run_check(sys.modules["candidate"], self.device, name)

    def _load(self, order: LoadParameters, regions: list[int]) -> ParametersLoaded:
        wanted, first = (tensors.read(order.state, each, self.device) for each in regions)
        return parameter_loading.load_parameters(self._module, wanted, first)  # type: ignore[arg-type]  # both dicts

    def _feed_all(self, order: SetInputBatch, region: int) -> None:
        if self.device == "cuda":
            cuda_vmm.reset_persisting_l2()
        self._feed(dict(enumerate(order.inputs)), region)

    def _feed(self, layouts: dict[int, Layout], region: int) -> None:
        """Put values that lie in `region` one after the other into their slots."""
        if all(self._layouts.get(slot) == layout for slot, layout in layouts.items()):
            # New contents in the same storage: what was computed from the old is now wrong.
            tensors.fill([self._slots[slot] for slot in layouts], list(layouts.values()), region)
        else:
            place = 0
            with tensors.open_buffer(region, sum(map(total_bytes, layouts.values()))) as buffer:
                for slot, layout in layouts.items():
                    self._lay_out(slot, layout, buffer[place:])
                    place += total_bytes(layout)
        self._synchronize()  # the copies must not run into what is timed next

    def _lay_out(self, slot: int, layout: Layout, buffer: torch.Tensor) -> None:
        fresh = tensors.value_of(layout, buffer, self.device)
        self._slots[slot] = tuple(fresh)  # type: ignore[arg-type]  # always a list
        self._layouts[slot] = layout

    def _call(self, order: CallOnce) -> CallReturned:
        seed_all(order.seed)
        redzones = RedZones(self.device, order.guard) if order.guard else None
        with torch.no_grad():
            output = self._module(*self._slots[order.slot])  # type: ignore[operator]
        self._synchronize()
        # The one before is looked at once more, to see that this call left it alone.
        self._kept = {
            order.keep: output,
            **{k: v for k, v in self._kept.items() if k == order.keep - 1},
        }
        return CallReturned(
            output=tensors.layout_of(output), redzone_breach=redzones.breach() if redzones else ""
        )

    def _clear(self) -> None:
        self._slots, self._layouts, self._kept, self._outputs = {}, {}, {}, []
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _bench(self, calls: int, slots: int) -> None:
        if not calls:  # only to see how long an order takes
            self._synchronize()
            return
        module, inputs = self._module, [self._slots[slot] for slot in range(slots)]
        # Each output takes the place of the one before it: freed all at once, they would go back
        # to the system, and every block would begin with page faults.
        kept = min(calls, slots)
        outputs = [*self._outputs[:kept], *[None] * (kept - len(self._outputs))]
        self._outputs = []
        with torch.no_grad():
            for number in range(calls):
                slot = number % slots
                outputs[slot] = module(*inputs[slot])  # type: ignore[operator]
        self._synchronize()
        self._outputs = outputs

    def _write(self, order: WriteTensors, region: int) -> None:
        value: object
        if order.what == "inputs":
            value = list(self._slots[order.number])
        else:
            value = self._kept[order.number]
        tensors.write(value, region, order.limit)

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def serve(descriptor: int, device: DeviceKind) -> None:
    """Answer the judge until it says `Exit` or is gone."""
    malloc.never_trim()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # the judge is let into our memory
    faulthandler.enable()  # the stack of a segfault is worth a lot to who must repair it
    channel: Channel[ToRunner] = Channel(
        socket.socket(fileno=descriptor), ToRunner, descriptors=True
    )
    runner = Runner(device)
    while True:
        try:
            order, carried = channel.receive(SPIN_S if device == "cuda" else 0.0)
        except ChannelClosedError:
            os._exit(0)
        try:
            answer = runner.answer(order, carried)
        except BaseException as error:  # noqa: BLE001  # the candidate's, SystemExit too: data
            answer = describe_exception(error)
        finally:
            close_all(carried)
        channel.send(answer)
        if isinstance(order, Exit):
            return


__all__ = ["Runner", "import_file", "seed_all", "serve"]
