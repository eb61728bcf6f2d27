"""Device time by module: every operation belongs to the innermost module that is being called.

torch.profiler records the operations, and hooks put a named range around each module's forward.
On a card an operation's time is that of the kernels which it launched.  On a CPU it is the time in
the operation itself, without the Python between operations.  A backward operation belongs to the
module whose forward operation it differentiates.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from actors.adopt.model.thread_stack import ThreadStack

SCOPE = "stark module "  # begins the name of a module's range; the rest is the module's path
STEP = "stark step"
UPDATE = "\0update"  # the place of what a training step does besides its modules and its loss
UPDATE_RANGES = ("Optimizer.step#", "Optimizer.zero_grad#")  # torch's own names
UPDATE_OPERATION = "AccumulateGrad"
# Operations whose time is spent in a library: products, convolutions, attention, recurrences.
LIBRARY_NAMES = frozenset(
    [
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "linear", "addmv", "mv", "dot"),
        *("einsum", "lstm", "gru", "rnn_tanh", "rnn_relu", "grouped_mm", "scaled_mm"),
    ]
)
LIBRARY_BEGINNINGS = (
    *("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose", "cudnn", "mkldnn", "miopen"),
    *("scaled_dot_product", "flash_attention", "efficient_attention", "cublas"),
    *("native_multi_head_attention", "thnn_conv", "slow_conv", "fft"),
)
FORWARD_SCOPE, BACKWARD_SCOPE = 0, 1  # torch's RecordScope
NO_BACKWARD = -1  # torch's number of the running backward pass


@dataclass
class ModuleTime:
    """The device time of one module over all profiled steps, without its submodules."""

    own_us: float = 0.0
    library_us: float = 0.0  # part of it: inside library operations
    operations: int = 0
    calls: int = 0


@dataclass
class DeviceProfile:
    """Where the device time of some steps went."""

    modules: dict[str, ModuleTime] = field(default_factory=dict)  # by path; "" is the whole model
    outside_us: float = 0.0  # in operations that no module's forward called
    outside: Counter[str] = field(default_factory=Counter)  # the same by operation
    update_us: float = 0.0  # in the optimizer and in adding up gradients
    wall_us: float = 0.0  # of the profiled steps
    device: str = "cpu"

    @property
    def total_us(self) -> float:
        """All device time."""
        inside = sum(each.own_us for each in self.modules.values())
        return self.outside_us + self.update_us + inside


@contextmanager
def module_ranges(model: torch.nn.Module) -> Iterator[set[int]]:
    """Put a named range around each module's forward while the context is open.

    Yields the threads in which modules are called, besides autograd's own.
    """
    ranges: ThreadStack[tuple[torch.nn.Module, Any]] = ThreadStack()
    threads: set[int] = set()
    handles = []

    def enter(path: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: Any) -> None:
            named_range: Any = record_function(SCOPE + path)
            named_range.__enter__()
            ranges.items.append((module, named_range))
            if torch._C._current_graph_task_id() == NO_BACKWARD:
                threads.add(threading.get_ident())

        return hook

    def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
        while ranges.items:  # ranges above it belong to modules that raised
            owner, named_range = ranges.items.pop()
            named_range.__exit__(None, None, None)
            if owner is module:
                return

    try:
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # it takes no hooks; its time is that of the module around it
            handles.append(module.register_forward_pre_hook(enter(path), prepend=True))
            handles.append(module.register_forward_hook(leave))
        yield threads
    finally:
        for handle in handles:
            handle.remove()


def profile_steps(
    model: torch.nn.Module, steps: Callable[[], None], device: torch.device
) -> DeviceProfile:
    """Run `steps` under the profiler and attribute the device time.

    The profiler sees its own thread and autograd's.  For a model that calls modules in others, the
    steps run again and all threads of the process count.
    """
    with module_ranges(model) as threads:
        events = _profiled(steps, device, None)
    if threads <= {threading.get_ident()}:
        return attribute(events, device.type)
    with module_ranges(model):
        events = _profiled(steps, device, _ExperimentalConfig(profile_all_threads=True))
    return attribute(events, device.type)


def _profiled(
    steps: Callable[[], None], device: torch.device, config: _ExperimentalConfig | None
) -> list[Any]:
    """Run `steps` under the profiler; return its events."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True, experimental_config=config) as profiler:
        with record_function(STEP):
            steps()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return list(profiler.events() or ())


def attribute(events: list[Any], device: str) -> DeviceProfile:
    """Return the device time by module, from the profiler's events."""
    result = DeviceProfile(device=device)
    places = _EventScopes(events)
    for event in events:
        if event.device_type != DeviceType.CPU:
            continue
        if event.name == STEP:
            result.wall_us = event.time_range.elapsed_us()
            continue
        if event.name.startswith(SCOPE):
            path = event.name.removeprefix(SCOPE)
            result.modules.setdefault(path, ModuleTime()).calls += 1
            continue
        spent = _device_us(event, device)
        place = places.of(event)
        if not spent:
            continue
        if place.path == UPDATE:
            result.update_us += spent
            continue
        if place.path is None:
            result.outside_us += spent
            result.outside[event.name] += int(spent)
            continue
        module = result.modules.setdefault(place.path, ModuleTime())
        module.own_us += spent
        module.library_us += spent if place.is_library else 0.0
        module.operations += place.is_outermost
    return result


@dataclass(frozen=True)
class _EventScope:
    """Where an event is."""

    path: str | None = None  # of the innermost module; None: in no module
    is_library: bool = False  # it or an operation around it is a library's
    is_operation: bool = False
    is_outermost: bool = False  # no operation is around it


class _EventScopes:
    """The place of each event."""

    def __init__(self, events: list[Any]) -> None:
        self._known: dict[int, _EventScope] = {}
        self._forward: dict[int, str] = {}  # sequence number -> module of the forward operation
        for event in events:
            if event.scope == FORWARD_SCOPE and event.sequence_nr >= 0:
                path = self.of(event).path
                if path is not None:
                    self._forward[event.sequence_nr] = path  # the last one took the number
        self._known.clear()  # those of backward operations were not known yet

    def of(self, event: Any) -> _EventScope:
        """Return the place of an event."""
        chain = []
        while event is not None and id(event) not in self._known:
            chain.append(event)
            event = event.cpu_parent
        place = _EventScope() if event is None else self._known[id(event)]
        for each in reversed(chain):
            place = self._known[id(each)] = self._inside(place, each)
        return place

    def _inside(self, around: _EventScope, event: Any) -> _EventScope:
        """Return the place of an event directly inside of the one at `around`."""
        if event.name == STEP:
            return _EventScope()
        if event.name.startswith(SCOPE):
            return _EventScope(path=event.name.removeprefix(SCOPE))
        path = around.path
        if event.name.startswith(UPDATE_RANGES) or UPDATE_OPERATION in event.name:
            path = UPDATE
        if path is None and event.scope == BACKWARD_SCOPE:
            path = self._forward.get(event.sequence_nr)
        return _EventScope(
            path=path,
            is_library=is_library_operation(event.name) or around.is_library,
            is_operation=True,
            is_outermost=not around.is_operation,
        )


def is_library_operation(name: str) -> bool:
    """Whether an operation's time is a library's, such as "aten::addmm"."""
    bare = name.rpartition("::")[2].lstrip("_")
    return bare in LIBRARY_NAMES or bare.startswith(LIBRARY_BEGINNINGS)


def _device_us(event: Any, device: str) -> float:
    if device == "cuda":
        return float(sum(kernel.duration for kernel in event.kernels))
    return float(event.self_cpu_time_total)
