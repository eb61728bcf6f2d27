"""What the supervision of a run and of a guest share: one process tree and its events.

The loop waits for the first event, reaps and reports dead children, restarts them, kills hung ones
and ends all of them.  `RunLoop` and `GuestLoop` drive it and decide what an event means.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

from actors.deadlines import KILL_S
from actors.log import FilteringBoundLogger
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.hang_detector import LEASE_S, HangDetector
from actors.supervisor.processes import child_process
from actors.supervisor.processes.child_process import ChildProcess
from actors.supervisor.processes.child_specs import COORDINATOR
from actors.supervisor.processes.event_poller import STOP_SIGNALS, EventPoller
from actors.supervisor.processes.process_tree import ChildExit, ProcessTree

POLL_S = 0.25  # the longest wait of a supervision loop for its next event
END_POLL_S = 0.1


class ProcessLoop:
    """One supervisor's processes, and its connection to the coordinator."""

    def __init__(
        self,
        *,
        processes: ProcessTree,
        poller: EventPoller,
        coordinator: CoordinatorClient,
        say: Callable[[str], None],
        log: FilteringBoundLogger,
        lease_s: float = LEASE_S,
    ) -> None:
        self.processes = processes
        self.coordinator = coordinator
        self.say = say
        self.log = log
        self._poller = poller
        self._lease_s = lease_s
        self._watch_coordinator()

    def replace_coordinator(self, coordinator: CoordinatorClient) -> None:
        """Use another connection to the coordinator; the present one is closed."""
        for descriptor in self.coordinator.descriptors:
            self._poller.remove_descriptor(descriptor)
        self.coordinator.close()
        self.coordinator = coordinator
        self._watch_coordinator()

    def _watch_coordinator(self) -> None:
        for descriptor in self.coordinator.descriptors:
            self._poller.add_descriptor(descriptor)
        self._hang_detector = HangDetector(self.processes, self.coordinator, self._lease_s)

    def events(
        self, limit_s: float, is_excused: Callable[[ChildProcess], bool] = lambda _child: False
    ) -> Iterator[ChildExit | signal.Signals]:
        """Wait `limit_s` at most; yield children that died, already reaped, and stop signals.

        A death that `is_excused` does not count against the child's restart intensity.
        """
        due = self.processes.next_due()
        wait_s = limit_s if due is None else min(limit_s, due - time.monotonic())
        for event in self._poller.wait(wait_s):
            if isinstance(event, ChildProcess):
                yield self._reap(event, excused=is_excused(event))
            elif event in STOP_SIGNALS:
                yield event
            else:
                self.processes.kill_orphans()

    def _reap(self, child: ChildProcess, *, excused: bool) -> ChildExit:
        child_exit = self.processes.reap(child, time.monotonic(), excused=excused)
        name, how = child_exit.spec.name, child_exit.description
        self.log.info("died", child=name, how=how, restart_in_s=child_exit.restart_in_s)
        if name == COORDINATOR:
            self.coordinator.coordinator_restarted()
        self._report_lost(child_exit)
        return child_exit

    def _report_lost(self, child_exit: ChildExit) -> None:
        if child_exit.spec.fenced:
            self.coordinator.report_lost(
                child_exit.spec.name, child_exit.incarnation, child_exit.description
            )

    def say_restart(self, child_exit: ChildExit) -> None:
        """Tell the user when a child that failed starts again; say nothing if it does not."""
        delay_s = child_exit.restart_in_s
        if delay_s is not None and child_exit.status != 0:
            soon = f"in {delay_s:.1f} s" if delay_s else "at once"
            self.say(f"{child_exit.spec.name} died ({child_exit.description}): starts again {soon}")

    def too_many_deaths(self, child_exit: ChildExit) -> str:
        """Return the line about a child that exceeded its restart intensity."""
        spec = child_exit.spec
        output = self.processes.last_output_line(spec.name)
        said = f"; it said: {output}" if output else ""
        return (
            f"{spec.name} died more than {spec.intensity.limit} times in"
            f" {spec.intensity.period_s:.0f} s (last: {child_exit.description}{said})"
        )

    def keep_alive(self, now: float) -> None:
        """Start the children whose restart is due, and kill those that hang."""
        self.processes.start_due(now)
        for child, reason in self._hang_detector.hung_children(now):
            self.log.warning("killed", child=child.spec.name, why=reason)
            self.say(f"{child.spec.name} {reason}: killed")
            child_process.kill_child(child)

    def end_all(self, kill_at: float, *, report_losses: bool = False) -> None:
        """End every process; kill from `kill_at` on (monotonic), or from the next stop signal on.

        The wait ends `KILL_S` after that, with a line about the processes that remain.
        """
        self.processes.close()
        while self.processes.living:
            now = time.monotonic()
            if now >= kill_at:
                self.processes.kill()
            if now > kill_at + KILL_S:
                pids = ", ".join(str(child.pid) for child in self.processes.living)
                self.say(f"these processes can't be ended: {pids}")
                break
            for event in self._poller.wait(END_POLL_S):
                if isinstance(event, ChildProcess):
                    child_exit = self.processes.reap(event, now)
                    if report_losses:
                        self._report_lost(child_exit)
                elif event in STOP_SIGNALS:
                    kill_at = now
        self.processes.kill_orphans()


def system_error_reason(error: OSError) -> str:
    """Return what the system refused, and for which file."""
    return f"{error.strerror or error}: {error.filename or 'the system'}"
