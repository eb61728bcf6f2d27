"""The coordinator: the thin shell around the searches, the fleet and the store.

One round of its loop: read what arrived, let the pure machines say what follows, lease waiting
work, commit all of it as one transaction, and only then tell anybody.  Killed at any moment it
loses nothing that it has said: the next one begins from `run.db`.
"""

from __future__ import annotations

import time
from collections import deque

import zmq
from structlog.typing import FilteringBoundLogger

from actors.coordinator.books import Books
from actors.coordinator.database import Database
from actors.coordinator.fleet import LOSSES, Ended, Fleet, Grant
from actors.coordinator.health import Health
from actors.coordinator.mail import Mail
from actors.coordinator.policy import policy_named
from actors.coordinator.scoring import believable, kernel_of, positive, score_us
from actors.coordinator.search import (
    AttemptEnded,
    Confirmed,
    Finish,
    Instruction,
    Measured,
    Offer,
    Refused,
    Save,
    Search,
    Stage,
    StageEnded,
)
from actors.coordinator.store import Store
from actors.coordinator.tree import FAILED
from actors.coordinator.waiting import task_of
from actors.coordinator.work import ROLE_OF, Orders, parse_work, work_id
from protocol import codec, messages
from protocol.messages import Lease
from protocol.settings import Settings
from protocol.values import WORKERS, Reference, Role, Task, Verdict, Word

TICK_S = 0.25
DRAIN_S = 25.0
FAREWELL_S = 0.3
QUARANTINE_S = 10.0


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
    ) -> None:
        self.settings = settings
        self.log = log
        self.db = database
        self.store = Store(database)
        self.books = Books(database)
        self.mail = Mail(socket, log)
        self._drain_asked = False
        self._draining: tuple[float, str, str] | None = None  # (until, status, reason)
        self._offers: dict[str, Offer] = {}
        self._unopened: deque[tuple[Task, int, str]] = deque()
        self._tick = time.monotonic()
        self.epoch = self.store.begin(time.time())
        self.fleet = Fleet(lease_s=settings.lease_s, epoch=self.books.last_epoch())
        self.health = Health(self.fleet, self.books)
        for task in tasks:
            self.store.add_task(task, settings.search.budget)
        stored = self.store.tasks()
        self.searches = {task.name: self._search(task) for task, _, _ in stored}
        self.orders = Orders(self.store, self.books, {task.name: task for task, _, _ in stored})
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
        for sender, message in self.mail.read():
            self._heard(sender, message)
        self._open_tasks()
        now = time.monotonic()
        if self.mail.empty:
            # What a peer said while we were stopped is heard before anybody is called late.
            self._keep_time(now)
        granted = [] if self._draining else self._grant(now)
        orders = [
            (grant, self.orders.message(grant.lease, self._offers[grant.work])) for grant in granted
        ]
        over = self._over(now)
        if over is not None:
            self.store.set_status(*over)
        self.db.commit()
        self.mail.tell()
        for grant, order in orders:
            if not self.mail.send(grant.incarnation, order):
                self._ended(self.fleet.lost(grant.incarnation))
        if over is None:
            return None
        self._farewell()
        return over[0]

    def ask_to_drain(self) -> None:
        """Drain from the next round on: all that a signal handler may do."""
        self._drain_asked = True

    def drain(self, status: str = "stopped", reason: str = "") -> None:
        """Lease nothing more; end when nothing is held."""
        if self._draining is None:
            self._draining = (time.monotonic() + DRAIN_S, status, reason)
            self.store.set_status("draining", reason)
            self._retire_all()

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
        if all(search.finished for search in self.searches.values()):
            problems = self.store.problems()
            if len(problems) == len(self.searches):
                return "refused", "; ".join(problems)
            return "finished", ""
        if self._draining is not None:
            until, status, reason = self._draining
            if not self.fleet.grants or now > until:
                return status, reason
        return None

    def _retire_all(self) -> None:
        for peer in self.fleet.peers.values():
            if peer.role in WORKERS:
                self.mail.say(peer.incarnation, messages.Retire())

    def _farewell(self) -> None:
        self._retire_all()
        self.mail.tell()
        time.sleep(FAREWELL_S)  # linger counts from the socket's close; let its pipes empty first

    # --- leasing -----------------------------------------------------------------------------

    def _grant(self, now: float) -> list[Grant]:
        granted = self.fleet.grant(now)
        for grant in granted:
            slot = self.fleet.peers[grant.incarnation].slot
            self.books.grant(grant.epoch, grant.work, slot, grant.incarnation, time.time())
        return granted

    def _ended(self, ended: list[Ended]) -> None:
        """Record leases that ended without a result, and what that means for the candidate."""
        for end in ended:
            grant = end.grant
            self.books.end_lease(grant.epoch, end.outcome, time.time())
            self._event("lease " + end.outcome, grant.work, grant.incarnation)
            if grant.incarnation in self.fleet.peers and end.outcome != "returned":
                self.mail.say(grant.incarnation, messages.Revoke(lease=grant.lease))
            if end.exhausted:
                self._exhausted(grant.work)

    def _exhausted(self, work: str) -> None:
        task, number, stage = parse_work(work)
        reason = f"{LOSSES} evaluators were lost while it ran"
        del self._offers[work]
        if stage is Stage.CONFIRM:
            self._confirm(task, number, None)
            return
        if stage is Stage.MEASURE:
            self._refuse(task, f"the reference can't be measured: {reason}")
            return
        verdict = Verdict(verdict=Word.CRASHED, reason=reason, stage="check")
        self._record(task, number, verdict)

    # --- hearing -----------------------------------------------------------------------------

    def _heard(self, sender: str, message: messages.ToCoordinator) -> None:
        if isinstance(message, messages.Hello):
            self._hello(sender, message)
            return
        peer = self.fleet.peers.get(sender)
        if peer is None:
            self.mail.say(sender, messages.Who())
        elif not isinstance(message, codec.allowed(peer.role)):  # type: ignore[arg-type]
            kind = type(message).__name__
            self.log.warning("not for this role", slot=peer.slot, role=peer.role, message=kind)
            self.mail.say(sender, messages.Refuse(reason=f"a {peer.role} may not say {kind}"))
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

    def _heard_supervisor(self, message: messages.ToCoordinator) -> None:
        match message:
            case messages.Lost():
                self._ended(self.fleet.lost(message.incarnation))
                self.books.worker_gone(
                    message.slot, message.incarnation, "lost", message.how, time.time()
                )
                self._event("lost", message.slot, message.how)
            case messages.Drain():
                self.drain()

    def _heard_worker(self, sender: str, role: Role, message: messages.ToCoordinator) -> None:
        match message:
            case messages.Answered():
                self._answered(sender, role, message)
            case messages.Running():
                grant = self.fleet.running(message.lease, sender)
                if grant is not None:
                    self.books.mark_running(grant.epoch)
            case messages.Returned():
                end = self.fleet.returned(message.lease, sender)
                self._ended([end] if end else [])
                if message.quarantined:
                    self._quarantined(sender, message.reason)
                self.mail.say(sender, messages.Recorded(lease=message.lease))
            case messages.Blocked():
                self._event("blocked", message.lease.work, message.reason)
                self.drain("blocked", message.reason)
            case messages.Planned() | messages.Written() | messages.Repaired():
                self._result(sender, message)
            case messages.Unusable() | messages.Measured() | messages.Evaluated():
                self._result(sender, message)

    def _hello(self, sender: str, hello: messages.Hello) -> None:
        if hello.incarnation != sender:
            self.mail.say(
                sender, messages.Refuse(reason="the socket's name is not the incarnation")
            )
            return
        self._answer(sender, *self.fleet.hello(hello, time.monotonic()))
        self.books.worker_up(hello.slot, hello.role, sender, hello.pid, time.time())
        self._event("hello", hello.slot, f"pid {hello.pid}")
        self.mail.say(
            sender,
            messages.Welcome(
                epoch=self.epoch, beat_s=self.settings.beat_s, lease_s=self.settings.lease_s
            ),
        )
        if self._draining:
            self.mail.say(sender, messages.Retire())

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

    def _answered(self, sender: str, role: Role, message: messages.Answered) -> None:
        # Stored whoever holds the lease by now: it was paid for.
        self.books.add_call(message.lease.work, role, message.call, time.time())
        self.mail.say(sender, messages.Stored(lease=message.lease))
        self._heed_cost()

    def _heed_cost(self) -> None:
        cap = self.settings.max_cost
        if cap is not None and self.books.spent_usd() >= cap:
            self.drain("blocked", f"--max-cost {cap} US dollars is spent")

    def _result(self, sender: str, result: messages.Result) -> None:
        """Take a result from whoever holds its lease now; a late one is acknowledged only."""
        self.mail.say(sender, messages.Recorded(lease=result.lease))
        if self.fleet.settle(result.lease, sender) is None:
            self._event("late result", result.lease.work, sender)
            return
        self.books.end_lease(result.lease.epoch, "done", time.time())
        self.books.worker_quarantined(self.fleet.peers[sender].slot, "")
        task, number, stage = parse_work(result.lease.work)
        del self._offers[result.lease.work]
        match result:
            case messages.Planned():
                self.store.save_plan(task, number, result.plan)
                self._perform(task, self.searches[task].handle(StageEnded(number)))
            case messages.Written() | messages.Repaired():
                self.store.save_candidate(task, number, result.candidate)
                self._perform(task, self.searches[task].handle(StageEnded(number)))
            case messages.Unusable():
                verdict = Verdict(verdict=Word.NO_CANDIDATE, reason=result.reason, log=result.reply)
                self._record(task, number, verdict)
            case messages.Evaluated() if stage is Stage.CONFIRM:
                self._confirm(task, number, believable(result.verdict))
            case messages.Evaluated():
                self._record(task, number, believable(result.verdict))
            case messages.Measured():
                self._measured(task, result.reference, result.problem)

    def _measured(self, task: str, reference: Reference | None, problem: str) -> None:
        if reference is None or not positive(reference.eager_us):
            self._refuse(task, problem or "the reference has no usable time")
            return
        self.store.set_reference(task, reference, time.time())
        self._perform(task, self.searches[task].handle(Measured(reference.eager_us)))

    def _refuse(self, task: str, problem: str) -> None:
        self._perform(task, self.searches[task].handle(Refused(problem)))

    def _record(self, task: str, number: int, verdict: Verdict) -> None:
        """Make the node: in one transaction with the end of its lease and the next attempt."""
        reference = self.store.reference(task)
        score = FAILED if reference is None else score_us(verdict, reference)
        candidate = self.store.candidate(task, number)
        self.store.add_node(task, number, verdict, None if score == FAILED else score, time.time())
        kernel = kernel_of(candidate.source if candidate else "")
        self._perform(task, self.searches[task].handle(AttemptEnded(number, score, kernel)))

    def _confirm(self, task: str, number: int, verdict: Verdict | None) -> None:
        """Let the second look at a node count; None: it could not be had, the first one stands."""
        reference = self.store.reference(task)
        score = self.searches[task].score(number)
        if verdict is not None and reference is not None:
            score = score_us(verdict, reference)
        self.store.confirm_node(task, number, verdict, None if score == FAILED else score)
        self._perform(task, self.searches[task].handle(Confirmed(number, score)))

    # --- doing what the searches ask ---------------------------------------------------------

    def _perform(self, task: str, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Save(attempt):
                    self.store.save_attempt(task, attempt)
                case Offer(stage, attempt):
                    work = work_id(task, attempt.number, stage)
                    self._offers[work] = instruction
                    self.fleet.offer(work, ROLE_OF[stage])
                case Finish(problem):
                    self.store.end_task(task, problem)
                    self._event("task over", task, problem)

    def _search(self, task: Task) -> Search:
        return Search(
            task=task.name,
            seed=self.settings.seed,
            policy=policy_named(self.settings.policy, self.settings.search),
            settings=self.settings.search,
        )

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
        # What is leased can come to an end at any moment: its task is open, however many are.
        leased = {task_of(grant.work) for grant in grants}
        for task, budget, status in self.store.tasks():
            if task.name in leased:
                self._perform(task.name, self._taken_up(task, budget, status))
            else:
                self._unopened.append((task, budget, status))
        self._open_tasks()
        self._event("coordinator", f"epoch {self.epoch}")
        self._heed_cost()

    def _open_tasks(self) -> None:
        """Begin tasks in their order, no more at once than the settings want."""
        most = self.settings.tasks_at_once or len(self.searches)
        while self._unopened:
            closed = {task.name for task, _, _ in self._unopened}
            under_way = sum(
                not search.finished for name, search in self.searches.items() if name not in closed
            )
            if under_way >= most:
                return
            task, budget, status = self._unopened.popleft()
            self._perform(task.name, self._taken_up(task, budget, status))

    def _taken_up(self, task: Task, budget: int, status: str) -> list[Instruction]:
        search = self.searches[task.name]
        search.budget = budget
        reference = self.store.reference(task.name)
        if status == "refused":
            search.finished = True
            return []
        if reference is None:
            return search.begin()
        rows = self.store.nodes(task.name)
        scores = [FAILED if row.score_us is None else row.score_us for row in rows]
        return search.restore(
            reference.eager_us,
            [
                (row.number, row.parent, score, kernel_of(row.source))
                for row, score in zip(rows, scores, strict=True)
            ],
            self.store.attempts_under_way(task.name),
            {row.number: score for row, score in zip(rows, scores, strict=True) if row.confirmed},
        )

    def _event(self, what: str, subject: str, detail: str = "") -> None:
        self.books.add_event(time.time(), what, subject, detail)
        self.log.info(what, subject=subject, detail=detail)
