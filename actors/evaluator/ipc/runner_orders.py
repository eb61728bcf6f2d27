"""Messages between the judge and a runner; a runner's answers are never trusted."""

from __future__ import annotations

from typing import Literal

from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.orders import (
    CallForm,
    CandidateRaised,
    Done,
    Exit,
    ImportSource,
    Order,
    Ping,
)
from actors.evaluator.ipc.profile import KernelProfile
from protocol.cases import TaskCase

# --- judge -> runner --------------------------------------------------------------------------


class ConstructModule(Order, frozen=True, kw_only=True):
    """Seed and construct the module.  Descriptor: the init inputs."""

    seed: int
    init: Layout
    form: CallForm = CallForm()
    fills_on_card: bool = False  # large fills with random numbers are drawn there


class LoadParameters(Order, frozen=True, kw_only=True):
    """Copy parameters and buffers in.  Descriptors: their bytes; those they were constructed with.

    They are found by name, or else by their shape and the values they were constructed with.
    """

    state: Layout


class CompileModule(Order, frozen=True, kw_only=True):
    """Wrap the module in torch.compile (the reference's baselines only)."""

    mode: str


class SetInputs(Order, frozen=True, kw_only=True):
    """Put inputs into a slot; in place if the slot has the same layout.  Descriptor: bytes."""

    slot: int
    inputs: Layout


class MapSlots(Order, frozen=True, kw_only=True):
    """Use slots 0 … `count`-1 in shared memory as inputs from now on.  Descriptor: that memory.

    Memory of the host that a card can't use is copied into slots on the card by `CopySlots`.
    """

    inputs: Layout  # of each slot
    count: int
    program: bytes = b""  # the kernel that decides inputs where outputs decide them


class CopySlots(Order, frozen=True, kw_only=True):
    """Copy slots 0 … `count`-1 to the card, where it can't use the memory that they are in."""

    count: int


class UseArena(Order, frozen=True, kw_only=True):
    """Allocate what timed calls need in this device memory.  Descriptor: that memory."""

    size: int
    calls: int  # of a block: memory for their outputs is taken at once


class UsePool(Order, frozen=True, kw_only=True):
    """Allocate what timed calls need in a pool of this side's own, as the other does in an arena.

    It ends with `ReleaseTensors`.
    """


class CallOnce(Order, frozen=True, kw_only=True):
    """Seed and call the module on a slot; keep the output under `keep`."""

    slot: int
    seed: int
    keep: int
    keeps_first: bool = False  # number 0 stays as well, and not the one before alone
    guard: tuple[int, ...] = ()  # sizes of the expected outputs, which get red zones
    # Whether the answer comes once the device has done it all; else `AwaitCall` follows.
    waits: bool = True


class AwaitCall(Order, frozen=True, kw_only=True):
    """Wait until the device has done the last call; answer with what it returned."""


class ReleaseTensors(Order, frozen=True, kw_only=True):
    """Free inputs and outputs, and the GPU memory that the allocator keeps for more."""


class CallRepeatedly(Order, frozen=True, kw_only=True):
    """Call the module `calls` times over slots 0 … `slots`-1 in turn; keep each slot's output.

    `is_empty`: call nothing and keep outputs of earlier calls instead.  That takes what a block
    takes besides its calls.  `seed`: where the random numbers of all these calls begin.
    """

    calls: int
    slots: int
    is_empty: bool = False
    seed: int | None = None


class CallDependent(CallRepeatedly, frozen=True, kw_only=True):
    """Call the module on slots 0 … `calls`-1, whose contents outputs of calls before decide.

    There are twice as many slots (`children/dependent_inputs.py`).  `is_empty`: call nothing, and
    let outputs of earlier calls decide: what a block takes besides its calls.  `seed`: of the
    first call; each has a seed of its own.
    """

    is_whole: bool = False  # a slot has the contents of one of two slots, not parts of both


class AwaitCard(Order, frozen=True, kw_only=True):
    """Have the card work for so long, and wait for its end as for that of a block.

    The answer says how long the last wait took, with nothing left on the card.
    """

    seconds: float


class CollectOutputs(Order, frozen=True, kw_only=True):
    """Write the outputs of all calls of a block, slot after slot; answer with their layouts.

    Descriptor: memory for them.
    """

    limit: int  # bytes of the descriptor's memory


class LocateOutputs(Order, frozen=True, kw_only=True):
    """Answer with the addresses and layouts of the outputs of all calls of a block."""


class TakeProfile(Order, frozen=True, kw_only=True):
    """Call the module on a slot under the profiler; sent after all timing."""

    slot: int
    calls: int = 3


class CheckRelease(Order, frozen=True, kw_only=True):
    """Run one release check of the drop-in file that was imported."""

    name: str
    case: TaskCase | None = None  # the layout that it is made in; None: the file's own
    fills_on_card: bool = False  # as where the module is constructed to be judged


class CheckDevice(Order, frozen=True, kw_only=True):
    """Run a kernel with a known answer; only sent to a process without a candidate."""


class WriteTensors(Order, frozen=True, kw_only=True):
    """Write a kept output, or a slot's inputs, to the descriptor."""

    what: Literal["output", "inputs"]
    number: int = 0
    limit: int = 0  # bytes of the descriptor's memory


class SetState(Order, frozen=True, kw_only=True):
    """Give the module these parameters and buffers.  Descriptor: their bytes."""

    state: Layout  # a dictionary


class WriteState(Order, frozen=True, kw_only=True):
    """Write parameters and buffers, by name, to the descriptor; leave out those it has not."""

    names: tuple[str, ...]
    limit: int  # bytes of the descriptor's memory


ToRunner = (
    Ping
    | ImportSource
    | ConstructModule
    | LoadParameters
    | CompileModule
    | SetInputs
    | MapSlots
    | CopySlots
    | UseArena
    | UsePool
    | CallOnce
    | AwaitCall
    | ReleaseTensors
    | CallRepeatedly
    | CallDependent
    | AwaitCard
    | CollectOutputs
    | LocateOutputs
    | TakeProfile
    | CheckRelease
    | CheckDevice
    | WriteTensors
    | SetState
    | WriteState
    | Exit
)

# --- runner -> judge --------------------------------------------------------------------------


class ParametersLoaded(Order, frozen=True, kw_only=True):
    """Parameters that the candidate lacks, and those whose shapes differ."""

    missing: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()


class StateWritten(Order, frozen=True, kw_only=True):
    """The state is written; the layout of a dictionary."""

    state: Layout


class CallReturned(Order, frozen=True, kw_only=True):
    """The module returned something of this layout."""

    output: Layout
    redzone_breach: str = ""  # where it wrote outside its outputs


class CallsReturned(Order, frozen=True, kw_only=True):
    """All calls of a block are done, as the side says."""

    # Seconds of a call once the calls go on, by the side's own clock; only the reference's is
    # believed.  0: unknown.
    call_s: float = 0.0
    # Seconds that the card took for the rest once the stream of the calls was done.  What a
    # candidate tells is used against it alone.
    left_s: float = 0.0


class SlotsMapped(Order, frozen=True, kw_only=True):
    """The slots are the inputs from now on."""

    begin: int  # their address in the runner; 0: they are the host's


class ArenaUsed(Order, frozen=True, kw_only=True):
    """Timed calls allocate in the arena from now on."""

    begin: int  # its address in the runner


class OutputsCollected(Order, frozen=True, kw_only=True):
    """All outputs are written; the layout of each."""

    outputs: tuple[Layout, ...]


class OutputAddresses(Order, frozen=True, kw_only=True):
    """Where outputs are: dense, in the order of their layouts' strides."""

    layouts: tuple[Layout, ...]  # the different ones
    kinds: bytes  # the number of each output's layout: two bytes each
    places: bytes  # where tensors begin: a machine word each, leaf after leaf, output after output


class CallProfiled(Order, frozen=True, kw_only=True):
    """The profile, as the candidate's process reports it."""

    profile: KernelProfile


class ReleaseChecked(Order, frozen=True, kw_only=True):
    """How a release check ended, as the candidate's process reports it."""

    passed: bool
    skipped: bool = False  # it can't be run on this machine
    reason: str = ""


FromRunner = (
    Done
    | ReleaseChecked
    | ParametersLoaded
    | StateWritten
    | CallReturned
    | CallsReturned
    | SlotsMapped
    | ArenaUsed
    | OutputsCollected
    | OutputAddresses
    | CallProfiled
    | CandidateRaised
)
