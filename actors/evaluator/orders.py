"""What the judge says to its children and what they answer: one union for each pair.

Nothing here is trusted because of what it says: a runner's answers are data about a candidate.
"""

from __future__ import annotations

from typing import Literal

from actors.evaluator.fastbuild.family import Family
from actors.evaluator.layout import Layout
from actors.evaluator.profile import Profile
from protocol.settings import Precision
from protocol.values import Device, DeviceKind, Value

Part = Literal["runner", "referee", "builder", "tool"]
Kind = Literal["plain", "scaled", "shifted", "sparse", "blocks", "spikes", "permuted"]  # of draws


class Order(Value, frozen=True, kw_only=True, tag=True):
    """Anything that crosses a channel inside the evaluator."""


# --- judge <-> zygote -------------------------------------------------------------------------


class Confinement(Value, frozen=True, kw_only=True):
    """What one child may see and take."""

    folder: str  # its own scratch: working directory, HOME, TMPDIR; the one place it can write
    isolated: bool = True  # namespaces, as far as the machine gives them
    hide: tuple[str, ...] = ()  # directories that it finds empty
    keep: tuple[str, ...] = ()  # what it needs all the same, there or elsewhere, to read
    environment: dict[str, str]  # the whole of it
    data_bytes: int | None = None
    file_bytes: int | None = None
    processes: int | None = None
    memory_bytes: int | None = None  # of all its processes together
    own_network: bool = False  # it may connect, in a network namespace that reaches nobody


class Spawn(Order, frozen=True, kw_only=True):
    """Fork a child.  Descriptors: its channel, its output, its status pipe, its leash."""

    part: Part
    device: DeviceKind
    confinement: Confinement
    command: tuple[str, ...] = ()  # what a "tool" is run by


class Ready(Order, frozen=True, kw_only=True):
    """The zygote is warm; what of isolation the machine gives it, every part tried out."""

    namespaces: bool = False  # pid, net, ipc and mount namespaces
    user: bool = False  # only within a user namespace of our own
    read_only: bool = False  # the root file system can be made read-only
    writable: tuple[str, ...] = ()  # but for these, which the device's driver needs
    landlock: bool = False
    seccomp: bool = False
    groups: tuple[str, ...] = ()  # control groups, in which children get groups of their own
    level: int = 1  # of the sandbox, as EVALUATION's law 13 counts


class Ended(Order, frozen=True, kw_only=True):
    """How a child ended, said by its keeper once its whole tree is gone."""

    how: Literal["exit", "signal", "killed", "lost", "crowd", "memory"]
    number: int = 0  # exit status, signal number, or the limit (processes, MiB)
    peak_mib: int = 0


# --- judge -> runner --------------------------------------------------------------------------


class Import(Order, frozen=True, kw_only=True):
    """Import `source` as a module and find `class_name` in it."""

    source: str
    class_name: str


class Construct(Order, frozen=True, kw_only=True):
    """Seed and construct the module.  Descriptor: the init inputs."""

    seed: int
    init: Layout


class Load(Order, frozen=True, kw_only=True):
    """Copy parameters and buffers in.  Descriptors: their bytes; those they were constructed with.

    By name; what has another name is found by its shape and the value it was constructed with.
    """

    state: Layout


class Compile(Order, frozen=True, kw_only=True):
    """Wrap the module in torch.compile (the reference's baselines only)."""

    mode: str


class Feed(Order, frozen=True, kw_only=True):
    """Put inputs in a slot; in place when the slot holds the same layout.  Descriptor: bytes."""

    slot: int
    inputs: Layout


class FeedAll(Order, frozen=True, kw_only=True):
    """Put many inputs into slots 0, 1, … in place where layouts agree.  Descriptor: bytes."""

    inputs: tuple[Layout, ...]


class CallOnce(Order, frozen=True, kw_only=True):
    """Seed and call the module on a slot; keep the output under `keep`."""

    slot: int
    seed: int
    keep: int
    guard: tuple[int, ...] = ()  # bytes of the outputs that are expected, to be watched


class Clear(Order, frozen=True, kw_only=True):
    """Let go of inputs and outputs, and of the card's memory that is kept for more of them."""


class Bench(Order, frozen=True, kw_only=True):
    """Call the module `calls` times over slots 0 … `slots`-1 in turn; keep each slot's output."""

    calls: int
    slots: int


class Collect(Order, frozen=True, kw_only=True):
    """Write the outputs of all benchmarked calls, slot after slot, and say what they look like.

    Descriptor: memory for them.
    """

    limit: int  # bytes that the descriptor's memory has


class TakeProfile(Order, frozen=True, kw_only=True):
    """Call the module on a slot under the profiler; asked once nothing is timed any more."""

    slot: int


class Canary(Order, frozen=True, kw_only=True):
    """Compute something known on the device; only asked of a process without a candidate."""


class Write(Order, frozen=True, kw_only=True):
    """Write a kept output, or a slot's inputs, to the descriptor."""

    what: Literal["output", "inputs"]
    number: int = 0
    limit: int = 0  # bytes that the descriptor's memory has


class Ping(Order, frozen=True, kw_only=True):
    """Say that you are there: asked of every child before anything else."""


class Leave(Order, frozen=True, kw_only=True):
    """End in the ordinary way, exit handlers included."""


ToRunner = (
    Ping
    | Import
    | Construct
    | Load
    | Compile
    | Feed
    | FeedAll
    | CallOnce
    | Clear
    | Bench
    | Collect
    | TakeProfile
    | Canary
    | Write
    | Leave
)

# --- runner -> judge --------------------------------------------------------------------------


class Done(Order, frozen=True, kw_only=True):
    """It is done."""


class Loaded(Order, frozen=True, kw_only=True):
    """Names that the candidate has nothing for, that only it has, and whose shapes differ."""

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()


class Called(Order, frozen=True, kw_only=True):
    """The module returned something of this layout."""

    output: Layout
    breach: str = ""  # what it wrote outside of its outputs


class Collected(Order, frozen=True, kw_only=True):
    """All outputs are written; what each looks like."""

    outputs: tuple[Layout, ...]


class Profiled(Order, frozen=True, kw_only=True):
    """What the profiler saw, as the candidate's process says."""

    profile: Profile


class Raised(Order, frozen=True, kw_only=True):
    """The candidate raised."""

    kind: str  # the exception's type
    words: str
    trace: str = ""
    compiling: bool = False  # a compiler said no
    memory: bool = False  # memory ran out


FromRunner = Done | Loaded | Called | Collected | Profiled | Raised

# --- judge <-> referee ------------------------------------------------------------------------


class Describe(Order, frozen=True, kw_only=True):
    """Say what device this is."""


class Described(Order, frozen=True, kw_only=True):
    device: Device
    uuid: str = ""  # as the driver names the card


class Prepare(Order, frozen=True, kw_only=True):
    """Import the task, make its init inputs, construct its module."""

    source: str
    seed: int
    lend: bool = False  # hand bytes over in device memory
    precision: Precision = "task"  # the lowest that is accepted


class Prepared(Order, frozen=True, kw_only=True):
    """The task works.  Descriptors: init inputs, state, state as it was constructed."""

    init: Layout
    state: Layout
    inputs: Layout
    outputs: Layout
    steady: bool  # the same inputs give the same outputs, unseeded
    precise: bool  # a float64 reference could be made
    room: int = 0  # bytes of the card's memory for the inputs and outputs of one block
    notes: tuple[str, ...] = ()


class Bear(Order, frozen=True, kw_only=True):
    """Say whether the task bears inputs of another kind than its own."""

    kind: Kind
    seed: int


class Bears(Order, frozen=True, kw_only=True):
    bears: bool


class Restore(Order, frozen=True, kw_only=True):
    """Give these parameters the values they were constructed with, all others the shaken ones."""

    names: tuple[str, ...] = ()


class Renew(Order, frozen=True, kw_only=True):
    """Hand over init inputs, state and first state again, in memory that nobody has held."""


class Lend(Order, frozen=True, kw_only=True):
    """Make memory that a result can be written to.  Answered with its descriptor."""

    size: int


class Draw(Order, frozen=True, kw_only=True):
    """Draw fresh inputs."""

    seed: int
    kind: Kind = "plain"


class Drawn(Order, frozen=True, kw_only=True):
    """Fresh inputs, known as `draw`.  Descriptor: their bytes."""

    draw: int
    inputs: Layout


class Deal(Order, frozen=True, kw_only=True):
    """Draw fresh inputs many times."""

    seed: int
    count: int


class Dealt(Order, frozen=True, kw_only=True):
    """Fresh inputs, known as `first`, `first` + 1, …  Descriptors: their bytes, by side."""

    first: int
    inputs: tuple[Layout, ...]


class Expect(Order, frozen=True, kw_only=True):
    """Compute the reference's outputs of a draw."""

    draw: int
    seed: int


class Expected(Order, frozen=True, kw_only=True):
    outputs: Layout


class Take(Order, frozen=True, kw_only=True):
    """Copy parts of the descriptor's bytes at once, to be compared later."""

    parts: tuple[tuple[int, int], ...]  # where each begins and ends
    size: int  # of the whole


class Compare(Order, frozen=True, kw_only=True):
    """Compare the descriptor's bytes with a draw's expected outputs, or its inputs."""

    draw: int
    what: Literal["output", "inputs"]
    taken: int | None = None  # the part taken before, instead of the descriptor's bytes
    share: bool = False  # say how much of KernelBench's tolerance it takes, too


class Compared(Order, frozen=True, kw_only=True):
    reason: str = ""  # "" when they agree
    max_error: float | None = None  # in units of the tolerance
    share: float | None = None  # the same error in units of KernelBench's tolerance


class Forget(Order, frozen=True, kw_only=True):
    draw: int
    count: int = 1


class Unfit(Order, frozen=True, kw_only=True):
    """The task can't be judged, and why."""

    words: str


ToReferee = (
    Ping
    | Describe
    | Prepare
    | Bear
    | Restore
    | Renew
    | Lend
    | Draw
    | Deal
    | Expect
    | Take
    | Compare
    | Forget
    | Leave
)
FromReferee = Described | Prepared | Bears | Drawn | Dealt | Expected | Compared | Done | Unfit

# --- judge <-> builder ------------------------------------------------------------------------


class Furnish(Order, frozen=True, kw_only=True):
    """Prepare fast builds in the working directory: a trusted builder's one piece of work."""

    families: tuple[Family, ...] = ()
    limit_s: float


class Furnished(Order, frozen=True, kw_only=True):
    toolkit: str = ""  # its key; "" when there can be none
    words: str = ""  # why not


ToBuilder = Ping | Import | Furnish | Leave
FromFurnisher = Done | Furnished
