"""Messages between the judge and the referee, which is trusted."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from actors.evaluator.ipc.layout_checks import Layout, Leaf, Nest
from actors.evaluator.ipc.orders import CallForm, Done, Exit, InputKind, Order, Ping
from protocol.cases import TaskCase
from protocol.facts import DeviceRates, MatrixPrecision, OperationTime
from protocol.settings import Precision
from protocol.values import Device

MOST_EXCUSED = 8  # times the elements of an output that other last digits of a state change


class DescribeDevice(Order, frozen=True, kw_only=True):
    """Answer with the device of this process."""


class DeviceDescribed(Order, frozen=True, kw_only=True):
    device: Device
    uuid: str = ""  # the driver's name of the GPU


class ImportTask(Order, frozen=True, kw_only=True):
    """Import the task."""

    source: str
    # Importable files: path -> source.
    modules: dict[str, str] = msgspec.field(default_factory=dict)
    case: TaskCase | None = None  # the layout that it is judged on; None: its own
    backward: bool = False  # whether it is judged with its backward pass


class MakeModel(Order, frozen=True, kw_only=True):
    """Make the task's init inputs and construct its module."""

    seed: int


class PrepareTask(Order, frozen=True, kw_only=True):
    """Draw inputs and find out what can be judged of the module."""

    seed: int
    use_device_memory: bool = False  # pass bytes in device memory
    precision: Precision = "task"  # the lowest that is accepted


class TaskPrepared(Order, frozen=True, kw_only=True):
    """The task can be judged.  Descriptors: init inputs, state, state as constructed."""

    init: Layout
    state: Layout
    inputs: Layout
    outputs: Layout
    is_deterministic: bool  # the same inputs give the same outputs, unseeded
    follows_state: bool  # if not: so it is once the state that calls change is set back
    is_repeated: bool  # the same inputs and random numbers give the same outputs
    # A dictionary of what a call changes: parameters, buffers, attributes that decide outputs.
    updated: Nest
    carried: Nest | None = None  # likewise of the tensors in plain attributes; None: no such
    fixed_inputs: tuple[int, ...] = ()  # tensors that are equal in each draw of any kind
    keeps_inputs: bool = False  # an attribute of the module holds an input until the next call
    # For each output whether it is in an input's memory, which the next inputs overwrite.
    aliases: tuple[bool, ...] = ()
    has_double: bool  # a float64 reference could be made
    working_bytes: int = 0  # of a card, that a call allocates besides its outputs
    # Of a card, with what preparing the task took given back; on a host, bytes for one block.
    free_bytes: int
    notes: tuple[str, ...] = ()
    form: CallForm = CallForm()  # how the module is called
    fills_on_card: bool = False  # as it was constructed, and so each candidate is


class MeasureRates(Order, frozen=True, kw_only=True):
    """Measure the rates of this process's device."""


class RatesMeasured(Order, frozen=True, kw_only=True):
    rates: DeviceRates
    is_settled: bool = True  # whether they are good enough to store


class DescribeTask(Order, frozen=True, kw_only=True):
    """Count what one call of the task's module does, and find out what is allowed of it."""

    seed: int


class OutputTolerance(Order, frozen=True, kw_only=True):
    """How far one output may be from the right one."""

    dtype: str
    allowed: float = 0.0  # relative, on the scale of `children/correctness.py`; 0: equal exactly
    rms: float = 0.0  # of one draw
    eager_error: float | None = None  # eager's own on that draw and scale
    tf32_error: float | None = None  # likewise with products in TF32, where eager has float32
    error_factor: float = 0.0  # times eager's own error that are allowed in any case
    is_double: bool = False  # whether float64 is the truth


class TaskDescribed(Order, frozen=True, kw_only=True):
    """What one call of the task's module does; what could not be found out is left out."""

    tolerances: tuple[OutputTolerance, ...] = ()
    tf32_products: bool = False
    tf32_convolutions: bool = False
    flops: dict[MatrixPrecision, float] | None = None  # None: not counted
    uncounted: tuple[str, ...] = ()
    operations: tuple[OperationTime, ...] = ()
    more_operations: int = 0
    device_us: float | None = None
    launches: int | None = None


class TryInputKind(Order, frozen=True, kw_only=True):
    """Answer whether the task accepts inputs of another kind than its own."""

    kind: InputKind
    seed: int


class TryMixing(Order, frozen=True, kw_only=True):
    """Answer whether inputs of timed calls can be mixed from draws of the task."""

    seed: int


class InputKindResult(Order, frozen=True, kw_only=True):
    accepted: bool


class RestoreParameters(Order, frozen=True, kw_only=True):
    """Give these parameters their constructed values, all others the perturbed ones."""

    names: tuple[str, ...] = ()


class FreshBuffers(Order, frozen=True, kw_only=True):
    """Pass init inputs, state and constructed state again, in memory that no process has had."""


class ShareState(Order, frozen=True, kw_only=True):
    """Pass these tensors of the state, in memory that no process has had."""

    names: tuple[str, ...]
    seed: int | None = None  # until timing ends, blocks begin at other values of it


class LendMemory(Order, frozen=True, kw_only=True):
    """Allocate memory for a result.  The answer carries its descriptor."""

    size: int


class DrawInputs(Order, frozen=True, kw_only=True):
    """Draw fresh inputs."""

    seed: int
    kind: InputKind = "plain"


class InputsDrawn(Order, frozen=True, kw_only=True):
    """Fresh inputs, known as `draw`.  Descriptor: their bytes."""

    draw: int
    inputs: Layout


class PrepareSlots(Order, frozen=True, kw_only=True):
    """Allocate input slots that every side maps.  Earlier ones are given up."""

    count: int
    program: bytes = b""  # that an earlier referee compiled; empty: compile it


class SlotsPrepared(Order, frozen=True, kw_only=True):
    """The slots are there.  Descriptor: their memory."""

    draw_s: float  # seconds for the contents of one slot, where each has a draw of its own; else 0
    program: bytes = b""  # the kernel by which outputs decide inputs; empty on a host


class FillSlots(Order, frozen=True, kw_only=True):
    """Write fresh inputs into slots 0 … `count`-1; the side that reads them next is frozen."""

    seed: int
    count: int


class PrepareReplacement(Order, frozen=True, kw_only=True):
    """Make other contents for a slot, for `ReplaceContents`."""

    slot: int
    seed: int
    kind: InputKind = "plain"


class ReplaceContents(Order, frozen=True, kw_only=True):
    """Write the prepared contents into their slots; a side may be running."""


class RestoreContents(Order, frozen=True, kw_only=True):
    """Write what `FillSlots` wrote into the slots that were replaced since; the side is frozen."""


class DrawFromSlot(Order, frozen=True, kw_only=True):
    """Make a draw of what was last written into a slot; it is known by the number answered."""

    slot: int


class DrawDependent(Order, frozen=True, kw_only=True):
    """Make a draw of what is in a slot once an output that was copied has decided it."""

    slot: int
    other: int  # slot that it is mixed with
    stashed: int  # number of that output
    tensors: tuple[Leaf, ...]  # of it
    is_whole: bool = False


class SlotDrawn(Order, frozen=True, kw_only=True):
    """The draw, and whether the slot holds something else by now."""

    draw: int
    is_changed: tuple[bool, ...]  # each tensor: the slot holds something else by now


OutputMemory: TypeAlias = Literal["arena", "slots"]


class PrepareArena(Order, frozen=True, kw_only=True):
    """Allocate device memory for what a candidate's timed calls allocate.

    Descriptor: that memory.
    """

    size: int


class StashFromArena(Order, frozen=True, kw_only=True):
    """Copy outputs out of the arena, or of the slots, now, to compare them later."""

    outputs: tuple[Layout, ...]
    # Where each leaf begins, and in what; of empty ones any number.
    places: tuple[tuple[tuple[OutputMemory, int], ...], ...]


class AwaitIdleCard(Order, frozen=True, kw_only=True):
    """Answer after a few round trips to the card: they wait for work of other processes."""


class ReleaseTimingMemory(Order, frozen=True, kw_only=True):
    """Free slots and arenas."""


class ComputeExpected(Order, frozen=True, kw_only=True):
    """Compute the reference's outputs of a draw."""

    draw: int
    seed: int
    calls_before: int = 0  # from the seed on: they draw random numbers, too
    # Tensors of the module that decide outputs: as candidates get them, before all those calls.
    state: tuple[str, ...] = ()


class ExpectedLayout(Order, frozen=True, kw_only=True):
    outputs: Layout


class StashOutputs(Order, frozen=True, kw_only=True):
    """Copy parts of the descriptor's bytes now, to compare them later."""

    parts: tuple[tuple[int, int], ...]  # where each begins and ends
    strided: tuple[Layout, ...] = ()  # of parts whose bytes are in the order of their strides
    size: int  # of all bytes


class CompareBytes(Order, frozen=True, kw_only=True):
    """Compare the descriptor's bytes with a draw's expected outputs, or its inputs."""

    draw: int
    what: Literal["output", "inputs"]
    describe: bool = False  # also answer with where a wrong output is wrong
    stashed: int | None = None  # the part copied before, instead of the descriptor's bytes
    share: bool = False  # also answer with the error in units of KernelBench's tolerance
    only_own: bool = False  # leave out outputs that the task returns in an input's memory
    slot: int | None = None  # whose inputs a block has left, instead of the descriptor's bytes


class RepeatBlock(Order, frozen=True, kw_only=True):
    """Begin at the state that candidates get, and call the task's module on slots 0 … `calls`-1.

    `is_control`: answer with how the end differs from that of a begin with other last digits.
    `draw`: then answer with how the outputs of the next call differ, those of this draw.
    """

    names: tuple[str, ...]
    calls: int
    seed: int | None = None  # where their random numbers begin
    is_control: bool = False
    draw: int | None = None


class CompareChain(Order, frozen=True, kw_only=True):
    """Repeat the first calls of a block whose inputs follow from outputs; compare some outputs.

    They begin at the state that candidates get.  The candidate's outputs of all these calls were
    copied, in the order of the calls.
    """

    names: tuple[str, ...]  # of the state
    links: tuple[DrawDependent, ...]  # the inputs of each call after the first
    outputs: tuple[Layout, ...]  # the candidate's, of each call
    compared: tuple[int, ...]  # calls
    seed: int  # of the first call; each has a seed of its own


class CompareState(Order, frozen=True, kw_only=True):
    """Compare a candidate's state after as many calls with the task's.  Descriptor: its bytes."""

    names: tuple[str, ...]
    calls: int
    is_block: bool  # they began at the values that timed blocks begin at


class Compared(Order, frozen=True, kw_only=True):
    reason: str = ""  # "" when they agree
    max_error: float | None = None  # in units of the tolerance
    wrong: int = 0  # elements of an output that is wrong
    share: float | None = None  # the same error in units of KernelBench's tolerance
    difference: tuple[str, ...] = ()  # of a wrong output: where it is wrong, and how

    def is_excused_by(self, control: Compared) -> bool:
        """Whether other last digits of a state change about as many elements of an output."""
        return self.wrong <= MOST_EXCUSED * control.wrong


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
    | MeasureRates
    | DescribeTask
    | TryInputKind
    | TryMixing
    | RestoreParameters
    | FreshBuffers
    | ShareState
    | LendMemory
    | DrawInputs
    | PrepareSlots
    | FillSlots
    | PrepareReplacement
    | ReplaceContents
    | RestoreContents
    | DrawFromSlot
    | DrawDependent
    | PrepareArena
    | StashFromArena
    | AwaitIdleCard
    | ReleaseTimingMemory
    | ComputeExpected
    | StashOutputs
    | CompareBytes
    | RepeatBlock
    | CompareChain
    | CompareState
    | ForgetDraws
    | Exit
)
FromReferee = (
    DeviceDescribed
    | TaskPrepared
    | RatesMeasured
    | TaskDescribed
    | InputKindResult
    | InputsDrawn
    | SlotsPrepared
    | SlotDrawn
    | ExpectedLayout
    | Compared
    | Done
    | TaskUnsuitable
)
