"""Messages between the judge and its children: for any child, for the zygote, for builders.

Messages for runners and referees are in `runner_orders.py` and `referee_orders.py`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from actors.evaluator.fastbuild import FlagSet
from protocol.values import DeviceKind, Value

ChildRole = Literal["runner", "watched runner", "referee", "builder", "tool"]
InputKind = Literal[
    "plain",
    "scaled",
    "shifted",
    "sparse",
    "uneven",
    "blocks",
    "spikes",
    "permuted",
    "large",
    "missing",
    "near one",
]  # of draws


class CallForm(Value, frozen=True, kw_only=True):
    """How a module is called, beyond `module(*inputs)`."""

    dtype: str = ""  # of the module, as `.to(dtype)` makes it; "": as it is constructed
    # Whether it is differentiated, too; the last input has the gradients of its outputs.
    backward: bool = False
    inputs: tuple[int, ...] = ()  # of the inputs' tensors: those that get a gradient
    outputs: tuple[int, ...] = ()  # of the outputs' tensors: those with a gradient
    parameters: tuple[str, ...] = ()  # those that get a gradient


class Order(Value, frozen=True, kw_only=True, tag=True):
    """Anything that crosses a channel inside the evaluator."""


# --- judge <-> zygote -------------------------------------------------------------------------


class Confinement(Value, frozen=True, kw_only=True):
    """What one child may see and take."""

    folder: str  # its scratch folder: working directory, HOME, TMPDIR; it can only write there
    isolated: bool = True  # namespaces, as far as the machine has them
    hide: tuple[str, ...] = ()  # directories that it finds empty
    keep: tuple[str, ...] = ()  # paths that it must read, also below a hidden folder
    environment: dict[str, str]  # all variables
    data_bytes: int | None = None
    file_bytes: int | None = None
    processes: int | None = None
    open_files: int | None = None
    memory_bytes: int | None = None  # of all its processes together
    own_network: bool = False  # it may connect within an empty network namespace


class SpawnChild(Order, frozen=True, kw_only=True):
    """Fork a child.  Descriptors: its channel, its output, its status pipe, its lifeline.

    Only the judge holds the lifeline's other end; when it closes, the child's tree is killed.
    """

    part: ChildRole
    device: DeviceKind
    confinement: Confinement
    command: tuple[str, ...] = ()  # the command line around a "tool"


class ZygoteReady(Order, frozen=True, kw_only=True):
    """The zygote is warm.  Each part of isolation was tried on this machine."""

    namespaces: bool = False  # pid, net, ipc and mount namespaces
    user: bool = False  # these namespaces need a user namespace of our own
    read_only: bool = False  # the root file system can be made read-only
    writable: tuple[str, ...] = ()  # except for these paths, which the device's driver needs
    landlock: bool = False
    seccomp: bool = False
    groups: tuple[str, ...] = ()  # control groups, in which each child gets its own group
    level: int = 1  # of the sandbox: docs/evaluation-laws.md, law 13


class ChildEnded(Order, frozen=True, kw_only=True):
    """How a child ended; its init process sends this once the whole process tree is gone."""

    how: Literal["exit", "signal", "killed", "lost", "crowd", "memory"]
    number: int = 0  # exit status, signal number, or the limit (processes, MiB; 0: it has none)
    peak_mib: int = 0


# --- any child --------------------------------------------------------------------------------


class ImportSource(Order, frozen=True, kw_only=True):
    """Import `source` as a module and find `class_name` in it."""

    source: str
    class_name: str
    # Importable files: path -> source.
    modules: dict[str, str] = msgspec.field(default_factory=dict)


class Ping(Order, frozen=True, kw_only=True):
    """Answer `Done`: the first order to each child."""


class Exit(Order, frozen=True, kw_only=True):
    """End as a program does, exit handlers included."""


class Done(Order, frozen=True, kw_only=True):
    """The order is done."""


class CandidateRaised(Order, frozen=True, kw_only=True):
    """The candidate raised."""

    kind: str  # the exception's type
    words: str
    trace: str = ""
    compiling: bool = False  # a compiler reported errors
    memory: bool = False  # memory ran out


# --- judge <-> builder ------------------------------------------------------------------------


class PrepareToolkit(Order, frozen=True, kw_only=True):
    """Prepare the toolkit of fast builds in the working directory; for a trusted builder."""

    families: tuple[FlagSet, ...] = ()
    limit_s: float


class ToolkitPrepared(Order, frozen=True, kw_only=True):
    """The toolkit is prepared, or could not be."""

    toolkit: str = ""  # its key; "" if it could not be prepared
    words: str = ""  # the reason


ToBuilder = Ping | ImportSource | PrepareToolkit | Exit
FromToolkitBuilder = Done | ToolkitPrepared
