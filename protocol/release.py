"""The result of a release check: what a winner was judged on, and the checks that it passed."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from protocol.frozen_struct import Value
from protocol.layouts import Layout

DeviceKind = Literal["cpu", "cuda"]
# Uses in which a candidate's kernels may turn out wrong: the drop-in then runs the plain forward.
Limit = Literal["other mode", "second instance", "threads", "compile", "side stream", "CUDA graph"]
LIMITS: tuple[Limit, ...] = get_args(Limit)


class Judged(Value, frozen=True, kw_only=True):
    """The device and layouts that a candidate was judged on: kernels run for exactly these."""

    device: DeviceKind
    init: Layout  # the constructor's arguments
    inputs: Layout
    outputs: Layout
    state: Layout  # parameters and buffers, a dict by name
    # Judged with its backward pass: the inputs' tensors that got gradients; None: without it.
    gradients: tuple[int, ...] | None = None
    # Tensors in plain attributes that each call changes, a dict by name: as a call leaves them.
    carried: Layout | None = None
    dtype: str = ""  # that the module was made (`.to(dtype)`); "": as it is constructed


class Release(Value, frozen=True, kw_only=True):
    """A winner's release check."""

    judged: Judged
    limits: tuple[Limit, ...] = ()  # uses with wrong kernels: there the plain forward runs
    passed: tuple[str, ...] = ()
    failed: dict[str, str] = msgspec.field(default_factory=dict)  # check -> what happened
    skipped: dict[str, str] = msgspec.field(default_factory=dict)  # check -> why it was not run
    more_judged: tuple[Judged, ...] = ()  # the other cases of a task with cases
