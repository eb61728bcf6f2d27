"""What the judge says to the referee, whom it trusts, and what that one answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.orders import Done, Exit, InputKind, Order, Ping
from protocol.settings import Precision
from protocol.values import Device

# --- judge <-> referee ------------------------------------------------------------------------


class DescribeDevice(Order, frozen=True, kw_only=True):
    """Say what device this is."""


class DeviceDescribed(Order, frozen=True, kw_only=True):
    device: Device
    uuid: str = ""  # as the driver names the card


class ImportTask(Order, frozen=True, kw_only=True):
    """Import the task."""

    source: str
    # Beside it on the path: path -> source.
    modules: dict[str, str] = msgspec.field(default_factory=dict)


class MakeModel(Order, frozen=True, kw_only=True):
    """Make the task's init inputs and construct its module."""

    seed: int


class PrepareTask(Order, frozen=True, kw_only=True):
    """Draw inputs and see what can be judged of the module that was made."""

    seed: int
    use_device_memory: bool = False  # hand bytes over in device memory
    precision: Precision = "task"  # the lowest that is accepted


class TaskPrepared(Order, frozen=True, kw_only=True):
    """The task works.  Descriptors: init inputs, state, state as it was constructed."""

    init: Layout
    state: Layout
    inputs: Layout
    outputs: Layout
    is_deterministic: bool  # the same inputs give the same outputs, unseeded
    aliases: bool = False  # an output lies in an input's memory, which the next inputs overwrite
    has_double: bool  # a float64 reference could be made
    input_bytes: int = 0  # bytes of the card's memory for the inputs and outputs of one block
    notes: tuple[str, ...] = ()


class TryInputKind(Order, frozen=True, kw_only=True):
    """Say whether the task bears inputs of another kind than its own."""

    kind: InputKind
    seed: int


class InputKindResult(Order, frozen=True, kw_only=True):
    accepted: bool


class RestoreParameters(Order, frozen=True, kw_only=True):
    """Give these parameters the values they were constructed with, all others the shaken ones."""

    names: tuple[str, ...] = ()


class FreshBuffers(Order, frozen=True, kw_only=True):
    """Hand over init inputs, state and first state again, in memory that nobody has held."""


class LendMemory(Order, frozen=True, kw_only=True):
    """Make memory that a result can be written to.  Answered with its descriptor."""

    size: int


class DrawInputs(Order, frozen=True, kw_only=True):
    """Draw fresh inputs."""

    seed: int
    kind: InputKind = "plain"


class InputsDrawn(Order, frozen=True, kw_only=True):
    """Fresh inputs, known as `draw`.  Descriptor: their bytes."""

    draw: int
    inputs: Layout


class DrawBatch(Order, frozen=True, kw_only=True):
    """Draw fresh inputs many times."""

    seed: int
    count: int
    strided: bool = False  # bytes are to lie as strides say, not in logical order


class BatchDrawn(Order, frozen=True, kw_only=True):
    """Fresh inputs, known as `first`, `first` + 1, …  Descriptors: their bytes, by side."""

    first: int
    inputs: tuple[Layout, ...]


class ComputeExpected(Order, frozen=True, kw_only=True):
    """Compute the reference's outputs of a draw."""

    draw: int
    seed: int


class ExpectedLayout(Order, frozen=True, kw_only=True):
    outputs: Layout


class StashOutputs(Order, frozen=True, kw_only=True):
    """Copy parts of the descriptor's bytes at once, to be compared later."""

    parts: tuple[tuple[int, int], ...]  # where each begins and ends
    strided: tuple[Layout, ...] = ()  # of parts whose bytes lie as their strides say
    size: int  # of the whole
    keep: bool = True  # else copied for nothing: caches are to be alike for what comes next


class CompareBytes(Order, frozen=True, kw_only=True):
    """Compare the descriptor's bytes with a draw's expected outputs, or its inputs."""

    draw: int
    what: Literal["output", "inputs"]
    stashed: int | None = None  # the part taken before, instead of the descriptor's bytes
    share: bool = False  # say how much of KernelBench's tolerance it takes, too


class Compared(Order, frozen=True, kw_only=True):
    reason: str = ""  # "" when they agree
    max_error: float | None = None  # in units of the tolerance
    share: float | None = None  # the same error in units of KernelBench's tolerance


class ForgetDraws(Order, frozen=True, kw_only=True):
    draw: int
    count: int = 1


class TaskUnsuitable(Order, frozen=True, kw_only=True):
    """The task can't be judged, and why."""

    reason: str


ToReferee = (
    Ping
    | DescribeDevice
    | ImportTask
    | MakeModel
    | PrepareTask
    | TryInputKind
    | RestoreParameters
    | FreshBuffers
    | LendMemory
    | DrawInputs
    | DrawBatch
    | ComputeExpected
    | StashOutputs
    | CompareBytes
    | ForgetDraws
    | Exit
)
FromReferee = (
    DeviceDescribed
    | TaskPrepared
    | InputKindResult
    | InputsDrawn
    | BatchDrawn
    | ExpectedLayout
    | Compared
    | Done
    | TaskUnsuitable
)
