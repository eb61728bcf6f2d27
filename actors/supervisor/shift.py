"""The supervision loop: serves one run from the first start to the last burial.

It waits for whatever comes first, and answers deaths with restarts within their intensity, the
first Ctrl-C with a drain, the second with an end at once.  It promises to return, and that no
process of the run is left when it does.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from actors.supervisor import children, crew, outcome
from actors.supervisor.children import Child, output_of
from actors.supervisor.fleet import Died, Fleet
from actors.supervisor.launching import JobNews
from actors.supervisor.ledger import Ledger
from actors.supervisor.link import Link
from actors.supervisor.screen import Screen
from actors.supervisor.snapshot import Snapshot
from actors.supervisor.spec import COORDINATOR
from actors.supervisor.vigil import Vigil
from actors.supervisor.watch import STOP_SIGNALS, Event, Watch
from protocol.settings import Settings
from protocol.values import Role, Value

LOOK_S = 0.25
SHOW_S = 1.0  # at least so often, when nothing changes: drawing takes time from what is measured
DRAIN_S = 30.0
GRACE_S = 5.0  # to leave by itself when told
KILL_S = 10.0  # to be gone when killed; a process can be stuck in a driver


class Kind(StrEnum):
    """How a shift ends."""

    OVER = "over"  # the coordinator ended: the ledger says how the run stands
    STOPPED = "stopped"
    FAULT = "fault"


class Ending(Value, frozen=True, kw_only=True):
    """Why the supervision of a run ended."""

    kind: Kind
    why: str = ""
    at_once: bool = False  # kill instead of asking


class Shift:
    """One supervisor's service of one run."""

    def __init__(
        self,
        *,
        run_dir: Path,
        settings: Settings,
        fleet: Fleet,
        watch: Watch,
        link: Link,
        ledger: Ledger,
        screen: Screen,
        log: FilteringBoundLogger,
        note: Callable[[int], None],
    ) -> None:
        """`note` keeps outside of `run.db` how many attempts are recorded in it."""
        self.snapshot = Snapshot()
        self._run_dir = run_dir
        self._settings = settings
        self._fleet = fleet
        self._watch = watch
        self._link = link
        self._ledger = ledger
        self._screen = screen
        self._log = log
        self._note = note
        self._ending: Ending | None = None
        self._began = time.monotonic()
        self._next_look = 0.0
        self._jobs = JobNews(run_dir) if settings.launch else None
        self._next_show = 0.0
        self._vigil = Vigil(fleet, link, settings.lease_s)
        self._drain_until: float | None = None
        self._drain_why = ""
        self._best: dict[str, int] = {}  # task -> the node that its best file holds
        self._refusal_told = False
        self._trouble = ""

    def serve(self) -> Ending:
        """Start everything, keep it alive until the run ends, then end everything."""
        try:
            self._fleet.start_all(time.monotonic())
            while self._ending is None:
                self._turn()
        except OSError as error:
            # No process can be started, or the folder is gone: not to be got over by waiting.
            self._end(Kind.FAULT, f"{error.strerror or error}: {error.filename or 'the system'}")
        finally:
            # Also on a bug of ours: nothing may be left that nobody watches.
            self._close(self._ending or Ending(kind=Kind.FAULT, at_once=True))
        self._next_show = 0.0
        self._look(time.monotonic())
        return self._ending or Ending(kind=Kind.FAULT)

    def _turn(self) -> None:
        for event in self._watch.wait(self._pause_s(time.monotonic())):
            self._handle(event)
        now = time.monotonic()
        self._link.pump(now)
        if self._ending is None:
            self._fleet.start_due(now)
            self._keep_time(now)
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._look(now)

    # --- what happens ------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if isinstance(event, Child):
            # Also an evaluator that is killed by others: of whoever runs a candidate none can tell.
            excused = event.spec.role == Role.EVALUATOR and self._ledger.ran(event.incarnation)
            self._died(self._fleet.bury(event, time.monotonic(), excused=excused))
        elif event in STOP_SIGNALS:
            self._interrupted(event)
        else:
            self._fleet.sweep()

    def _died(self, died: Died) -> None:
        name = died.spec.name
        self._log.info("died", child=name, how=died.how, restart_in_s=died.restart_in_s)
        if name == COORDINATOR:
            self._link.expect_another()
        if died.spec.fenced:
            self._link.lost(name, died.incarnation, died.how)
        if died.too_often:
            intensity = died.spec.intensity
            self._end(
                Kind.FAULT,
                f"{name} died more than {intensity.limit} times in {intensity.window_s:.0f} s"
                f" (last: {died.how}{self._last_words(name)})",
            )
        elif name == COORDINATOR and died.status == 0:
            self._end(Kind.OVER, self._drain_why)
        elif name == COORDINATOR and self._drain_until is not None:
            self._end(Kind.STOPPED, self._drain_why)
        elif died.restart_in_s is not None and died.status != 0:
            soon = f"in {died.restart_in_s:.1f} s" if died.restart_in_s else "at once"
            self._screen.say(f"{name} died ({died.how}): starts again {soon}")

    def _last_words(self, name: str) -> str:
        """Return the last line that a child printed, for a person."""
        try:
            text = output_of(self._run_dir, name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"; it said: {lines[-1][:300]}" if lines else ""

    def _interrupted(self, number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        self._log.info("interrupted", signal=number.name)
        if self._drain_until is None:
            self._drain(f"stopped by {name}")
        else:
            self._end(Kind.STOPPED, f"stopped at once by {name}", at_once=True)

    def _drain(self, why: str) -> None:
        self._drain_until = time.monotonic() + DRAIN_S
        self._drain_why = why
        self._fleet.close()
        self._screen.say(
            f"{why}: ending what is under way, {DRAIN_S:.0f} s at most; Ctrl-C again stops at once"
        )
        if self._fleet.is_up(COORDINATOR):
            self._link.drain()
        else:
            self._end(Kind.STOPPED, why)

    def _end(self, kind: Kind, why: str, *, at_once: bool = False) -> None:
        if self._ending is None:
            self._ending = Ending(kind=kind, why=why, at_once=at_once)

    # --- time --------------------------------------------------------------------------------

    def _pause_s(self, now: float) -> float:
        due = self._fleet.next_due()
        return min(LOOK_S, self._next_look - now, *([due - now] if due is not None else []))

    def _keep_time(self, now: float) -> None:
        minutes = self._settings.max_minutes
        if self._drain_until is not None:
            if now > self._drain_until:
                self._end(Kind.STOPPED, f"{self._drain_why}; not all ended in time", at_once=True)
        elif minutes is not None and now - self._began > minutes * 60:
            self._drain(f"--max-minutes {minutes:g} are over")
        for child, why in self._vigil.hung(now):
            self._log.warning("killed", child=child.spec.name, why=why)
            self._screen.say(f"{child.spec.name} {why}: killed")
            children.kill(child)
        if self._link.trouble != self._trouble:
            self._trouble = self._link.trouble
            self._screen.say(
                f"run.db takes nothing ({self._trouble}): make room on its disk, the run waits"
                if self._trouble
                else "run.db can be written again: the run goes on"
            )
        if self._link.refused and not self._refusal_told:
            self._refusal_told = True
            self._screen.say(f"the coordinator refuses its supervisor: {self._link.refused}")

    def _look(self, now: float) -> None:
        news = self._jobs.news() if self._jobs is not None else ""
        if news:
            self._screen.say(f"--launch: {news}")
        try:
            snapshot = self._ledger.poll()
        except sqlite3.DatabaseError as error:
            self._end(Kind.FAULT, f"{self._run_dir / 'run.db'} can't be read: {error}")
            return
        if snapshot is not None:
            self.snapshot = snapshot
            if snapshot.tasks:
                self._note(snapshot.recorded)
            self._write_best(snapshot)
        if snapshot is not None or now >= self._next_show:
            self._next_show = now + SHOW_S
            members = crew.members(self._fleet.places, self.snapshot, time.time(), now)
            self._screen.show(self.snapshot, members, now - self._began)

    def _write_best(self, snapshot: Snapshot) -> None:
        for task in snapshot.tasks:
            best = task.best
            if best is None or self._best.get(task.name) == best.number:
                continue
            self._best[task.name] = best.number
            try:
                outcome.write_best(self._run_dir, self._ledger, self._settings, task)
            except OSError as error:
                # It is in run.db all the same, and is written again at the end.
                self._screen.say(f"can't write {task.name}'s best: {error.strerror}")

    # --- the end -----------------------------------------------------------------------------

    def _close(self, ending: Ending) -> None:
        """End every process: told first, then killed; stop waiting only for the unkillable."""
        self._fleet.close()
        kill_at = time.monotonic()
        if not ending.at_once:
            self._fleet.terminate()
            kill_at += GRACE_S
        while self._fleet.living:
            now = time.monotonic()
            if now >= kill_at:
                self._fleet.kill()
            if now > kill_at + KILL_S:
                pids = ", ".join(str(child.pid) for child in self._fleet.living)
                self._screen.say(f"these processes can't be ended: {pids}")
                break
            for event in self._watch.wait(0.1):
                if isinstance(event, Child):
                    self._fleet.bury(event, now)
                elif event in STOP_SIGNALS:
                    kill_at = now
        self._fleet.sweep()
