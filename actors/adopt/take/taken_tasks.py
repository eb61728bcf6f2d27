"""What `take` writes: the tasks with their places in the model, and what was not taken and why."""

from __future__ import annotations

import msgspec

from actors.adopt.model.call_layouts import CallKind
from actors.adopt.regions.forward_splitter import Split
from actors.adopt.tasks.task_proof import Proof
from protocol.layouts import Layout


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    top: int = 6
    min_share: float = 0.03
    patterns: tuple[str, ...] = ()
    cap: int = 2 << 30
    max_gap: float = 0.2
    regions: bool = False  # of forwards with library calls are tasks, too

    def changed_flags(self, other: Options) -> list[str]:
        """Return the flags in which two commands differ, as typed."""
        names = {"patterns": "at"}
        return [
            "--" + names.get(field, field).replace("_", "-")
            for field in self.__struct_fields__
            if getattr(self, field) != getattr(other, field)
        ]


class TakenCase(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of call that a task stands for."""

    kind: CallKind
    output: Layout
    calls: float  # a step, all sites


class TakenTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task and its place in the model."""

    name: str
    class_name: str
    file: str  # below the stage folder
    sha256: str  # of the task's source
    sites: tuple[str, ...]
    cases: tuple[TakenCase, ...]  # the first is the one that the task's get_inputs() draws
    inputs: tuple[int, ...]  # see TaskText
    state: dict[str, str]
    outputs: tuple[int, ...]
    share: float  # of the device time: the module's calls of these kinds
    free_share: float  # of it, outside of libraries
    weights_sha256: str  # of the first site's parameters and buffers
    proof: Proof
    has_parts: bool = False  # modules inside of it would be worth a task, too
    place: str = ""  # of a region of a forward: where the first site is; "" for a module
    part_of: tuple[str, ...] = ()  # tasks without a winner, whose parts these modules are

    @property
    def gradients(self) -> bool:
        """Whether the task is one of a training step: forward and backward."""
        return self.cases[0].kind.gradients


class NotTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A module of which no task was made."""

    name: str
    sites: tuple[str, ...]
    reason: str


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """take.json."""

    tasks: list[TakenTask]
    not_taken: list[NotTaken]
    captured_bytes: int
    is_cap_reached: bool
    splits: list[Split] = msgspec.field(default_factory=list)  # modules with regions that are tasks
    options: Options | None = None  # with which they were taken; null in older folders

    def split_of(self, site: str) -> tuple[Split, str] | None:
        """Return the split and the name of a region; None for a module."""
        for split in self.splits:
            for name in split.regions:
                if split.path(name) == site:
                    return split, name
        return None
