"""The supervised processes of a run: all started, each death told, buried and made good.

Driven by the supervision loop (`shift`).  It promises that a place never has two live processes,
that a dead child's descendants are dead too before the next one starts, and that no start happens
once the fleet closes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors import failpoints
from actors.supervisor.processes import child_process
from actors.supervisor.processes.child_process import ChildProcess
from actors.supervisor.processes.child_specs import COORDINATOR, ChildSpec
from actors.supervisor.processes.restarts import DeathTimes
from protocol.values import Value

LEFTOVER_KILL_S = 2.0
EXCUSED_DELAY_S = 0.0  # a candidate gets two evaluators, then it is a verdict: this has an end


class ChildExit(Value, frozen=True, kw_only=True):
    """A child has ended, with all below it."""

    spec: ChildSpec
    incarnation: str
    status: int
    description: str
    restart_in_s: float | None  # None: not started again
    exceeded_restarts: bool = False


@dataclass(kw_only=True)
class Supervised:
    """One supervised place: its process, its deaths, when it is due again."""

    spec: ChildSpec
    child: ChildProcess | None = None
    deaths: DeathTimes = field(default_factory=DeathTimes)
    starts: int = 0
    cause: str = ""  # how the last process here ended
    due_at: float | None = None  # monotonic; None: not to be started


class ProcessTree:
    """All places of one supervisor."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        run_dir: Path,
        rng: random.Random,
        on_start: Callable[[ChildProcess], None],
    ) -> None:
        self.supervised = {spec.name: Supervised(spec=spec) for spec in specs}
        self.closing = False
        self._run_dir = run_dir
        self._rng = rng
        self._on_start = on_start

    # --- starting ----------------------------------------------------------------------------

    def start_all(self, now: float) -> None:
        """Start every place, in order; workers connect whenever the coordinator listens."""
        for supervised in self.supervised.values():
            supervised.due_at = now
        self.start_due(now)

    def start_due(self, now: float) -> None:
        """Start the places whose wait is over."""
        for supervised in self.supervised.values():
            if (
                supervised.child is None
                and supervised.due_at is not None
                and supervised.due_at <= now
            ):
                supervised.due_at = None
                supervised.starts += 1
                failpoints.hit("before-spawn")
                supervised.child = child_process.start_child(supervised.spec, self._run_dir)
                self._on_start(supervised.child)
                failpoints.hit("after-spawn")

    def next_due(self) -> float | None:
        """Return when the next start is due, on the monotonic clock."""
        return min(
            (place.due_at for place in self.supervised.values() if place.due_at is not None),
            default=None,
        )

    # --- dying -------------------------------------------------------------------------------

    def reap(self, child: ChildProcess, now: float, *, excused: bool = False) -> ChildExit:
        """Reap an ended child and all that it left; plan its successor.

        An `excused` death was a candidate's doing: it does not count, and the next one starts soon.
        """
        supervised = self.supervised[child.spec.name]
        failpoints.hit("before-reap")
        status, how = child_process.reap(child)
        failpoints.hit("after-reap")
        supervised.child = None
        supervised.cause = how
        self.kill_orphans()
        if not excused:
            supervised.deaths = supervised.deaths.add(now, supervised.spec.intensity)
        finished = status == 0 and supervised.spec.restart == "transient"
        too_often = not (finished or excused) and supervised.deaths.has_exceeded(
            supervised.spec.intensity
        )
        delay: float | None = None
        if not (self.closing or finished or too_often):
            delay = EXCUSED_DELAY_S if excused else supervised.deaths.delay_s(self._rng)
            if status == 0:
                # It left by itself, as told at the end of a run: the coordinator's end follows.
                delay = max(delay, LEFTOVER_KILL_S)
            supervised.due_at = now + delay
        return ChildExit(
            spec=supervised.spec,
            incarnation=child.incarnation,
            status=status,
            description=how,
            restart_in_s=delay,
            exceeded_restarts=too_often,
        )

    def kill_orphans(self) -> int:
        """Kill what fell to us from dead children; return how many there were."""
        return child_process.reap_orphans({child.pid for child in self.living})

    # --- closing -----------------------------------------------------------------------------

    @property
    def living(self) -> list[ChildProcess]:
        """The children that were started and are not buried."""
        return [place.child for place in self.supervised.values() if place.child is not None]

    def close(self) -> None:
        """Start nothing any more."""
        self.closing = True
        for supervised in self.supervised.values():
            supervised.due_at = None

    def terminate(self) -> None:
        """Ask every child to leave."""
        for child in self.living:
            child_process.terminate_child(child)

    def kill(self) -> None:
        """Kill every child."""
        for child in self.living:
            child_process.kill_child(child)

    def is_up(self, name: str = COORDINATOR) -> bool:
        """Whether there is a process at that place."""
        return self.supervised[name].child is not None
