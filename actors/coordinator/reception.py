"""What peers say, and what follows from it: the door by which all messages enter the run.

What a message claims is held against what its sender may claim before anything believes it; what
comes from outside is bounded.  Everything here happens within one round of the coordinator: it is
on disk before anybody is answered.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Protocol

from msgspec.structs import replace

from actors.coordinator import suspicion
from actors.coordinator.books import Books
from actors.coordinator.bounds import bounded
from actors.coordinator.charges import LOSSES
from actors.coordinator.doorkeeper import Doorkeeper
from actors.coordinator.fleet import Fleet
from actors.coordinator.grants import Ended
from actors.coordinator.health import Health
from actors.coordinator.mail import Mail
from actors.coordinator.origin import Origin
from actors.coordinator.purse import Purse
from actors.coordinator.tasks import Tasks
from actors.coordinator.work import parse_work
from protocol import messages
from protocol.messages import Lease
from protocol.settings import Settings, to_toml
from protocol.values import Role

QUARANTINE_S = 10.0
COMPLAINTS = 100  # of one ticket, that are recorded


class Event(Protocol):
    """Writes down what happened to whom."""

    def __call__(self, what: str, subject: str, detail: str = "") -> None: ...


class Stop(Protocol):
    """Ends the run: nothing more is leased."""

    def __call__(self, status: str, reason: str) -> None: ...


class Reception:
    """Hears all peers of one run."""

    def __init__(
        self,
        *,
        settings: Settings,
        epoch: int,
        fleet: Fleet,
        health: Health,
        books: Books,
        purse: Purse,
        tasks: Tasks,
        mail: Mail,
        door: Doorkeeper | None,
        event: Event,
        stop: Stop,
    ) -> None:
        self.closing = False  # whoever says Hello now is sent home
        self._settings = settings
        self._epoch = epoch  # of the coordinator, not of a lease
        self._fleet = fleet
        self._health = health
        self._books = books
        self._purse = purse
        self._tasks = tasks
        self._mail = mail
        self._door = door
        self._event = event
        self._stop = stop
        self._complaints: Counter[str] = Counter()  # by ticket

    def hear(self, sender: str, origin: Origin, said: messages.ToCoordinator) -> None:
        """Take one message of a peer, believed as far as its sender may claim what it says."""
        peer = self._fleet.peers.get(sender)
        others = self._fleet.count(origin) if isinstance(said, messages.Hello) else 0
        wrong = suspicion.complaint(origin, sender, said, peer, others)
        if wrong:
            self._complain(sender, origin, wrong)
            return
        message = bounded(said, peer.kind if peer else "")
        if isinstance(message, messages.Hello):
            self._hello(sender, origin, message)
        elif peer is None:
            self._mail.say(sender, messages.Who())
        elif isinstance(message, messages.Beat):
            now = time.monotonic()
            self._answer(sender, *self._fleet.beat(sender, message, now))
            heard = self._health.answer(peer, message, now)
            if heard is not None:
                self._mail.say(sender, heard)
            self._books.worker_doing(peer.slot, message.doing, time.time())
        elif peer.role is Role.SUPERVISOR:
            self._heard_supervisor(message)
        else:
            self._heard_worker(sender, peer.role, message)

    def ended(self, ended: list[Ended], why: str = "") -> None:
        """Record leases that ended without a result, and what that means for the candidate."""
        for end in ended:
            grant = end.grant
            self._books.end_lease(grant.epoch, end.outcome, time.time())
            seen = end.outcome == "returned"
            self._purse.lease_over(grant.incarnation, grant.work, time.time(), seen=seen)
            self._event("lease " + end.outcome, grant.work, grant.incarnation)
            if grant.incarnation in self._fleet.peers and end.outcome != "returned":
                self._mail.say(grant.incarnation, messages.Revoke(lease=grant.lease))
            if end.exhausted:
                lost = f"{LOSSES} evaluators were lost while it ran"
                self._tasks.give_up(grant.work, why or lost)

    def _complain(self, sender: str, origin: Origin, wrong: str) -> None:
        """Refuse a message that claims what can't be, and with it its sender's leases."""
        self._mail.say(sender, messages.Refuse(reason=wrong))
        peer = self._fleet.peers.get(sender)
        if peer is not None and peer.origin.ticket == origin.ticket:
            self.ended(self._fleet.dismissed(sender))
            self._books.worker_gone(peer.slot, sender, "dismissed", wrong, time.time())
        self._complaints[origin.ticket] += 1
        if self._complaints[origin.ticket] <= COMPLAINTS:  # a liar must not fill the disk
            self._event("refused", origin.ticket or sender, wrong)

    def _heard_supervisor(self, message: messages.ToCoordinator) -> None:
        match message:
            case messages.Lost() if self._may_be_lost(message):
                self.ended(self._fleet.lost(message.incarnation))
                self._books.worker_gone(
                    message.slot, message.incarnation, "lost", message.how, time.time()
                )
                self._event("lost", message.slot, message.how)
            case messages.Drain():
                self._stop("stopped", "")

    def _may_be_lost(self, loss: messages.Lost) -> bool:
        """Whether that incarnation, where it is known, sits in the slot that the loss names."""
        seats = [self._fleet.peers.get(loss.incarnation), *self._fleet.held_by(loss.incarnation)]
        return all(seat.slot == loss.slot for seat in seats if seat is not None)

    def _heard_worker(self, sender: str, role: Role, message: messages.ToCoordinator) -> None:
        match message:
            case messages.Reserve() | messages.Answered():
                self._spending(sender, role, message)
            case messages.Running():
                grant = self._fleet.running(message.lease, sender)
                if grant is not None:
                    self._books.mark_running(grant.epoch)
            case messages.Returned():
                self._purse.call_lost(sender, message, time.time())
                if not (message.tried and self._doubted(sender, message.lease, message.reason)):
                    end = self._fleet.returned(message.lease, sender, tried=message.tried)
                    self.ended([end] if end else [], message.reason)
                if message.quarantined:
                    self._quarantined(sender, message.reason)
                self._mail.say(sender, messages.Recorded(lease=message.lease))
            case messages.Blocked() if self._fleet.holds(sender, message.lease):
                self._blocked(sender, message)
            case messages.Planned() | messages.Written() | messages.Repaired():
                self._result(sender, message)
            case messages.Unusable() | messages.Measured() | messages.Evaluated():
                self._result(sender, message)

    def _blocked(self, sender: str, message: messages.Blocked) -> None:
        """Stop the run; but what is wrong on a joined machine alone stops that machine alone."""
        self._event("blocked", message.lease.work, message.reason)
        origin = self._fleet.peers[sender].origin
        if origin.local:
            self._stop("blocked", message.reason)
        else:
            self._complain(sender, origin, f"no call can succeed there: {message.reason}")

    def _hello(self, sender: str, origin: Origin, hello: messages.Hello) -> None:
        self._answer(sender, *self._fleet.hello(hello, time.monotonic(), origin))
        self._books.worker_up(hello.slot, hello.role, sender, hello.pid, time.time())
        self._event("hello", hello.slot, f"pid {hello.pid}")
        self._mail.say(
            sender,
            messages.Welcome(
                epoch=self._epoch,
                beat_s=self._settings.beat_s,
                lease_s=self._settings.lease_s,
                settings=self._terms(origin, hello.role),
            ),
        )
        if self.closing:
            self._mail.say(sender, messages.Retire(reason="the run stops"))

    def _terms(self, origin: Origin, role: Role) -> str:
        """Return what a joined machine's supervisor needs to know of the run's settings."""
        if self._door is None or origin.local or role is not Role.SUPERVISOR:
            return ""
        terms = self._settings
        if not self._door.lends_agents(origin.ticket):
            terms = replace(terms, base_url="")  # it may hold a password
        return to_toml(terms)

    def _quarantined(self, sender: str, why: str) -> None:
        """Leave a device alone for a while: the others go on, and its next lease examines it."""
        slot = self._fleet.peers[sender].slot
        self._fleet.rest(sender, time.monotonic() + QUARANTINE_S)
        self._books.worker_quarantined(slot, why)
        self._event("quarantined", slot, why)

    def _answer(self, sender: str, revoked: list[Lease], ended: list[Ended]) -> None:
        for lease in revoked:
            self._mail.say(sender, messages.Revoke(lease=lease))
        self.ended(ended)

    def _spending(
        self, sender: str, role: Role, message: messages.Reserve | messages.Answered
    ) -> None:
        if isinstance(message, messages.Reserve):
            if self._fleet.holds(sender, message.lease):
                self._purse.asked(sender, role, message, time.time())
        elif self._held(message.lease, sender):
            # Stored whoever holds the lease by now: it was paid for.
            self._purse.answered(sender, role, message, time.time())
            self._mail.say(sender, messages.Stored(lease=message.lease))

    def _held(self, lease: Lease, sender: str, result: messages.Result | None = None) -> bool:
        """Whether that lease was ever the sender's, and can end so; else the sender is refused."""
        if not self._books.was_granted(lease, sender):
            wrong = f"{lease.work} was never leased to it"
        elif result is not None and not suspicion.fits(parse_work(lease.work)[2], result):
            wrong = f"{lease.work} does not end with {type(result).__name__}"
        else:
            return True
        self._complain(sender, self._fleet.peers[sender].origin, wrong)
        return False

    def _result(self, sender: str, result: messages.Result) -> None:
        """Take a result from whoever holds its lease now; a late one is acknowledged only."""
        if not self._held(result.lease, sender, result):
            return
        self._mail.say(sender, messages.Recorded(lease=result.lease))
        if (
            isinstance(result, messages.Measured)
            and result.reference is None
            and self._doubted(sender, result.lease, result.problem)
        ):
            return
        if self._fleet.settle(result.lease, sender) is None:
            self._event("late result", result.lease.work, sender)
            return
        self._books.end_lease(result.lease.epoch, "done", time.time())
        self._books.worker_quarantined(self._fleet.peers[sender].slot, "")
        self._purse.lease_over(sender, result.lease.work, time.time(), seen=True)
        peer = self._fleet.peers[sender]
        self._tasks.result(suspicion.believed(result, peer.origin, self._settings, peer.role))

    def _doubted(self, sender: str, lease: Lease, problem: str) -> bool:
        """Ask our own machine, where it can look, when a guest says that a task is at fault."""
        end = self._fleet.doubted(lease, sender, time.monotonic())
        if end is None:
            return False
        self.ended([end])
        self._event("doubted", lease.work, problem)
        return True
