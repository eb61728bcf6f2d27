"""The calls of modules: how many, of which layouts, and how long they take; without a profiler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from actors.adopt.model.call_layouts import CallKind, call_kind, tensors_of
from actors.adopt.model.host_clocks import working_seconds
from actors.adopt.model.thread_stack import ThreadStack

MOST_SAMPLES = 256  # of one kind of call that are kept
MOST_KINDS = 64  # of one module that are told apart; later ones are counted together


class KindOfCalls(msgspec.Struct, kw_only=True):
    """The calls of some modules that have one layout."""

    kind: CallKind
    calls: int = 0
    call_bytes: int = 0  # of the tensors that a call is given and returns
    samples: list[float] = msgspec.field(default_factory=list)  # µs a call, the first ones

    @property
    def call_us(self) -> float:
        """The lower quartile of the times: a call that was interrupted does not count."""
        return sorted(self.samples)[len(self.samples) // 4]

    @property
    def us(self) -> float:
        """The time in all calls."""
        return self.call_us * self.calls


class ModuleCalls(msgspec.Struct, kw_only=True):
    """The calls of some modules over some steps."""

    kinds: list[KindOfCalls] = msgspec.field(default_factory=list)
    other_calls: int = 0  # of layouts beyond MOST_KINDS
    other_us: float = 0.0

    @property
    def us(self) -> float:
        """The time in all calls."""
        return self.other_us + sum(each.us for each in self.kinds)

    @property
    def calls(self) -> int:
        """The number of all calls."""
        return self.other_calls + sum(each.calls for each in self.kinds)

    def add(self, kind: CallKind, us: float, call_bytes: int) -> None:
        """Count one call."""
        for each in self.kinds:
            if each.kind == kind:
                each.calls += 1
                each.call_bytes = max(each.call_bytes, call_bytes)
                if len(each.samples) < MOST_SAMPLES:
                    each.samples.append(us)
                return
        if len(self.kinds) < MOST_KINDS:
            self.kinds.append(KindOfCalls(kind=kind, calls=1, call_bytes=call_bytes, samples=[us]))
        else:
            self.other_calls += 1
            self.other_us += us


@contextmanager
def recorded_calls(
    model: torch.nn.Module, groups: Mapping[str, Iterable[str]], device: torch.device
) -> Iterator[dict[str, ModuleCalls]]:
    """Record the calls of the groups' modules while the context is open.

    The time of a call is what its thread works between two hooks, on a card the time between two
    events.
    """
    recorders = {name: _Recorder(device) for name in groups}
    result = {name: recorder.calls for name, recorder in recorders.items()}
    handles = []
    try:
        for name, paths in groups.items():
            for path in paths:
                handles += recorders[name].attach(model.get_submodule(path))
        yield result
    finally:
        for handle in handles:
            handle.remove()
        for recorder in recorders.values():
            recorder.settle()


def calls_ms(
    model: torch.nn.Module,
    groups: Mapping[str, Iterable[str]],
    device: torch.device,
    run: Callable[[], object],
) -> dict[str, float]:
    """Return the time of each group's calls while `run` runs."""
    with recorded_calls(model, groups, device) as calls:
        run()
    return {name: found.us / 1e3 for name, found in calls.items()}


class _Recorder:
    """The hooks of one group."""

    def __init__(self, device: torch.device) -> None:
        self.calls = ModuleCalls()
        self._on_card = device.type == "cuda"
        self._open: ThreadStack[tuple[CallKind, int, Any]] = ThreadStack()  # kind, bytes, begun
        self._adding = threading.Lock()
        # Card events, read at the end: kind, bytes, begun, ended.
        self._pending: list[tuple[CallKind, int, Any, Any]] = []

    def attach(self, module: torch.nn.Module) -> list[Any]:
        """Hook one module."""
        first = module.register_forward_pre_hook(self._begin, with_kwargs=True)
        return [first, module.register_forward_hook(self._end)]

    def _begin(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        kind, given = call_kind(module, args, kwargs), _bytes((args, kwargs))
        self._open.items.append((kind, given, self._moment()))

    def _end(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        ended = self._moment()
        kind, given, begun = self._open.items.pop()
        size = given + _bytes(output)
        if self._on_card:
            self._pending.append((kind, size, begun, ended))
        else:
            with self._adding:
                self.calls.add(kind, (ended - begun) * 1e6, size)

    def _moment(self) -> Any:
        if not self._on_card:
            return working_seconds()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def settle(self) -> None:
        """Read the card's events."""
        if self._pending:
            torch.cuda.synchronize()
        for kind, size, begun, ended in self._pending:
            self.calls.add(kind, begun.elapsed_time(ended) * 1e3, size)
        self._pending.clear()


def _bytes(value: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors_of(value))


def median_step_ms(
    run: Callable[[], object], device: torch.device, seconds: float, least: int = 3
) -> float:
    """Return the median time of `run`, which is called until `seconds` have passed.

    At least so many times, but for calls that are longer than `seconds`: once.
    """
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 1000:
        is_long = bool(times) and times[0] > seconds * 1e3
        if time.perf_counter() >= until and (len(times) >= least or is_long):
            break
        begun = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - begun) * 1e3)
    return sorted(times)[len(times) // 2]
