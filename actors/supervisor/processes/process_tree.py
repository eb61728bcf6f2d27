"""The supervised processes of one supervisor: start, reap, restart, end.

The supervision loops drive the tree.  It promises that a slot never has two live processes, that a
dead child's descendants are dead too before the next child starts, and that nothing starts once the
tree closes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors import failpoints
from actors.supervisor.processes import child_process
from actors.supervisor.processes.child_process import ChildProcess, output_file
from actors.supervisor.processes.child_specs import COORDINATOR, ChildSpec
from actors.supervisor.processes.restarts import DeathTimes
from protocol.values import Value

CLEAN_EXIT_DELAY_S = 2.0  # before the restart of a child that left with status 0
# A candidate gets two evaluators and then a verdict, so excused deaths can't go on for ever.
EXCUSED_DELAY_S = 0.0
MAX_OUTPUT_LINE = 300  # characters of a child's last output line in a message


class ChildExit(Value, frozen=True, kw_only=True):
    """A child has ended, with all its descendants."""

    spec: ChildSpec
    incarnation: str
    status: int
    description: str
    restart_in_s: float | None  # None: not started again
    exceeded_restarts: bool = False


@dataclass(kw_only=True)
class SupervisedSlot:
    """One supervised slot: its process, its deaths, the time of its next start."""

    spec: ChildSpec
    child: ChildProcess | None = None
    deaths: DeathTimes = field(default_factory=DeathTimes)
    starts: int = 0
    cause: str = ""  # how the last process here ended
    due_at: float | None = None  # monotonic; None: not to be started


class ProcessTree:
    """All supervised slots of one supervisor."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        run_dir: Path,
        rng: random.Random,
        on_start: Callable[[ChildProcess], None],
        others: Collection[int] = (),
    ) -> None:
        """`others`: children that are not in a slot, and that are left alone."""
        self.slots: dict[str, SupervisedSlot] = {}
        self.closing = False
        self._run_dir = run_dir
        self._rng = rng
        self._on_start = on_start
        self._others = frozenset(others)
        self.add(specs)

    def add(self, specs: Sequence[ChildSpec]) -> None:
        """Supervise these slots, too; nothing is started yet."""
        self.slots |= {spec.name: SupervisedSlot(spec=spec) for spec in specs}

    # --- starting ----------------------------------------------------------------------------

    def start_all(self, now: float) -> None:
        """Start every slot, in order; workers connect as soon as the coordinator listens."""
        for slot in self.slots.values():
            slot.due_at = now
        self.start_due(now)

    def start_due(self, now: float) -> None:
        """Start the slots whose wait is over."""
        for slot in self.slots.values():
            if slot.child is None and slot.due_at is not None and slot.due_at <= now:
                slot.due_at = None
                slot.starts += 1
                failpoints.hit("before-spawn")
                slot.child = child_process.start_child(slot.spec, self._run_dir)
                self._on_start(slot.child)
                failpoints.hit("after-spawn")

    def next_due(self) -> float | None:
        """Return when the next start is due, on the monotonic clock."""
        return min(
            (slot.due_at for slot in self.slots.values() if slot.due_at is not None),
            default=None,
        )

    # --- dead children -----------------------------------------------------------------------

    def reap(self, child: ChildProcess, now: float, *, excused: bool = False) -> ChildExit:
        """Reap a dead child and all its descendants; plan the next start.

        An `excused` death was caused by a candidate: it does not count, and the next process starts
        at once.
        """
        slot = self.slots[child.spec.name]
        failpoints.hit("before-reap")
        status, description = child_process.reap(child)
        failpoints.hit("after-reap")
        slot.child = None
        slot.cause = description
        self.kill_orphans()
        if not excused:
            slot.deaths = slot.deaths.add(now, slot.spec.intensity)
        finished = status == 0 and slot.spec.restart == "transient"
        too_often = not (finished or excused) and slot.deaths.has_exceeded(slot.spec.intensity)
        delay: float | None = None
        if not (self.closing or finished or too_often):
            delay = EXCUSED_DELAY_S if excused else slot.deaths.delay_s(self._rng)
            if status == 0:
                # The child left by itself, as at the end of a run: the coordinator ends next.
                delay = max(delay, CLEAN_EXIT_DELAY_S)
            slot.due_at = now + delay
        return ChildExit(
            spec=slot.spec,
            incarnation=child.incarnation,
            status=status,
            description=description,
            restart_in_s=delay,
            exceeded_restarts=too_often,
        )

    def kill_orphans(self) -> int:
        """Kill the descendants that dead children left to us; return how many there were."""
        return child_process.reap_orphans(self._others | {child.pid for child in self.living})

    def last_output_line(self, name: str) -> str:
        """Return the last line that the process in a slot printed, shortened for a message."""
        try:
            text = output_file(self._run_dir, name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1][:MAX_OUTPUT_LINE] if lines else ""

    # --- closing -----------------------------------------------------------------------------

    @property
    def living(self) -> list[ChildProcess]:
        """The children that were started and are not reaped."""
        return [slot.child for slot in self.slots.values() if slot.child is not None]

    def close(self) -> None:
        """Start nothing more."""
        self.closing = True
        for slot in self.slots.values():
            slot.due_at = None

    def terminate(self) -> None:
        """Ask every child to leave."""
        for child in self.living:
            child_process.terminate_child(child)

    def kill(self) -> None:
        """Kill every child."""
        for child in self.living:
            child_process.kill_child(child)

    def is_up(self, name: str = COORDINATOR) -> bool:
        """Whether there is a process in that slot."""
        return self.slots[name].child is not None
