"""What the judge says to any of its children and hears from it; builders and the zygote whole.

Runners and referees have more to say: `runner_orders.py`, `referee_orders.py`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from actors.evaluator.fastbuild import FlagSet
from protocol.values import DeviceKind, Value

ChildRole = Literal["runner", "referee", "builder", "tool"]
InputKind = Literal[
    "plain", "scaled", "shifted", "sparse", "blocks", "spikes", "permuted"
]  # of draws


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


class SpawnChild(Order, frozen=True, kw_only=True):
    """Fork a child.  Descriptors: its channel, its output, its status pipe, its leash."""

    part: ChildRole
    device: DeviceKind
    confinement: Confinement
    command: tuple[str, ...] = ()  # what a "tool" is run by


class ZygoteReady(Order, frozen=True, kw_only=True):
    """The zygote is warm; what of isolation the machine gives it, every part tried out."""

    namespaces: bool = False  # pid, net, ipc and mount namespaces
    user: bool = False  # only within a user namespace of our own
    read_only: bool = False  # the root file system can be made read-only
    writable: tuple[str, ...] = ()  # but for these, which the device's driver needs
    landlock: bool = False
    seccomp: bool = False
    groups: tuple[str, ...] = ()  # control groups, in which children get groups of their own
    level: int = 1  # of the sandbox: docs/evaluation-laws.md, law 13


class ChildEnded(Order, frozen=True, kw_only=True):
    """How a child ended, said by its keeper once its whole tree is gone."""

    how: Literal["exit", "signal", "killed", "lost", "crowd", "memory"]
    number: int = 0  # exit status, signal number, or the limit (processes, MiB; 0: it has none)
    peak_mib: int = 0


# --- any child --------------------------------------------------------------------------------


class ImportSource(Order, frozen=True, kw_only=True):
    """Import `source` as a module and find `class_name` in it."""

    source: str
    class_name: str
    # Beside it on the path: path -> source.
    modules: dict[str, str] = msgspec.field(default_factory=dict)


class Ping(Order, frozen=True, kw_only=True):
    """Say that you are there: asked of every child before anything else."""


class Exit(Order, frozen=True, kw_only=True):
    """End in the ordinary way, exit handlers included."""


class Done(Order, frozen=True, kw_only=True):
    """It is done."""


class CandidateRaised(Order, frozen=True, kw_only=True):
    """The candidate raised."""

    kind: str  # the exception's type
    words: str
    trace: str = ""
    compiling: bool = False  # a compiler said no
    memory: bool = False  # memory ran out


# --- judge <-> builder ------------------------------------------------------------------------


class PrepareToolkit(Order, frozen=True, kw_only=True):
    """Prepare fast builds in the working directory: a trusted builder's one piece of work."""

    families: tuple[FlagSet, ...] = ()
    limit_s: float


class ToolkitPrepared(Order, frozen=True, kw_only=True):
    toolkit: str = ""  # its key; "" when there can be none
    words: str = ""  # why not


ToBuilder = Ping | ImportSource | PrepareToolkit | Exit
FromToolkitBuilder = Done | ToolkitPrepared
