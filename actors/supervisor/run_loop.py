"""The supervision loop of a run: from the first start to the end of the last process.

The loop restarts dead children within their intensity.  The first Ctrl-C drains the run, the second
ends it at once.  The loop promises to return, and that no process of the run is left then.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from enum import StrEnum

from actors import deadlines
from actors.supervisor.process_loop import POLL_S, ProcessLoop, system_error_reason
from actors.supervisor.processes.child_process import ChildProcess
from actors.supervisor.processes.child_specs import COORDINATOR
from actors.supervisor.processes.event_poller import signal_name
from actors.supervisor.processes.launcher_client import LaunchNews
from actors.supervisor.processes.process_tree import ChildExit
from actors.supervisor.reporting.run_data import run_results, worker_status
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from actors.supervisor.reporting.screens.screen import Screen
from actors.supervisor.run_folder import RunFolder
from protocol.run_db import RUN_DB
from protocol.settings import Settings
from protocol.values import Role, Value

# The screen is drawn this often when nothing changes: drawing takes time from the evaluators.
SHOW_S = 1.0


class EndKind(StrEnum):
    """How the supervision of a run ends."""

    OVER = "over"  # the coordinator ended: `run.db` says how the run stands
    STOPPED = "stopped"
    FAULT = "fault"


class RunEnd(Value, frozen=True, kw_only=True):
    """Why the supervision of a run ended."""

    kind: EndKind
    reason: str = ""
    immediately: bool = False  # kill the processes instead of asking them to leave


class RunLoop:
    """One supervisor's service of one run."""

    def __init__(
        self,
        *,
        folder: RunFolder,
        settings: Settings,
        process_loop: ProcessLoop,
        reader: RunReader,
        screen: Screen,
    ) -> None:
        self.snapshot = Snapshot()
        self._folder = folder
        self._settings = settings
        self._process_loop = process_loop
        self._processes = process_loop.processes
        self._coordinator = process_loop.coordinator
        self._reader = reader
        self._screen = screen
        self._ending: RunEnd | None = None
        self._began = time.monotonic()
        self._next_read = 0.0  # of run.db
        self._next_show = 0.0
        self._launch_news = LaunchNews(folder.path) if settings.launch else None
        self._drain_until: float | None = None
        self._drain_reason = ""
        self._written_best: dict[str, int] = {}  # task -> the node that its best file holds
        self._refusal_shown = False
        self._last_directive: int | None = None  # that was shown; None: before the first snapshot
        self._shown_trouble = ""
        self._returned_shown: set[str] = set()  # work that machines hand back again and again

    def serve(self) -> RunEnd:
        """Start everything, keep it alive until the run ends, then end everything."""
        try:
            self._processes.start_all(time.monotonic())
            while self._ending is None:
                self._step()
        except OSError as error:
            # No process can be started, or the folder is gone: waiting would not help.
            self._end(EndKind.FAULT, system_error_reason(error))
        finally:
            # Also after a bug of ours: no process may be left without a supervisor.
            self._end_processes(self._ending or RunEnd(kind=EndKind.FAULT, immediately=True))
        self._next_show = 0.0
        self._show_run(time.monotonic())
        return self._ending or RunEnd(kind=EndKind.FAULT)

    def _step(self) -> None:
        limit_s = min(POLL_S, self._next_read - time.monotonic())
        for event in self._process_loop.events(limit_s, self._is_candidates_fault):
            if isinstance(event, ChildExit):
                self._on_child_exit(event)
            else:
                self._on_signal(event)
        now = time.monotonic()
        self._coordinator.pump(now)
        if self._ending is None:
            self._process_loop.keep_alive(now)
            self._keep_time(now)
            self._show_coordinator_state()
        if now >= self._next_read:
            self._next_read = now + POLL_S
            self._show_run(now)

    # --- events ------------------------------------------------------------------------------

    def _is_candidates_fault(self, child: ChildProcess) -> bool:
        """Whether candidate code ran in a dead evaluator.

        Another process may have killed it, but from outside the two cases look the same.
        """
        return child.spec.role == Role.EVALUATOR and self._reader.ran_candidate_code(
            child.incarnation
        )

    def _on_child_exit(self, child_exit: ChildExit) -> None:
        is_coordinator = child_exit.spec.name == COORDINATOR
        if child_exit.exceeded_restarts:
            self._end(EndKind.FAULT, self._process_loop.too_many_deaths(child_exit))
        elif is_coordinator and child_exit.status == 0:
            self._end(EndKind.OVER, self._drain_reason)
        elif is_coordinator and self._drain_until is not None:
            self._end(EndKind.STOPPED, self._drain_reason)
        else:
            self._process_loop.say_restart(child_exit)

    def _on_signal(self, number: signal.Signals) -> None:
        self._process_loop.log.info("interrupted", signal=number.name)
        if self._drain_until is None:
            self._drain(f"stopped by {signal_name(number)}")
        else:
            reason = f"stopped at once by {signal_name(number)}"
            self._end(EndKind.STOPPED, reason, immediately=True)

    def _drain(self, reason: str) -> None:
        drain_s = deadlines.RUN_DRAIN_S
        self._drain_until = time.monotonic() + drain_s
        self._drain_reason = reason
        self._processes.close()
        self._screen.say(
            f"{reason}: ending what is under way, {drain_s:.0f} s at most; Ctrl-C again stops at"
            " once"
        )
        if self._processes.is_up(COORDINATOR):
            self._coordinator.drain()
        else:
            self._end(EndKind.STOPPED, reason)

    def _end(self, kind: EndKind, reason: str, *, immediately: bool = False) -> None:
        if self._ending is None:
            self._ending = RunEnd(kind=kind, reason=reason, immediately=immediately)

    def _end_processes(self, ending: RunEnd) -> None:
        self._processes.close()
        kill_at = time.monotonic()
        if not ending.immediately:
            self._processes.terminate()
            kill_at += deadlines.TERMINATE_S
        self._process_loop.end_all(kill_at)

    # --- time --------------------------------------------------------------------------------

    def _keep_time(self, now: float) -> None:
        minutes = self._settings.max_minutes
        if self._drain_until is not None:
            if now > self._drain_until:
                reason = f"{self._drain_reason}; not all ended in time"
                self._end(EndKind.STOPPED, reason, immediately=True)
        elif minutes is not None and now - self._began > minutes * 60:
            self._drain(f"--max-minutes {minutes:g} are over")

    # --- what the user sees ------------------------------------------------------------------

    def _show_coordinator_state(self) -> None:
        trouble = self._coordinator.trouble
        if trouble != self._shown_trouble:
            self._shown_trouble = trouble
            self._screen.say(
                f"run.db can't be written ({trouble}): make room on its disk, the run waits"
                if trouble
                else "run.db can be written again: the run goes on"
            )
        refusal = self._coordinator.refusal_reason
        if refusal and not self._refusal_shown:
            self._refusal_shown = True
            self._screen.say(f"the coordinator refuses its supervisor: {refusal}")

    def _show_run(self, now: float) -> None:
        news = self._launch_news.changed_summary() if self._launch_news is not None else ""
        if news:
            self._screen.say(f"--launch: {news}")
        if lost := self._folder.lost_part:
            # Its processes would go on in files that no path leads to, and buy replies for them.
            reason = f"{lost} was moved or removed: put it back, then resume"
            self._end(EndKind.FAULT, reason, immediately=True)
            return
        try:
            snapshot = self._reader.poll()
        except sqlite3.DatabaseError as error:
            self._end(EndKind.FAULT, f"{self._folder.path / RUN_DB} can't be read: {error}")
            return
        if snapshot is not None:
            self.snapshot = snapshot
            self._show_directives(snapshot)
            self._show_returned(snapshot)
            if snapshot.tasks:
                self._folder.note_recorded(snapshot.recorded)
            self._write_best(snapshot)
        if snapshot is not None or now >= self._next_show:
            self._next_show = now + SHOW_S
            workers = worker_status.worker_statuses(
                self._processes.slots, self.snapshot, time.time(), now
            )
            self._screen.show(self.snapshot, workers, now - self._began)

    def _show_directives(self, snapshot: Snapshot) -> None:
        """Show what became of each new directive; those of earlier starts were shown then."""
        last = max((one.id for one in snapshot.directives), default=0)
        if self._last_directive is not None:
            for one in snapshot.directives:
                if one.id > self._last_directive:
                    self._screen.say(one.line)
        self._last_directive = last

    def _show_returned(self, snapshot: Snapshot) -> None:
        """Show once each piece of work that no machine stays long enough for."""
        for one in snapshot.returned:
            if one.work not in self._returned_shown:
                self._returned_shown.add(one.work)
                self._screen.say(one.line)

    def _write_best(self, snapshot: Snapshot) -> None:
        for task in snapshot.tasks:
            best = task.best
            if best is None or self._written_best.get(task.name) == best.number:
                continue
            self._written_best[task.name] = best.number
            try:
                run_results.write_best(self._folder.path, self._reader, self._settings, task)
            except OSError as error:
                # The best is in run.db all the same, and its file is written again at the end.
                self._screen.say(f"can't write {task.name}'s best: {error.strerror}")
