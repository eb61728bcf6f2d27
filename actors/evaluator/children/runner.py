"""The runner: imports one module file and calls it, as the judge orders.

It runs in the child that is confined; from `Import` on nothing in this process can be trusted.
The same code runs the task's own module for the clock, so that both sides pay the same.
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
    beside,
    canary,
    devmem,
    malloc,
    places,
    profile,
    takeover,
    tensors,
    whereabouts,
)
from actors.evaluator.children.faults import raised
from actors.evaluator.children.guards import Guards
from actors.evaluator.isolation import linux
from actors.evaluator.wire.channel import Channel, Closed, close_all
from actors.evaluator.wire.layout import Layout, total_bytes
from actors.evaluator.wire.orders import Done, Import, Leave
from actors.evaluator.wire.runner_orders import (
    Bench,
    Called,
    CallOnce,
    Canary,
    CheckRelease,
    Clear,
    Collect,
    Collected,
    Compile,
    Construct,
    Feed,
    FeedAll,
    FromRunner,
    Load,
    Loaded,
    Places,
    Present,
    Profiled,
    ReleaseChecked,
    TakeProfile,
    ToRunner,
    Where,
    Write,
)
from protocol.values import DeviceKind

AWAKE_S = 0.002  # between the orders of a window; a card's host has cores to spare


class NoClass(Exception):
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
            case Import():
                self._import(order)
            case Construct():
                seed_all(order.seed)
                init = tensors.read(order.init, carried[0], self.device)
                self._module = self._class(*init)  # type: ignore[operator,misc]
                if isinstance(self._module, torch.nn.Module):
                    self._module = self._module.to(self.device)
            case Load():
                return self._load(order, carried)
            case Compile():
                self._module = torch.compile(self._module, mode=order.mode)  # type: ignore[call-overload]
            case _:
                return self._use(order, carried)
        return Done()

    def _use(self, order: ToRunner, carried: list[int]) -> FromRunner:
        match order:
            case Feed():
                self._feed({order.slot: order.inputs}, carried[0])
            case FeedAll():
                self._feed_all(order, carried[0])
            case CallOnce():
                return self._call(order)
            case Clear():
                self._clear()
            case Bench():
                self._bench(order.calls, order.slots)
            case TakeProfile():
                module, inputs = self._module, self._slots[order.slot]
                look = lambda: module(*inputs)  # type: ignore[operator]  # noqa: E731
                return Profiled(profile=profile.take(look, self.device))
            case CheckRelease():
                return self._check_release(order.name)
            case Canary():
                canary.sing(self.device)
            case _:
                return self._hand_over(order, carried)
        return Done()

    def _hand_over(self, order: ToRunner, carried: list[int]) -> FromRunner:
        match order:
            case Collect():
                tensors.write(self._outputs, carried[0], order.limit)
                return Collected(outputs=tuple(map(tensors.layout_of, self._outputs)))
            case Where():
                slots = [self._slots[slot] for slot in range(order.slots)]
                return Places(places=whereabouts.of_inputs(slots))
            case Present():
                self._outputs, answer = whereabouts.of_outputs(self._outputs)
                return answer
            case Write():
                self._write(order, carried[0])
        return Done()

    def _import(self, order: Import) -> None:
        name = "candidate" if order.class_name == "ModelNew" else "task"
        if name == "candidate":
            takeover.take(order.source)
        beside.lay_out(order.modules)
        module = import_file(order.source, name)
        found = getattr(module, order.class_name, None)
        if not callable(found):
            raise NoClass(f"the file defines no class {order.class_name}")
        self._class = found

    def _check_release(self, name: str) -> ReleaseChecked:
        # Here alone: torch's compilers take seconds to import.
        from actors.evaluator.children import all_release_checks

        return all_release_checks.outcome(sys.modules["candidate"], self.device, name)

    def _load(self, order: Load, regions: list[int]) -> Loaded:
        wanted, first = (tensors.read(order.state, each, self.device) for each in regions)
        return places.load(self._module, wanted, first)  # type: ignore[arg-type]  # both dicts

    def _feed_all(self, order: FeedAll, region: int) -> None:
        if self.device == "cuda":
            devmem.reset_l2()
        self._feed(dict(enumerate(order.inputs)), region)

    def _feed(self, layouts: dict[int, Layout], region: int) -> None:
        """Put values that lie in `region` one after the other into their slots."""
        if all(self._layouts.get(slot) == layout for slot, layout in layouts.items()):
            # New contents in the same storage: what was computed from the old is now wrong.
            tensors.fill([self._slots[slot] for slot in layouts], list(layouts.values()), region)
        else:
            place = 0
            with tensors.opened(region, sum(map(total_bytes, layouts.values()))) as window:
                for slot, layout in layouts.items():
                    self._lay_out(slot, layout, window[place:])
                    place += total_bytes(layout)
        self._synchronize()  # the copies must not run into what is timed next

    def _lay_out(self, slot: int, layout: Layout, window: torch.Tensor) -> None:
        fresh = tensors.value_of(layout, window, self.device)
        self._slots[slot] = tuple(fresh)  # type: ignore[arg-type]  # always a list
        self._layouts[slot] = layout

    def _call(self, order: CallOnce) -> Called:
        seed_all(order.seed)
        guards = Guards(self.device, order.guard) if order.guard else None
        with torch.no_grad():
            output = self._module(*self._slots[order.slot])  # type: ignore[operator]
        self._synchronize()
        # The one before is looked at once more, to see that this call left it alone.
        self._kept = {
            order.keep: output,
            **{k: v for k, v in self._kept.items() if k == order.keep - 1},
        }
        return Called(output=tensors.layout_of(output), breach=guards.breach() if guards else "")

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

    def _write(self, order: Write, region: int) -> None:
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
    """Answer the judge until it says `Leave` or is gone."""
    malloc.keep()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # the judge is let into our memory
    faulthandler.enable()  # the stack of a segfault is worth a lot to who must repair it
    channel: Channel[ToRunner] = Channel(
        socket.socket(fileno=descriptor), ToRunner, descriptors=True
    )
    runner = Runner(device)
    while True:
        try:
            order, carried = channel.receive(AWAKE_S if device == "cuda" else 0.0)
        except Closed:
            os._exit(0)
        try:
            answer = runner.answer(order, carried)
        except BaseException as error:  # noqa: BLE001  # the candidate's, SystemExit too: data
            answer = raised(error)
        finally:
            close_all(carried)
        channel.send(answer)
        if isinstance(order, Leave):
            return


__all__ = ["Runner", "import_file", "seed_all", "serve"]
