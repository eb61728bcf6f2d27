"""The time of calls on a card: that of the kernels which they launch, without gaps between them.

The host is often slower than the card.  The time between two events then says how long Python
takes, in the model with all its hooks, and nothing about the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from actors.adopt.model.call_layouts import CallKind, call_kind

CALL = "stark call"
ALONE_ROUNDS = 10
WARM_UPS = 3


def calls_device_us(
    model: torch.nn.Module, sites: Iterable[str], kind: CallKind, run: Callable[[], None]
) -> float:
    """Return the kernels' time in a call of this kind while `run` runs, mean; inf without one."""
    with _ranges(model, sites, kind), _profiled() as profiler:
        run()
        torch.cuda.synchronize()
    return _mean_us(profiler)


def alone_device_us(calls: Sequence[Callable[[], object]]) -> float:
    """Return the kernels' time of a call, taking turns: each of `calls` has other weights."""
    for _ in range(WARM_UPS):
        for call in calls:
            call()
    with _profiled() as profiler:
        for _ in range(ALONE_ROUNDS):
            for call in calls:
                with record_function(CALL):
                    call()
        torch.cuda.synchronize()
    return _mean_us(profiler)


def kernels_us(call: Callable[[], object]) -> float:
    """Return the time of all kernels of a call, also where no operation of torch launches them.

    The profiler knows the range of an operation's kernels only; here nothing else runs.
    """
    for _ in range(WARM_UPS):
        call()
    with _profiled() as profiler:
        for _ in range(ALONE_ROUNDS):
            call()
        torch.cuda.synchronize()
    events = (each for each in profiler.events() or () if each.device_type == DeviceType.CUDA)
    return sum(float(each.time_range.elapsed_us()) for each in events) / ALONE_ROUNDS


def _profiled() -> Any:
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)


@contextmanager
def _ranges(model: torch.nn.Module, sites: Iterable[str], kind: CallKind) -> Iterator[None]:
    """Put a named range around the calls of one kind while the context is open."""
    open_ranges: list[Any] = []

    def enter(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named_range: Any = None
        if call_kind(module, args, kwargs) == kind:
            named_range = record_function(CALL)
            named_range.__enter__()
        open_ranges.append(named_range)

    def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
        named_range = open_ranges.pop()
        if named_range is not None:
            named_range.__exit__(None, None, None)

    handles = []
    try:
        for path in sites:
            module = model.get_submodule(path)
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _mean_us(profiler: Any) -> float:
    """Return the kernels' time inside of the named ranges, by range."""
    spent, calls = 0.0, 0
    for event in profiler.events() or ():
        if event.device_type != DeviceType.CPU:
            continue
        calls += event.name == CALL
        if event.kernels and _is_inside(event):
            spent += sum(kernel.duration for kernel in event.kernels)
    return spent / calls if calls and spent else float("inf")


def _is_inside(event: Any) -> bool:
    while event is not None:
        if event.name == CALL:
            return True
        event = event.cpu_parent
    return False
