"""The supervision loop of a guest: connect to a run elsewhere, lend processes to it, leave.

This is a supervisor without a coordinator and without a `run.db`.  The loop waits for the run's
answer for a limited time, then keeps its processes alive.  The first signal drains them, the second
ends them at once.  The loop promises to return, and that none of its processes is left then.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from actors import deadlines
from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.log import FilteringBoundLogger
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.guest_machine import GuestMachine
from actors.supervisor.process_loop import POLL_S, ProcessLoop, system_error_reason
from actors.supervisor.processes.event_poller import EventPoller, signal_name
from actors.supervisor.processes.process_tree import ChildExit, ProcessTree
from protocol.values import Role, Value

CONNECT_TRY_S = 4.0  # at one of several addresses, before the next one
SILENCE_IN_LEASES = 2.0  # silence that means nothing, of a run that has answered
MAX_COUNTED_GAP_S = 1.0  # between two checks of the silence; more was a stop of this process


class GuestResult(Value, frozen=True, kw_only=True):
    """How a guest's stay at a run ended."""

    status: ExitStatus
    reason: str = ""


class SilenceTimeout:
    """How long the run has been silent: pure arithmetic on the times of checks.

    From outside, a run that is over looks like one that has not begun: no process listens.  So the
    wait has a limit.  A gap between two checks counts as `MAX_COUNTED_GAP_S` at most: a guest that
    was stopped (Ctrl-Z) could not hear the run.
    """

    def __init__(self, limit_s: float, *, usual_s: float, now: float) -> None:
        """`usual_s`: silence that means nothing, however short the limit."""
        self.usual_s = usual_s
        self._limit_s = limit_s
        self._silent_s = 0.0
        self._checked_at = now

    def update(self, now: float, heard_at: float) -> None:
        """Note that the run's last message came at `heard_at`, on the same clock as `now`."""
        if heard_at > self._checked_at:
            self._silent_s = 0.0
        else:
            self._silent_s += min(now - self._checked_at, MAX_COUNTED_GAP_S)
        self._checked_at = now

    @property
    def is_suspicious(self) -> bool:
        """Whether to look elsewhere for the state of the run."""
        return self._silent_s >= self.usual_s

    @property
    def has_expired(self) -> bool:
        """Whether the run has been silent for longer than the limit."""
        return self._silent_s >= max(self._limit_s, self.usual_s)


class GuestLoop:
    """One machine at one run."""

    def __init__(
        self,
        machine: GuestMachine,
        *,
        processes: ProcessTree,
        poller: EventPoller,
        say: Callable[[str], None],
        log: FilteringBoundLogger,
    ) -> None:
        """`processes` is empty until the coordinator's welcome says what is to run."""
        self._machine = machine
        self._ticket = machine.ticket
        self._processes = processes
        self._say = say
        self._log = log
        self._slot = f"{Role.SUPERVISOR}@{machine.name}"
        self._joined = False
        now = time.monotonic()
        minutes = machine.arguments.minutes
        self._until = now + minutes * 60 if minutes is not None else None
        # Each of the run's addresses is tried, however short the wait.
        round_s = CONNECT_TRY_S * len(self._ticket.addresses)
        self._silence = SilenceTimeout(machine.wait_minutes * 60, usual_s=round_s, now=now)
        self._leaving: GuestResult | None = None
        self._was_asked = False  # by a signal
        self._kill_at = 0.0
        self._connect_tries = 0
        self._next_silence_check = 0.0
        self._key_mismatch_shown = False
        self._process_loop = ProcessLoop(
            processes=processes, poller=poller, coordinator=self._connect(), say=say, log=log
        )

    def serve(self) -> GuestResult:
        """Stay until the run is over or a signal asks to leave; return why the stay ended."""
        try:
            while not self._has_left():
                self._step()
        except OSError as error:
            self._leave(ExitStatus.FAULT, system_error_reason(error))
        finally:
            # Also after a bug of ours: no process may be left without a supervisor.
            self._process_loop.end_all(time.monotonic(), report_losses=True)
            with suppress(OSError):
                self._process_loop.coordinator.pump(time.monotonic())
            self._process_loop.coordinator.close(flush=True)
        return self._leaving or GuestResult(status=ExitStatus.FAULT)

    def _has_left(self) -> bool:
        if self._leaving is None:
            return False
        return not self._processes.living or time.monotonic() > self._kill_at

    def _step(self) -> None:
        for event in self._process_loop.events(POLL_S):
            if isinstance(event, ChildExit):
                self._on_child_exit(event)
            else:
                self._on_signal(event)
        now = time.monotonic()
        self._process_loop.coordinator.pump(now)
        self._follow_coordinator(now)
        self._check_silence(now)
        self._process_loop.keep_alive(now)
        if self._until is not None and now > self._until:
            self._until = None
            self._leave(ExitStatus.DONE, "--max-minutes are over")

    # --- the run -----------------------------------------------------------------------------

    def _connect(self) -> CoordinatorClient:
        """Return a connection to the next of the run's addresses."""
        addresses = self._ticket.addresses
        self._address = addresses[self._connect_tries % len(addresses)]
        self._next_try = time.monotonic() + CONNECT_TRY_S
        if self._connect_tries == len(addresses):
            self._say(
                f"{self._ticket.run} does not answer yet: waiting for it,"
                f" {self._machine.wait_minutes:g} minutes at most (--max-wait)"
            )
        self._connect_tries += 1
        return CoordinatorClient(
            self._address, slot=self._slot, credential=self._ticket.credential(Role.SUPERVISOR)
        )

    def _follow_coordinator(self, now: float) -> None:
        coordinator = self._process_loop.coordinator
        if coordinator.is_denied or coordinator.refusal_reason:
            reason = (
                coordinator.refusal_reason
                or "the ticket has expired, was revoked, or is another run's"
            )
            self._leave(
                ExitStatus.USAGE, f"{self._ticket.run} does not let this machine in: {reason}"
            )
        elif coordinator.retire_reason:
            self._leave(ExitStatus.DONE, coordinator.retire_reason)
        elif self._leaving is not None or self._joined:
            return
        elif coordinator.welcome is not None:
            self._join(coordinator.welcome.settings, coordinator.welcome.lease_s, now)
        elif now > self._next_try:
            if coordinator.has_key_mismatch and not self._key_mismatch_shown:
                self._key_mismatch_shown = True
                self._say(
                    f"the process that listens at {self._address} is not {self._ticket.run}, or"
                    " the run has new keys: waiting for it; another run has a ticket of its own"
                    " in its run folder"
                )
            self._process_loop.replace_coordinator(self._connect())

    def _join(self, settings_text: str, lease_s: float, now: float) -> None:
        """Start what this machine lends."""
        try:
            self._processes.add(self._machine.worker_specs(self._address, settings_text))
        except UsageError as error:
            self._leave(ExitStatus.USAGE, str(error))
            return
        self._joined = True
        self._say(f"joined {self._ticket.run} at {self._address} as {self._slot}")
        self._silence.usual_s = SILENCE_IN_LEASES * lease_s
        self._processes.start_all(now)

    def _check_silence(self, now: float) -> None:
        """Leave a run that has ended in the meantime, or that has been silent for too long.

        An address without a listener looks the same before a run and after it.  The difference can
        be seen only where the ticket is in the folder of a run that is finished.
        """
        self._silence.update(now, self._process_loop.coordinator.last_heard)
        if self._silence.has_expired:
            self._leave(
                ExitStatus.STOPPED,
                f"not heard of for {self._machine.wait_minutes:g} minutes (--max-wait): it is over,"
                " has not begun, or can't be reached from here",
            )
        elif self._silence.is_suspicious and now >= self._next_silence_check:
            self._next_silence_check = now + CONNECT_TRY_S
            if self._machine.is_run_over():
                self._leave(ExitStatus.DONE, "its folder says that the run is finished")
            elif time.time() >= self._ticket.expires:
                self._leave(ExitStatus.USAGE, "the ticket has expired meanwhile: ask for another")

    # --- events ------------------------------------------------------------------------------

    def _on_child_exit(self, child_exit: ChildExit) -> None:
        if child_exit.exceeded_restarts:
            self._leave(ExitStatus.FAULT, self._process_loop.too_many_deaths(child_exit))
        else:
            self._process_loop.say_restart(child_exit)

    def _on_signal(self, number: signal.Signals) -> None:
        name = signal_name(number)
        was_asked, self._was_asked = self._was_asked, True
        if self._leaving is None:
            self._leave(ExitStatus.DONE, f"asked to leave by {name}")
            self._say(
                f"asked to leave by {name}: handing back what is under way,"
                f" {deadlines.GUEST_DRAIN_S:.0f} s at most; Ctrl-C again stops at once"
            )
        elif was_asked:
            self._leaving = GuestResult(
                status=ExitStatus.STOPPED, reason=f"stopped at once by {name}"
            )
            self._kill_at = time.monotonic()

    def _leave(self, status: ExitStatus, reason: str) -> None:
        """Start nothing more; ask the processes to hand back their work and to leave."""
        if self._leaving is not None:
            return
        self._log.info("leaving", status=int(status), why=reason)
        self._leaving = GuestResult(status=status, reason=reason)
        drain_s = deadlines.GUEST_DRAIN_S if status is ExitStatus.DONE else 0.0
        self._kill_at = time.monotonic() + drain_s
        self._processes.close()
        self._processes.terminate()
