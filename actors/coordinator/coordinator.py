"""The coordinator: the thin shell around the searches, the fleet and the store.

One round of its loop: read what arrived, let the pure machines say what follows, lease waiting
work, commit all of it as one transaction, and only then tell anybody.  Killed at any moment it
loses nothing that it has said: the next one begins from `run.db`.
"""

from __future__ import annotations

import time

import zmq
from structlog.typing import FilteringBoundLogger

from actors import failpoints
from actors.coordinator.books import Books
from actors.coordinator.database import Database
from actors.coordinator.decisions import Decisions
from actors.coordinator.doorkeeper import Doorkeeper
from actors.coordinator.fleet import Fleet
from actors.coordinator.grants import Grant
from actors.coordinator.health import Health
from actors.coordinator.mail import Mail
from actors.coordinator.origin import machine_of
from actors.coordinator.purse import Purse
from actors.coordinator.reception import Reception
from actors.coordinator.store import Store
from actors.coordinator.tasks import Tasks
from actors.coordinator.waiting import task_of
from actors.coordinator.work import ROLE_OF, parse_work
from protocol import messages
from protocol.settings import Settings
from protocol.values import WORKERS, Role, Task

TICK_S = 0.25
DRAIN_S = 25.0
FAREWELL_S = 0.3


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
        supervisor: str = "",
    ) -> None:
        """`supervisor`: its life; under another one's all of this machine's processes are new."""
        self.settings = settings
        self.log = log
        self.db = database
        self.store = Store(database)
        self.books = Books(database)
        self.door = door
        self.mail = Mail(socket, log, lambda name: name in self.fleet.peers, door)
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
        self.reception = Reception(
            settings=settings,
            epoch=self.epoch,
            fleet=self.fleet,
            health=self.health,
            books=self.books,
            purse=self.purse,
            tasks=self.tasks,
            mail=self.mail,
            door=door,
            event=self._event,
            stop=self.drain,
        )
        self._restore()
        if supervisor and self.store.served_by(supervisor):
            self._bury_former()
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
            self.reception.hear(sender, origin, message)
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
                self.reception.ended(self.fleet.lost(grant.incarnation))
        failpoints.reach("after-told")
        if over is None:
            return None
        self._farewell(over[0])
        return over[0]

    @property
    def draining(self) -> bool:
        """Whether the run is to end soon."""
        return self._drain_asked or self._draining is not None

    def ask_to_drain(self) -> None:
        """Drain from the next round on: all that a signal handler may do."""
        self._drain_asked = True

    def drain(self, status: str = "stopped", reason: str = "") -> None:
        """Lease nothing more; end when nothing is held."""
        if self._draining is None:
            self._draining = (time.monotonic() + DRAIN_S, status, reason)
            self.reception.closing = True
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
        self.reception.ended(self.fleet.expire(now))
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
        self.fleet.restore(grants, self.books.losses(), self.books.cuts())
        for slot, role, incarnation in self.books.workers_up():
            self.fleet.expect(slot, Role(role), incarnation, now)
        self.tasks.take_up({task_of(grant.work) for grant in grants})
        self.purse.lose_orphans({(row.incarnation, row.work) for row in grants}, time.time())
        self._event("coordinator", f"epoch {self.epoch}")

    def _bury_former(self) -> None:
        """Another supervisor serves the run now: whoever worked here under the former is dead."""
        self.reception.ended(self.fleet.machine_lost(""))
        for slot, _, incarnation in self.books.workers_up():
            if not machine_of(slot):
                how = "its supervisor ended"
                self.books.worker_gone(slot, incarnation, "lost", how, time.time())

    def _event(self, what: str, subject: str, detail: str = "") -> None:
        self.books.add_event(time.time(), what, subject, detail)
        self.log.info(what, subject=subject, detail=detail)
