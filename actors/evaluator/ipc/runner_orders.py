"""What the judge says to a runner, and what one answers: never to be believed."""

from __future__ import annotations

from typing import Literal

from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.orders import CandidateRaised, Done, Exit, ImportSource, Order, Ping
from actors.evaluator.ipc.profile import KernelProfile

# --- judge -> runner --------------------------------------------------------------------------


class ConstructModule(Order, frozen=True, kw_only=True):
    """Seed and construct the module.  Descriptor: the init inputs."""

    seed: int
    init: Layout


class LoadParameters(Order, frozen=True, kw_only=True):
    """Copy parameters and buffers in.  Descriptors: their bytes; those they were constructed with.

    By name; what has another name is found by its shape and the value it was constructed with.
    """

    state: Layout


class CompileModule(Order, frozen=True, kw_only=True):
    """Wrap the module in torch.compile (the reference's baselines only)."""

    mode: str


class SetInputs(Order, frozen=True, kw_only=True):
    """Put inputs in a slot; in place when the slot holds the same layout.  Descriptor: bytes."""

    slot: int
    inputs: Layout


class SetInputBatch(Order, frozen=True, kw_only=True):
    """Put many inputs into slots 0, 1, … in place where layouts agree.  Descriptor: bytes."""

    inputs: tuple[Layout, ...]


class CallOnce(Order, frozen=True, kw_only=True):
    """Seed and call the module on a slot; keep the output under `keep`."""

    slot: int
    seed: int
    keep: int
    guard: tuple[int, ...] = ()  # bytes of the outputs that are expected, to be watched


class ReleaseTensors(Order, frozen=True, kw_only=True):
    """Let go of inputs and outputs, and of the card's memory that is kept for more of them."""


class CallRepeatedly(Order, frozen=True, kw_only=True):
    """Call the module `calls` times over slots 0 … `slots`-1 in turn; keep each slot's output."""

    calls: int
    slots: int


class CollectOutputs(Order, frozen=True, kw_only=True):
    """Write the outputs of all benchmarked calls, slot after slot, and say what they look like.

    Descriptor: memory for them.
    """

    limit: int  # bytes that the descriptor's memory has


class LocateInputs(Order, frozen=True, kw_only=True):
    """Say where the inputs of slots 0 … `slots`-1 lie (on the host only)."""

    slots: int


class LocateOutputs(Order, frozen=True, kw_only=True):
    """Say where the outputs of all benchmarked calls lie, and what they look like."""


class TakeProfile(Order, frozen=True, kw_only=True):
    """Call the module on a slot under the profiler; asked once nothing is timed any more."""

    slot: int


class CheckRelease(Order, frozen=True, kw_only=True):
    """Run one release check of the drop-in file that was imported."""

    name: str


class CheckDevice(Order, frozen=True, kw_only=True):
    """Compute something known on the device; only asked of a process without a candidate."""


class WriteTensors(Order, frozen=True, kw_only=True):
    """Write a kept output, or a slot's inputs, to the descriptor."""

    what: Literal["output", "inputs"]
    number: int = 0
    limit: int = 0  # bytes that the descriptor's memory has


ToRunner = (
    Ping
    | ImportSource
    | ConstructModule
    | LoadParameters
    | CompileModule
    | SetInputs
    | SetInputBatch
    | CallOnce
    | ReleaseTensors
    | CallRepeatedly
    | CollectOutputs
    | LocateInputs
    | LocateOutputs
    | TakeProfile
    | CheckRelease
    | CheckDevice
    | WriteTensors
    | Exit
)

# --- runner -> judge --------------------------------------------------------------------------


class ParametersLoaded(Order, frozen=True, kw_only=True):
    """Names that the candidate has nothing for, and whose shapes differ."""

    missing: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()


class CallReturned(Order, frozen=True, kw_only=True):
    """The module returned something of this layout."""

    output: Layout
    redzone_breach: str = ""  # what it wrote outside of its outputs


class OutputsCollected(Order, frozen=True, kw_only=True):
    """All outputs are written; what each looks like."""

    outputs: tuple[Layout, ...]


class InputAddresses(Order, frozen=True, kw_only=True):
    """Where tensors begin, in the runner's own memory: a machine word each, leaf after leaf."""

    places: bytes


class OutputAddresses(Order, frozen=True, kw_only=True):
    """Where outputs lie: dense, in the order of their layouts' strides."""

    layouts: tuple[Layout, ...]  # the different ones
    kinds: bytes  # which of them each output has: two bytes each
    places: bytes  # where tensors begin: a machine word each, leaf after leaf, output after output


class CallProfiled(Order, frozen=True, kw_only=True):
    """What the profiler saw, as the candidate's process says."""

    profile: KernelProfile


class ReleaseChecked(Order, frozen=True, kw_only=True):
    """How a release check ended, as the candidate's process says."""

    passed: bool
    skipped: bool = False  # it can't be tried here
    reason: str = ""


FromRunner = (
    Done
    | ReleaseChecked
    | ParametersLoaded
    | CallReturned
    | OutputsCollected
    | InputAddresses
    | OutputAddresses
    | CallProfiled
    | CandidateRaised
)
