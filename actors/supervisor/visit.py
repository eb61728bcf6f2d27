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

from actors.supervisor import children
from actors.supervisor.children import Child
from actors.supervisor.flags import UsageError
from actors.supervisor.fleet import Died, Fleet
from actors.supervisor.link import Link
from actors.supervisor.patience import Patience
from actors.supervisor.vigil import Vigil
from actors.supervisor.watch import STOP_SIGNALS, Event, Watch
from protocol.tickets import Ticket
from protocol.values import Role, Value

LOOK_S = 0.25
TRY_S = 4.0  # at one of several addresses, before the next one
SILENT_LEASES = 2.0  # a run that has answered may say nothing for so many leases' time
DRAIN_S = 28.0  # actors hand back what they hold within 25
KILL_S = 10.0  # to be gone when killed; a process can be stuck in a driver


class Leave(IntEnum):
    """The exit statuses of a machine that has joined."""

    DONE = 0  # the run is over, or it was asked to leave
    USAGE = 2  # the ticket, or what it was to lend
    STOPPED = 3  # before the run's end: by a second signal, or for want of an answer
    FAULT = 4


class Left(Value, frozen=True, kw_only=True):
    """How a visit ended."""

    status: Leave
    why: str = ""


class Visit:
    """One machine at one run."""

    def __init__(
        self,
        *,
        ticket: Ticket,
        machine: str,
        settle_in: Callable[[str, str], Fleet],
        watch: Watch,
        say: Callable[[str], None],
        log: FilteringBoundLogger,
        minutes: float | None = None,
        wait_minutes: float,
        over: Callable[[], bool],
    ) -> None:
        """`settle_in` gets the address and the run's settings, and returns what is to be served;
        `over`: whether this machine can see that the run is finished.
        """
        self._ticket = ticket
        self._slot = f"{Role.SUPERVISOR}@{machine}"
        self._settle_in = settle_in
        self._watch = watch
        self._say = say
        self._log = log
        self._fleet: Fleet | None = None
        self._vigil: Vigil | None = None
        self._began = time.monotonic()
        self._until = self._began + minutes * 60 if minutes is not None else None
        self._wait_minutes = wait_minutes
        # Each of its addresses is tried, however short the wait.
        round_s = TRY_S * len(ticket.addresses)
        self._patience = Patience(wait_minutes * 60, usual_s=round_s, now=self._began)
        self._over = over
        self._leaving: Left | None = None
        self._kill_at = 0.0
        self._try = -1
        self._next_look = 0.0  # at what the ticket and its folder say
        self._estranged_told = False
        self._link = self._knock()

    def serve(self) -> Left:
        """Stay until the run is over or somebody asks to leave; return why it ended."""
        try:
            while not self._gone():
                self._turn()
        except OSError as error:
            self._leave(Leave.FAULT, f"{error.strerror or error}: {error.filename or 'the system'}")
        finally:
            # Also on a bug of ours: nothing may be left that nobody watches.
            self._end_all()
            self._link.close(said=True)
        return self._leaving or Left(status=Leave.FAULT)

    def _gone(self) -> bool:
        if self._leaving is None:
            return False
        return self._fleet is None or not self._fleet.living or time.monotonic() > self._kill_at

    def _turn(self) -> None:
        for event in self._watch.wait(LOOK_S):
            self._handle(event)
        now = time.monotonic()
        self._link.pump(now)
        self._heed_link(now)
        self._heed_silence(now)
        if self._fleet is not None and self._vigil is not None:
            self._fleet.start_due(now)
            for child, why in self._vigil.hung(now):
                self._say(f"{child.spec.name} {why}: killed")
                children.kill(child)
        if self._until is not None and now > self._until:
            self._until = None
            self._leave(Leave.DONE, "--max-minutes are over")

    # --- the run -----------------------------------------------------------------------------

    def _knock(self) -> Link:
        self._try += 1
        addresses = self._ticket.addresses
        self._address = addresses[self._try % len(addresses)]
        self._next_try = time.monotonic() + TRY_S
        if self._try == len(addresses):
            self._say(
                f"{self._ticket.run} does not answer yet: waiting for it,"
                f" {self._wait_minutes:g} minutes at most (--max-wait)"
            )
        link = Link(
            self._address,
            slot=self._slot,
            credential=self._ticket.credential(Role.SUPERVISOR),
        )
        for descriptor in link.descriptors:
            self._watch.descriptor(descriptor)
        return link

    def _heed_link(self, now: float) -> None:
        link = self._link
        if link.denied or link.refused:
            why = link.refused or "the ticket has expired, was revoked, or is another run's"
            self._leave(Leave.USAGE, f"{self._ticket.run} does not let this machine in: {why}")
        elif link.retired:
            self._leave(Leave.DONE, link.retired)
        elif link.welcome is not None and self._fleet is None and self._leaving is None:
            try:
                self._fleet = self._settle_in(self._address, link.welcome.settings)
            except UsageError as error:
                self._leave(Leave.USAGE, str(error))
                return
            self._say(f"joined {self._ticket.run} at {self._address} as {self._slot}")
            self._vigil = Vigil(self._fleet, link)
            self._patience.usual_s = SILENT_LEASES * link.welcome.lease_s
            self._fleet.start_all(now)
        elif link.welcome is None and now > self._next_try and self._leaving is None:
            if link.estranged and not self._estranged_told:
                self._estranged_told = True
                self._say(
                    f"who listens at {self._address} is not {self._ticket.run}, or it has new keys:"
                    " waiting for it; another run has a ticket of its own in its run folder"
                )
            for descriptor in link.descriptors:
                self._watch.forget(descriptor)
            link.close()
            self._link = self._knock()

    def _heed_silence(self, now: float) -> None:
        """Leave a run that has ended meanwhile, or from which nothing comes for too long.

        Nobody listening looks the same before a run and after it; what can be told apart is a
        ticket that lies where the run says that it is finished.
        """
        self._patience.look(now, self._link.heard)
        if self._patience.spent:
            self._leave(
                Leave.STOPPED,
                f"not heard of for {self._wait_minutes:g} minutes (--max-wait): it is over, has not"
                " begun, or can't be reached from here",
            )
        elif self._patience.worried and now >= self._next_look:
            self._next_look = now + TRY_S
            if self._over():
                self._leave(Leave.DONE, "its folder says that the run is finished")
            elif time.time() >= self._ticket.expires:
                self._leave(Leave.USAGE, "the ticket has expired meanwhile: ask for another")

    # --- what happens ------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if isinstance(event, Child):
            if self._fleet is not None:
                self._died(self._fleet.bury(event, time.monotonic()))
        elif event in STOP_SIGNALS:
            self._interrupted(event)
        elif self._fleet is not None:
            self._fleet.sweep()

    def _died(self, died: Died) -> None:
        name = died.spec.name
        self._log.info("died", child=name, how=died.how, restart_in_s=died.restart_in_s)
        self._link.lost(name, died.incarnation, died.how)
        if died.too_often:
            intensity = died.spec.intensity
            self._leave(
                Leave.FAULT,
                f"{name} died more than {intensity.limit} times in {intensity.window_s:.0f} s"
                f" (last: {died.how}); its last words are in logs/{name}.out",
            )
        elif died.restart_in_s is not None and died.status != 0:
            self._say(f"{name} died ({died.how}): starts again in {died.restart_in_s:.1f} s")

    def _interrupted(self, number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        if self._leaving is None:
            self._leave(Leave.DONE, f"asked to leave by {name}")
            self._say(
                f"asked to leave by {name}: handing back what is under way,"
                f" {DRAIN_S:.0f} s at most; Ctrl-C again stops at once"
            )
        else:
            self._leaving = Left(status=Leave.STOPPED, why=f"stopped at once by {name}")
            self._kill_at = time.monotonic()

    def _leave(self, status: Leave, why: str) -> None:
        """Start nothing more; have what runs hand its work back, and then go."""
        if self._leaving is not None:
            return
        self._log.info("leaving", status=int(status), why=why)
        self._leaving = Left(status=status, why=why)
        self._kill_at = time.monotonic() + (DRAIN_S if status is Leave.DONE else 0.0)
        if self._fleet is not None:
            self._fleet.close()
            self._fleet.terminate()

    def _end_all(self) -> None:
        """Kill what has not left by itself; stop waiting only for the unkillable."""
        fleet = self._fleet
        if fleet is None:
            return
        fleet.close()
        give_up = time.monotonic() + KILL_S
        while fleet.living and time.monotonic() < give_up:
            fleet.kill()
            for event in self._watch.wait(0.1):
                if isinstance(event, Child):
                    died = fleet.bury(event, time.monotonic())
                    self._link.lost(died.spec.name, died.incarnation, died.how)
        fleet.sweep()
        with suppress(OSError):
            self._link.pump(time.monotonic())
