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

from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.hang_detector import HangDetector
from actors.supervisor.processes import child_process
from actors.supervisor.processes.child_process import ChildProcess, output_file
from actors.supervisor.processes.child_specs import COORDINATOR
from actors.supervisor.processes.event_poller import STOP_SIGNALS, EventPoller, PollerEvent
from actors.supervisor.processes.launcher_client import LaunchNews
from actors.supervisor.processes.process_tree import ChildExit, ProcessTree
from actors.supervisor.reporting import run_results, worker_status
from actors.supervisor.reporting.run_reader import RunReader
from actors.supervisor.reporting.screen import Screen
from actors.supervisor.reporting.snapshot import Snapshot
from protocol.settings import Settings
from protocol.values import Role, Value

POLL_S = 0.25
MIN_SHOW_INTERVAL_S = (
    1.0  # at least so often, when nothing changes: drawing takes time from what is measured
)
DRAIN_S = 30.0
GRACE_S = 5.0  # to leave by itself when told
KILL_S = 10.0  # to be gone when killed; a process can be stuck in a driver


class EndKind(StrEnum):
    """How a shift ends."""

    OVER = "over"  # the coordinator ended: the ledger says how the run stands
    STOPPED = "stopped"
    FAULT = "fault"


class RunEnd(Value, frozen=True, kw_only=True):
    """Why the supervision of a run ended."""

    kind: EndKind
    reason: str = ""
    immediately: bool = False  # kill instead of asking


class RunLoop:
    """One supervisor's service of one run."""

    def __init__(
        self,
        *,
        run_dir: Path,
        settings: Settings,
        processes: ProcessTree,
        poller: EventPoller,
        coordinator: CoordinatorClient,
        reader: RunReader,
        screen: Screen,
        log: FilteringBoundLogger,
        note: Callable[[int], None],
    ) -> None:
        """`note` keeps outside of `run.db` how many attempts are recorded in it."""
        self.snapshot = Snapshot()
        self._run_dir = run_dir
        self._settings = settings
        self._processes = processes
        self._poller = poller
        self._coordinator = coordinator
        self._reader = reader
        self._screen = screen
        self._log = log
        self._note = note
        self._ending: RunEnd | None = None
        self._began = time.monotonic()
        self._next_look = 0.0
        self._jobs = LaunchNews(run_dir) if settings.launch else None
        self._next_show = 0.0
        self._hang_detector = HangDetector(processes, coordinator, settings.lease_s)
        self._drain_until: float | None = None
        self._drain_why = ""
        self._best: dict[str, int] = {}  # task -> the node that its best file holds
        self._refusal_told = False
        self._trouble = ""

    def serve(self) -> RunEnd:
        """Start everything, keep it alive until the run ends, then end everything."""
        try:
            self._processes.start_all(time.monotonic())
            while self._ending is None:
                self._step()
        except OSError as error:
            # No process can be started, or the folder is gone: not to be got over by waiting.
            self._end(EndKind.FAULT, f"{error.strerror or error}: {error.filename or 'the system'}")
        finally:
            # Also on a bug of ours: nothing may be left that nobody watches.
            self._close(self._ending or RunEnd(kind=EndKind.FAULT, immediately=True))
        self._next_show = 0.0
        self._show_run(time.monotonic())
        return self._ending or RunEnd(kind=EndKind.FAULT)

    def _step(self) -> None:
        for event in self._poller.wait(self._pause_s(time.monotonic())):
            self._handle(event)
        now = time.monotonic()
        self._coordinator.pump(now)
        if self._ending is None:
            self._processes.start_due(now)
            self._keep_time(now)
        if now >= self._next_look:
            self._next_look = now + POLL_S
            self._show_run(now)

    # --- what happens ------------------------------------------------------------------------

    def _handle(self, event: PollerEvent) -> None:
        if isinstance(event, ChildProcess):
            # Also an evaluator that is killed by others: of whoever runs a candidate none can tell.
            excused = event.spec.role == Role.EVALUATOR and self._reader.ran_candidate_code(
                event.incarnation
            )
            self._on_child_exit(self._processes.reap(event, time.monotonic(), excused=excused))
        elif event in STOP_SIGNALS:
            self._on_signal(event)
        else:
            self._processes.kill_orphans()

    def _on_child_exit(self, child_exit: ChildExit) -> None:
        name = child_exit.spec.name
        self._log.info(
            "died", child=name, how=child_exit.description, restart_in_s=child_exit.restart_in_s
        )
        if name == COORDINATOR:
            self._coordinator.coordinator_restarted()
        if child_exit.spec.fenced:
            self._coordinator.report_lost(name, child_exit.incarnation, child_exit.description)
        if child_exit.exceeded_restarts:
            intensity = child_exit.spec.intensity
            self._end(
                EndKind.FAULT,
                f"{name} died more than {intensity.limit} times in {intensity.period_s:.0f} s"
                f" (last: {child_exit.description}{self._last_output_line(name)})",
            )
        elif name == COORDINATOR and child_exit.status == 0:
            self._end(EndKind.OVER, self._drain_why)
        elif name == COORDINATOR and self._drain_until is not None:
            self._end(EndKind.STOPPED, self._drain_why)
        elif child_exit.restart_in_s is not None and child_exit.status != 0:
            soon = f"in {child_exit.restart_in_s:.1f} s" if child_exit.restart_in_s else "at once"
            self._screen.say(f"{name} died ({child_exit.description}): starts again {soon}")

    def _last_output_line(self, name: str) -> str:
        """Return the last line that a child printed, for a person."""
        try:
            text = output_file(self._run_dir, name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"; it said: {lines[-1][:300]}" if lines else ""

    def _on_signal(self, number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        self._log.info("interrupted", signal=number.name)
        if self._drain_until is None:
            self._drain(f"stopped by {name}")
        else:
            self._end(EndKind.STOPPED, f"stopped at once by {name}", at_once=True)

    def _drain(self, reason: str) -> None:
        self._drain_until = time.monotonic() + DRAIN_S
        self._drain_why = reason
        self._processes.close()
        self._screen.say(
            f"{reason}: ending what is under way, {DRAIN_S:.0f} s at most; Ctrl-C again stops at "
            f"once"
        )
        if self._processes.is_up(COORDINATOR):
            self._coordinator.drain()
        else:
            self._end(EndKind.STOPPED, reason)

    def _end(self, kind: EndKind, reason: str, *, at_once: bool = False) -> None:
        if self._ending is None:
            self._ending = RunEnd(kind=kind, reason=reason, immediately=at_once)

    # --- time --------------------------------------------------------------------------------

    def _pause_s(self, now: float) -> float:
        due = self._processes.next_due()
        return min(POLL_S, self._next_look - now, *([due - now] if due is not None else []))

    def _keep_time(self, now: float) -> None:
        minutes = self._settings.max_minutes
        if self._drain_until is not None:
            if now > self._drain_until:
                self._end(
                    EndKind.STOPPED, f"{self._drain_why}; not all ended in time", at_once=True
                )
        elif minutes is not None and now - self._began > minutes * 60:
            self._drain(f"--max-minutes {minutes:g} are over")
        for child, why in self._hang_detector.hung_children(now):
            self._log.warning("killed", child=child.spec.name, why=why)
            self._screen.say(f"{child.spec.name} {why}: killed")
            child_process.kill_child(child)
        if self._coordinator.trouble != self._trouble:
            self._trouble = self._coordinator.trouble
            self._screen.say(
                f"run.db takes nothing ({self._trouble}): make room on its disk, the run waits"
                if self._trouble
                else "run.db can be written again: the run goes on"
            )
        if self._coordinator.refusal_reason and not self._refusal_told:
            self._refusal_told = True
            self._screen.say(
                f"the coordinator refuses its supervisor: {self._coordinator.refusal_reason}"
            )

    def _show_run(self, now: float) -> None:
        news = self._jobs.changed_summary() if self._jobs is not None else ""
        if news:
            self._screen.say(f"--launch: {news}")
        try:
            snapshot = self._reader.poll()
        except sqlite3.DatabaseError as error:
            self._end(EndKind.FAULT, f"{self._run_dir / 'run.db'} can't be read: {error}")
            return
        if snapshot is not None:
            self.snapshot = snapshot
            if snapshot.tasks:
                self._note(snapshot.recorded)
            self._write_best(snapshot)
        if snapshot is not None or now >= self._next_show:
            self._next_show = now + MIN_SHOW_INTERVAL_S
            members = worker_status.worker_statuses(
                self._processes.supervised, self.snapshot, time.time(), now
            )
            self._screen.show(self.snapshot, members, now - self._began)

    def _write_best(self, snapshot: Snapshot) -> None:
        for task in snapshot.tasks:
            best = task.best
            if best is None or self._best.get(task.name) == best.number:
                continue
            self._best[task.name] = best.number
            try:
                run_results.write_best(self._run_dir, self._reader, self._settings, task)
            except OSError as error:
                # It is in run.db all the same, and is written again at the end.
                self._screen.say(f"can't write {task.name}'s best: {error.strerror}")

    # --- the end -----------------------------------------------------------------------------

    def _close(self, ending: RunEnd) -> None:
        """End every process: told first, then killed; stop waiting only for the unkillable."""
        self._processes.close()
        kill_at = time.monotonic()
        if not ending.immediately:
            self._processes.terminate()
            kill_at += GRACE_S
        while self._processes.living:
            now = time.monotonic()
            if now >= kill_at:
                self._processes.kill()
            if now > kill_at + KILL_S:
                pids = ", ".join(str(child.pid) for child in self._processes.living)
                self._screen.say(f"these processes can't be ended: {pids}")
                break
            for event in self._poller.wait(0.1):
                if isinstance(event, ChildProcess):
                    self._processes.reap(event, now)
                elif event in STOP_SIGNALS:
                    kill_at = now
        self._processes.kill_orphans()
