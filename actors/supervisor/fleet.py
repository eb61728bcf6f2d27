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
from actors.supervisor import children
from actors.supervisor.children import Child
from actors.supervisor.restarts import Deaths
from actors.supervisor.spec import COORDINATOR, ChildSpec
from protocol.values import Value

LEFT_S = 2.0
EXCUSED_S = 0.0  # a candidate gets two evaluators, then it is a verdict: this has an end


class Died(Value, frozen=True, kw_only=True):
    """A child has ended, with all below it."""

    spec: ChildSpec
    incarnation: str
    status: int
    how: str
    restart_in_s: float | None  # None: not started again
    too_often: bool = False


@dataclass(kw_only=True)
class Place:
    """One supervised place: its process, its deaths, when it is due again."""

    spec: ChildSpec
    child: Child | None = None
    deaths: Deaths = field(default_factory=Deaths)
    starts: int = 0
    cause: str = ""  # how the last process here ended
    due: float | None = None  # monotonic; None: not to be started


class Fleet:
    """All places of one supervisor."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        run_dir: Path,
        rng: random.Random,
        on_start: Callable[[Child], None],
    ) -> None:
        self.places = {spec.name: Place(spec=spec) for spec in specs}
        self.closing = False
        self._run_dir = run_dir
        self._rng = rng
        self._on_start = on_start

    # --- starting ----------------------------------------------------------------------------

    def start_all(self, now: float) -> None:
        """Start every place, in order; workers connect whenever the coordinator listens."""
        for place in self.places.values():
            place.due = now
        self.start_due(now)

    def start_due(self, now: float) -> None:
        """Start the places whose wait is over."""
        for place in self.places.values():
            if place.child is None and place.due is not None and place.due <= now:
                place.due = None
                place.starts += 1
                failpoints.reach("before-spawn")
                place.child = children.start(place.spec, self._run_dir)
                self._on_start(place.child)
                failpoints.reach("after-spawn")

    def next_due(self) -> float | None:
        """Return when the next start is due, on the monotonic clock."""
        return min(
            (place.due for place in self.places.values() if place.due is not None), default=None
        )

    # --- dying -------------------------------------------------------------------------------

    def bury(self, child: Child, now: float, *, excused: bool = False) -> Died:
        """Reap an ended child and all that it left; plan its successor.

        An `excused` death was a candidate's doing: it does not count, and the next one starts soon.
        """
        place = self.places[child.spec.name]
        failpoints.reach("before-reap")
        status, how = children.bury(child)
        failpoints.reach("after-reap")
        place.child = None
        place.cause = how
        self.sweep()
        if not excused:
            place.deaths = place.deaths.add(now, place.spec.intensity)
        finished = status == 0 and place.spec.restart == "transient"
        too_often = not (finished or excused) and place.deaths.exceed(place.spec.intensity)
        delay: float | None = None
        if not (self.closing or finished or too_often):
            delay = EXCUSED_S if excused else place.deaths.delay_s(self._rng)
            if status == 0:
                # It left by itself, as told at the end of a run: the coordinator's end follows.
                delay = max(delay, LEFT_S)
            place.due = now + delay
        return Died(
            spec=place.spec,
            incarnation=child.incarnation,
            status=status,
            how=how,
            restart_in_s=delay,
            too_often=too_often,
        )

    def sweep(self) -> int:
        """Kill what fell to us from dead children; return how many there were."""
        return children.sweep({child.pid for child in self.living})

    # --- closing -----------------------------------------------------------------------------

    @property
    def living(self) -> list[Child]:
        """The children that were started and are not buried."""
        return [place.child for place in self.places.values() if place.child is not None]

    def close(self) -> None:
        """Start nothing any more."""
        self.closing = True
        for place in self.places.values():
            place.due = None

    def terminate(self) -> None:
        """Ask every child to leave."""
        for child in self.living:
            children.terminate(child)

    def kill(self) -> None:
        """Kill every child."""
        for child in self.living:
            children.kill(child)

    def is_up(self, name: str = COORDINATOR) -> bool:
        """Whether there is a process at that place."""
        return self.places[name].child is not None
