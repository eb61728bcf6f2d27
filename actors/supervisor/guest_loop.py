"""A machine's stay at a run on another one: it knocks, lends its processes, and leaves.

The shift of a supervisor without a coordinator and without a run.db.  It waits until the run
answers, for as long as it was told to; keeps its processes alive; drains on the first signal, ends
at once on the second.  It promises to return, and that no process of its own is left when it does.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from structlog.typing import FilteringBoundLogger

from actors.cli import UsageError
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.hang_detector import HangDetector
from actors.supervisor.processes import child_process
from actors.supervisor.processes.child_process import ChildProcess
from actors.supervisor.processes.event_poller import STOP_SIGNALS, EventPoller, PollerEvent
from actors.supervisor.processes.process_tree import ChildExit, ProcessTree
from actors.supervisor.silence_timeout import SilenceTimeout
from protocol.tickets import Ticket
from protocol.values import Role, Value

POLL_S = 0.25
CONNECT_TRY_S = 4.0  # at one of several addresses, before the next one
SILENCE_IN_LEASES = 2.0  # a run that has answered may say nothing for so many leases' time
DRAIN_S = 28.0  # actors hand back what they hold within 25
KILL_S = 10.0  # to be gone when killed; a process can be stuck in a driver


class GuestExit(IntEnum):
    """The exit statuses of a machine that has joined."""

    DONE = 0  # the run is over, or it was asked to leave
    USAGE = 2  # the ticket, or what it was to lend
    STOPPED = 3  # before the run's end: by a second signal, or for want of an answer
    FAULT = 4


class GuestResult(Value, frozen=True, kw_only=True):
    """How a visit ended."""

    status: GuestExit
    reason: str = ""


class GuestLoop:
    """One machine at one run."""

    def __init__(
        self,
        *,
        ticket: Ticket,
        machine: str,
        make_specs: Callable[[str, str], ProcessTree],
        poller: EventPoller,
        say: Callable[[str], None],
        log: FilteringBoundLogger,
        minutes: float | None = None,
        wait_minutes: float,
        over: Callable[[], bool],
    ) -> None:
        """`make_specs` gets the address and the run's settings, and returns what is to be served;
        `over`: whether this machine can see that the run is finished.
        """
        self._ticket = ticket
        self._slot = f"{Role.SUPERVISOR}@{machine}"
        self._make_specs = make_specs
        self._poller = poller
        self._say = say
        self._log = log
        self._processes: ProcessTree | None = None
        self._hang_detector: HangDetector | None = None
        self._began = time.monotonic()
        self._until = self._began + minutes * 60 if minutes is not None else None
        self._wait_minutes = wait_minutes
        # Each of its addresses is tried, however short the wait.
        round_s = CONNECT_TRY_S * len(ticket.addresses)
        self._silence = SilenceTimeout(wait_minutes * 60, usual_s=round_s, now=self._began)
        self._over = over
        self._leaving: GuestResult | None = None
        self._kill_at = 0.0
        self._try = -1
        self._next_poll = 0.0  # at what the ticket and its folder say
        self._estranged_told = False
        self._coordinator = self._connect()

    def serve(self) -> GuestResult:
        """Stay until the run is over or somebody asks to leave; return why it ended."""
        try:
            while not self._coordinator_lost():
                self._step()
        except OSError as error:
            self._leave(
                GuestExit.FAULT, f"{error.strerror or error}: {error.filename or 'the system'}"
            )
        finally:
            # Also on a bug of ours: nothing may be left that nobody watches.
            self._end_all()
            self._coordinator.close(said=True)
        return self._leaving or GuestResult(status=GuestExit.FAULT)

    def _coordinator_lost(self) -> bool:
        if self._leaving is None:
            return False
        return (
            self._processes is None
            or not self._processes.living
            or time.monotonic() > self._kill_at
        )

    def _step(self) -> None:
        for event in self._poller.wait(POLL_S):
            self._handle(event)
        now = time.monotonic()
        self._coordinator.pump(now)
        self._follow_coordinator(now)
        self._check_silence(now)
        if self._processes is not None and self._hang_detector is not None:
            self._processes.start_due(now)
            for child, why in self._hang_detector.hung_children(now):
                self._say(f"{child.spec.name} {why}: killed")
                child_process.kill_child(child)
        if self._until is not None and now > self._until:
            self._until = None
            self._leave(GuestExit.DONE, "--max-minutes are over")

    # --- the run -----------------------------------------------------------------------------

    def _connect(self) -> CoordinatorClient:
        self._try += 1
        addresses = self._ticket.addresses
        self._address = addresses[self._try % len(addresses)]
        self._next_try = time.monotonic() + CONNECT_TRY_S
        if self._try == len(addresses):
            self._say(
                f"{self._ticket.run} does not answer yet: waiting for it,"
                f" {self._wait_minutes:g} minutes at most (--max-wait)"
            )
        coordinator = CoordinatorClient(
            self._address,
            slot=self._slot,
            credential=self._ticket.credential(Role.SUPERVISOR),
        )
        for descriptor in coordinator.descriptors:
            self._poller.add_descriptor(descriptor)
        return coordinator

    def _follow_coordinator(self, now: float) -> None:
        coordinator = self._coordinator
        if coordinator.is_denied or coordinator.refusal_reason:
            why = (
                coordinator.refusal_reason
                or "the ticket has expired, was revoked, or is another run's"
            )
            self._leave(GuestExit.USAGE, f"{self._ticket.run} does not let this machine in: {why}")
        elif coordinator.is_retired:
            self._leave(GuestExit.DONE, coordinator.is_retired)
        elif coordinator.welcome is not None and self._processes is None and self._leaving is None:
            try:
                self._processes = self._make_specs(self._address, coordinator.welcome.settings)
            except UsageError as error:
                self._leave(GuestExit.USAGE, str(error))
                return
            self._say(f"joined {self._ticket.run} at {self._address} as {self._slot}")
            self._hang_detector = HangDetector(self._processes, coordinator)
            self._silence.usual_s = SILENCE_IN_LEASES * coordinator.welcome.lease_s
            self._processes.start_all(now)
        elif coordinator.welcome is None and now > self._next_try and self._leaving is None:
            if coordinator.has_key_mismatch and not self._estranged_told:
                self._estranged_told = True
                self._say(
                    f"who listens at {self._address} is not {self._ticket.run}, or it has new keys:"
                    " waiting for it; another run has a ticket of its own in its run folder"
                )
            for descriptor in coordinator.descriptors:
                self._poller.remove_descriptor(descriptor)
            coordinator.close()
            self._coordinator = self._connect()

    def _check_silence(self, now: float) -> None:
        """Leave a run that has ended meanwhile, or from which nothing comes for too long.

        Nobody listening looks the same before a run and after it; what can be told apart is a
        ticket that lies where the run says that it is finished.
        """
        self._silence.update(now, self._coordinator.last_heard)
        if self._silence.has_expired:
            self._leave(
                GuestExit.STOPPED,
                f"not heard of for {self._wait_minutes:g} minutes (--max-wait): it is over, has not"
                " begun, or can't be reached from here",
            )
        elif self._silence.is_suspicious and now >= self._next_poll:
            self._next_poll = now + CONNECT_TRY_S
            if self._over():
                self._leave(GuestExit.DONE, "its folder says that the run is finished")
            elif time.time() >= self._ticket.expires:
                self._leave(GuestExit.USAGE, "the ticket has expired meanwhile: ask for another")

    # --- what happens ------------------------------------------------------------------------

    def _handle(self, event: PollerEvent) -> None:
        if isinstance(event, ChildProcess):
            if self._processes is not None:
                self._on_child_exit(self._processes.reap(event, time.monotonic()))
        elif event in STOP_SIGNALS:
            self._on_signal(event)
        elif self._processes is not None:
            self._processes.kill_orphans()

    def _on_child_exit(self, child_exit: ChildExit) -> None:
        name = child_exit.spec.name
        self._log.info(
            "died", child=name, how=child_exit.description, restart_in_s=child_exit.restart_in_s
        )
        self._coordinator.report_lost(name, child_exit.incarnation, child_exit.description)
        if child_exit.exceeded_restarts:
            intensity = child_exit.spec.intensity
            self._leave(
                GuestExit.FAULT,
                f"{name} died more than {intensity.limit} times in {intensity.period_s:.0f} s"
                f" (last: {child_exit.description}); its last words are in logs/{name}.out",
            )
        elif child_exit.restart_in_s is not None and child_exit.status != 0:
            self._say(
                f"{name} died ({child_exit.description}): starts again in "
                f"{child_exit.restart_in_s:.1f} s"
            )

    def _on_signal(self, number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        if self._leaving is None:
            self._leave(GuestExit.DONE, f"asked to leave by {name}")
            self._say(
                f"asked to leave by {name}: handing back what is under way,"
                f" {DRAIN_S:.0f} s at most; Ctrl-C again stops at once"
            )
        else:
            self._leaving = GuestResult(
                status=GuestExit.STOPPED, reason=f"stopped at once by {name}"
            )
            self._kill_at = time.monotonic()

    def _leave(self, status: GuestExit, why: str) -> None:
        """Start nothing more; have what runs hand its work back, and then go."""
        if self._leaving is not None:
            return
        self._log.info("leaving", status=int(status), why=why)
        self._leaving = GuestResult(status=status, reason=why)
        self._kill_at = time.monotonic() + (DRAIN_S if status is GuestExit.DONE else 0.0)
        if self._processes is not None:
            self._processes.close()
            self._processes.terminate()

    def _end_all(self) -> None:
        """Kill what has not left by itself; stop waiting only for the unkillable."""
        processes = self._processes
        if processes is None:
            return
        processes.close()
        give_up = time.monotonic() + KILL_S
        while processes.living and time.monotonic() < give_up:
            processes.kill()
            for event in self._poller.wait(0.1):
                if isinstance(event, ChildProcess):
                    child_exit = processes.reap(event, time.monotonic())
                    self._coordinator.report_lost(
                        child_exit.spec.name, child_exit.incarnation, child_exit.description
                    )
        processes.kill_orphans()
        with suppress(OSError):
            self._coordinator.pump(time.monotonic())
