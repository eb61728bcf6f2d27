"""The coordinator: the thin shell around the searches, the fleet and the store.

One round of its loop: read what arrived, let the pure machines say what follows, lease waiting
work, commit all of it as one transaction, and only then tell anybody.  Killed at any moment it
loses nothing that it has said: the next one begins from `run.db`.
"""

from __future__ import annotations

import time
from collections import Counter

import zmq
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from actors import failpoints
from actors.coordinator import suspicion
from actors.coordinator.books import Books
from actors.coordinator.bounds import bounded
from actors.coordinator.database import Database
from actors.coordinator.decisions import Decisions
from actors.coordinator.doorkeeper import Doorkeeper
from actors.coordinator.fleet import LOSSES, Fleet
from actors.coordinator.grants import Ended, Grant
from actors.coordinator.health import Health
from actors.coordinator.mail import Mail
from actors.coordinator.origin import Origin
from actors.coordinator.purse import Purse
from actors.coordinator.store import Store
from actors.coordinator.tasks import Tasks
from actors.coordinator.waiting import task_of
from actors.coordinator.work import ROLE_OF, parse_work
from protocol import messages
from protocol.messages import Lease
from protocol.settings import Settings, to_toml
from protocol.values import WORKERS, Role, Task

TICK_S = 0.25
DRAIN_S = 25.0
FAREWELL_S = 0.3
QUARANTINE_S = 10.0
COMPLAINTS = 100  # of one ticket, that are recorded


class Coordinator:
    """Serves one run until it is finished, stopped or blocked."""

    def __init__(
        self,
        *,
        database: Database,
        socket: zmq.Socket[bytes],
        settings: Settings,
        tasks: list[Task],
        log: FilteringBoundLogger,
        door: Doorkeeper | None = None,
    ) -> None:
        self.settings = settings
        self.log = log
        self.db = database
        self.store = Store(database)
        self.books = Books(database)
        self.door = door
        self.mail = Mail(socket, log, lambda name: name in self.fleet.peers, door)
        self._complaints: Counter[str] = Counter()  # by ticket
        self.purse = Purse(self.books, settings.max_cost)
        self._drain_asked = False
        self._draining: tuple[float, str, str] | None = None  # (until, status, reason)
        self._here = [role for role in WORKERS if settings.count(role)]
        self._tick = time.monotonic()
        self.epoch = self.store.begin(time.time())
        self.fleet = Fleet(lease_s=settings.lease_s, epoch=self.books.last_epoch())
        self.health = Health(self.fleet, self.books)
        for task in tasks:
            self.store.add_task(task, settings.search.budget)
        self.tasks = Tasks(
            settings=settings,
            store=self.store,
            books=self.books,
            decisions=Decisions(database),
            fleet=self.fleet,
            event=self._event,
        )
        self._restore()
        self.db.commit()

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> str:
        """Serve until the run is over; return its status."""
        status = None
        while status is None:
            self.mail.wait(self._tick + TICK_S - time.monotonic())
            status = self.round()
        return status

    def round(self) -> str | None:
        """Read, decide, commit, tell; return the run's status once it is over."""
        for sender, origin, message in self.mail.read():
            failpoints.reach_message("hear", message)
            self._heard(sender, origin, message)
            failpoints.reach_message("heard", message)
        self.tasks.open()
        now = time.monotonic()
        if self.door is not None:
            self.door.mind_crowd(now)
        if self.mail.empty:
            # What a peer said while we were stopped is heard before anybody is called late.
            self._keep_time(now)
        self._allow_calls()
        granted = [] if self._draining else self._grant(now)
        orders = [(grant, self.tasks.order(grant.lease)) for grant in granted]
        over = self._over(now)
        if over is not None:
            self.purse.lose_orphans(set(), time.time())
            self.store.set_status(*over)
        failpoints.reach("before-commit")
        self.db.commit()
        failpoints.reach("after-commit")
        self.mail.tell()
        for grant, order in orders:
            if not self.mail.send(grant.incarnation, order):
                self._ended(self.fleet.lost(grant.incarnation))
        failpoints.reach("after-told")
        if over is None:
            return None
        self._farewell(over[0])
        return over[0]

    def ask_to_drain(self) -> None:
        """Drain from the next round on: all that a signal handler may do."""
        self._drain_asked = True

    def drain(self, status: str = "stopped", reason: str = "") -> None:
        """Lease nothing more; end when nothing is held."""
        if self._draining is None:
            self._draining = (time.monotonic() + DRAIN_S, status, reason)
            self.store.set_status("draining", reason)
            self._retire_all("the run stops")

    def _keep_time(self, now: float) -> None:
        if self._drain_asked:
            self.drain()
        if now < self._tick + TICK_S:
            return
        self.store.add_seconds(now - self._tick)
        self._tick = now
        self._expire(now)
        self.health.write(now)

    def _expire(self, now: float) -> None:
        missed = set(self.fleet.silent)
        self._ended(self.fleet.expire(now))
        for incarnation in self.fleet.silent.keys() - missed:
            slot = self.fleet.silent[incarnation].slot
            how = f"not heard of for {self.settings.lease_s:g} s"
            self.books.worker_gone(slot, incarnation, "silent", how, time.time())
            self._event("silent", slot, how)

    def _over(self, now: float) -> tuple[str, str] | None:
        """Return the final (status, reason) when the run is over."""
        if self.tasks.finished:
            refusals = self.tasks.refusals()
            return ("refused", "; ".join(refusals)) if refusals else ("finished", "")
        if self._draining is not None:
            until, status, reason = self._draining
            if not self.fleet.grants or now > until:
                return status, reason
        elif self.settings.until_idle and self.fleet.idle(self._here):
            return "idle", "nothing is left for the roles that run here"
        return None

    def _retire_all(self, reason: str) -> None:
        for peer in self.fleet.peers.values():
            if peer.role in WORKERS or not peer.origin.local:
                self.mail.say(peer.incarnation, messages.Retire(reason=reason))

    def _farewell(self, status: str) -> None:
        self._retire_all(f"the run is {status}")
        self.mail.tell()
        time.sleep(FAREWELL_S)  # linger counts from the socket's close; let its pipes empty first

    # --- leasing -----------------------------------------------------------------------------

    def _grant(self, now: float) -> list[Grant]:
        granted = self.fleet.grant(now)
        for grant in granted:
            slot = self.fleet.peers[grant.incarnation].slot
            self.books.grant(grant.epoch, grant.work, slot, grant.incarnation, time.time())
        return granted

    def _ended(self, ended: list[Ended], why: str = "") -> None:
        """Record leases that ended without a result, and what that means for the candidate."""
        for end in ended:
            grant = end.grant
            self.books.end_lease(grant.epoch, end.outcome, time.time())
            seen = end.outcome == "returned"
            self.purse.lease_over(grant.incarnation, grant.work, time.time(), seen=seen)
            self._event("lease " + end.outcome, grant.work, grant.incarnation)
            if grant.incarnation in self.fleet.peers and end.outcome != "returned":
                self.mail.say(grant.incarnation, messages.Revoke(lease=grant.lease))
            if end.exhausted:
                self.tasks.give_up(grant.work, why or f"{LOSSES} evaluators were lost while it ran")

    # --- hearing -----------------------------------------------------------------------------

    def _heard(self, sender: str, origin: Origin, said: messages.ToCoordinator) -> None:
        peer = self.fleet.peers.get(sender)
        others = self.fleet.count(origin) if isinstance(said, messages.Hello) else 0
        wrong = suspicion.complaint(origin, sender, said, peer, others)
        if wrong:
            self._complain(sender, origin, wrong)
            return
        message = bounded(said, peer.kind if peer else "")
        if isinstance(message, messages.Hello):
            self._hello(sender, origin, message)
        elif peer is None:
            self.mail.say(sender, messages.Who())
        elif isinstance(message, messages.Beat):
            now = time.monotonic()
            self._answer(sender, *self.fleet.beat(sender, message, now))
            heard = self.health.answer(peer, message, now)
            if heard is not None:
                self.mail.say(sender, heard)
            self.books.worker_doing(peer.slot, message.doing, time.time())
        elif peer.role is Role.SUPERVISOR:
            self._heard_supervisor(message)
        else:
            self._heard_worker(sender, peer.role, message)

    def _complain(self, sender: str, origin: Origin, wrong: str) -> None:
        """Refuse a message that claims what can't be, and with it its sender's leases."""
        self.mail.say(sender, messages.Refuse(reason=wrong))
        peer = self.fleet.peers.get(sender)
        if peer is not None and peer.origin.ticket == origin.ticket:
            self._ended(self.fleet.dismissed(sender))
            self.books.worker_gone(peer.slot, sender, "dismissed", wrong, time.time())
        self._complaints[origin.ticket] += 1
        if self._complaints[origin.ticket] <= COMPLAINTS:  # a liar must not fill the disk
            self._event("refused", origin.ticket or sender, wrong)

    def _heard_supervisor(self, message: messages.ToCoordinator) -> None:
        match message:
            case messages.Lost() if self._may_be_lost(message):
                self._ended(self.fleet.lost(message.incarnation))
                self.books.worker_gone(
                    message.slot, message.incarnation, "lost", message.how, time.time()
                )
                self._event("lost", message.slot, message.how)
            case messages.Drain():
                self.drain()

    def _may_be_lost(self, loss: messages.Lost) -> bool:
        """Whether that incarnation, where it is known, sits in the slot that the loss names."""
        seats = [self.fleet.peers.get(loss.incarnation), *self.fleet.held_by(loss.incarnation)]
        return all(seat.slot == loss.slot for seat in seats if seat is not None)

    def _heard_worker(self, sender: str, role: Role, message: messages.ToCoordinator) -> None:
        match message:
            case messages.Reserve() | messages.Answered():
                self._spending(sender, role, message)
            case messages.Running():
                grant = self.fleet.running(message.lease, sender)
                if grant is not None:
                    self.books.mark_running(grant.epoch)
            case messages.Returned():
                self.purse.call_lost(sender, message, time.time())
                tried = message.tried and not self.fleet.doubt(sender)
                end = self.fleet.returned(message.lease, sender, tried=tried)
                self._ended([end] if end else [], message.reason)
                if message.quarantined:
                    self._quarantined(sender, message.reason)
                self.mail.say(sender, messages.Recorded(lease=message.lease))
            case messages.Blocked() if self.fleet.holds(sender, message.lease):
                self._blocked(sender, message)
            case messages.Planned() | messages.Written() | messages.Repaired():
                self._result(sender, message)
            case messages.Unusable() | messages.Measured() | messages.Evaluated():
                self._result(sender, message)

    def _blocked(self, sender: str, message: messages.Blocked) -> None:
        """Stop the run; but what is wrong on a joined machine alone stops that machine alone."""
        self._event("blocked", message.lease.work, message.reason)
        origin = self.fleet.peers[sender].origin
        if origin.local:
            self.drain("blocked", message.reason)
        else:
            self._complain(sender, origin, f"no call can succeed there: {message.reason}")

    def _hello(self, sender: str, origin: Origin, hello: messages.Hello) -> None:
        self._answer(sender, *self.fleet.hello(hello, time.monotonic(), origin))
        self.books.worker_up(hello.slot, hello.role, sender, hello.pid, time.time())
        self._event("hello", hello.slot, f"pid {hello.pid}")
        self.mail.say(
            sender,
            messages.Welcome(
                epoch=self.epoch,
                beat_s=self.settings.beat_s,
                lease_s=self.settings.lease_s,
                settings=self._terms(origin, hello.role),
            ),
        )
        if self._draining:
            self.mail.say(sender, messages.Retire(reason="the run stops"))

    def _terms(self, origin: Origin, role: Role) -> str:
        """Return what a joined machine's supervisor needs to know of the run's settings."""
        if self.door is None or origin.local or role is not Role.SUPERVISOR:
            return ""
        terms = self.settings
        if not self.door.lends_agents(origin.ticket):
            terms = replace(terms, base_url="")  # it may hold a password
        return to_toml(terms)

    def _quarantined(self, sender: str, why: str) -> None:
        """Leave a device alone for a while: the others go on, and its next lease examines it."""
        slot = self.fleet.peers[sender].slot
        self.fleet.rest(sender, time.monotonic() + QUARANTINE_S)
        self.books.worker_quarantined(slot, why)
        self._event("quarantined", slot, why)

    def _answer(self, sender: str, revoked: list[Lease], ended: list[Ended]) -> None:
        for lease in revoked:
            self.mail.say(sender, messages.Revoke(lease=lease))
        self._ended(ended)

    def _spending(
        self, sender: str, role: Role, message: messages.Reserve | messages.Answered
    ) -> None:
        if isinstance(message, messages.Reserve):
            if self.fleet.holds(sender, message.lease):
                self.purse.asked(sender, role, message, time.time())
        elif self._held(message.lease, sender):
            # Stored whoever holds the lease by now: it was paid for.
            self.purse.answered(sender, role, message, time.time())
            self.mail.say(sender, messages.Stored(lease=message.lease))

    def _allow_calls(self) -> None:
        """Let agents make the calls that fit into --max-cost; stop when none ever will."""
        if self._draining:
            return
        for incarnation, reserved in self.purse.grant(time.time()):
            self.mail.say(incarnation, reserved)
        refusal = self.purse.refusal()
        if refusal:
            self._event("blocked", "", refusal)
            self.drain("blocked", refusal)

    def _held(self, lease: Lease, sender: str, result: messages.Result | None = None) -> bool:
        """Whether that lease was ever the sender's, and can end so; else the sender is refused."""
        if not self.books.was_granted(lease, sender):
            wrong = f"{lease.work} was never leased to it"
        elif result is not None and not suspicion.fits(parse_work(lease.work)[2], result):
            wrong = f"{lease.work} does not end with {type(result).__name__}"
        else:
            return True
        self._complain(sender, self.fleet.peers[sender].origin, wrong)
        return False

    def _result(self, sender: str, result: messages.Result) -> None:
        """Take a result from whoever holds its lease now; a late one is acknowledged only."""
        if not self._held(result.lease, sender, result):
            return
        self.mail.say(sender, messages.Recorded(lease=result.lease))
        if isinstance(result, messages.Measured) and self._doubted(sender, result):
            return
        if self.fleet.settle(result.lease, sender) is None:
            self._event("late result", result.lease.work, sender)
            return
        self.books.end_lease(result.lease.epoch, "done", time.time())
        self.books.worker_quarantined(self.fleet.peers[sender].slot, "")
        self.purse.lease_over(sender, result.lease.work, time.time(), seen=True)
        self.tasks.result(result)

    def _doubted(self, sender: str, result: messages.Measured) -> bool:
        """Ask our own machine where a guest says that a task can't be measured: it would end it."""
        if result.reference is not None or not self.fleet.doubt(sender):
            return False
        end = self.fleet.returned(result.lease, sender)
        if end is None:
            return False
        if not end.exhausted:
            self.fleet.keep_here(result.lease.work)
        self._ended([end])
        self._event("doubted", result.lease.work, result.problem)
        return True

    # --- beginning and telling ---------------------------------------------------------------

    def _restore(self) -> None:
        """Take up from disk what an earlier coordinator left."""
        now = time.monotonic()
        grants = [
            Grant(
                work=row.work,
                role=ROLE_OF[parse_work(row.work)[2]],
                slot=row.slot,
                incarnation=row.incarnation,
                epoch=row.epoch,
                expires=now + self.settings.lease_s,
                running=row.running,
            )
            for row in self.books.open_leases()
        ]
        self.fleet.restore(grants, self.books.losses())
        for slot, role, incarnation in self.books.workers_up():
            self.fleet.expect(slot, Role(role), incarnation, now)
        self.tasks.take_up({task_of(grant.work) for grant in grants})
        self.purse.lose_orphans({(row.incarnation, row.work) for row in grants}, time.time())
        self._event("coordinator", f"epoch {self.epoch}")

    def _event(self, what: str, subject: str, detail: str = "") -> None:
        self.books.add_event(time.time(), what, subject, detail)
        self.log.info(what, subject=subject, detail=detail)
