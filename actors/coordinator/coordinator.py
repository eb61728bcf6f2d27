"""The coordinator: the thin shell around the searches, the scheduler and the store.

One round of its loop: read the messages, let the pure machines decide, lease waiting work, commit
all of it as one transaction, and send messages only after the commit.  Killed at any moment, it
loses nothing that it has sent to a peer: the next coordinator begins from `run.db`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import zmq

from actors import failpoints
from actors.coordinator.budget_service import BudgetLedger
from actors.coordinator.directive_verbs import Verbs
from actors.coordinator.dispatcher import Dispatcher, RunState
from actors.coordinator.earlier_references import take_references
from actors.coordinator.fleet_health import FleetHealth
from actors.coordinator.gateway.authenticator import Authenticator
from actors.coordinator.gateway.peer_socket import PeerSocket
from actors.coordinator.gateway.work_messages import ROLE_OF, parse_work
from actors.coordinator.scheduling.leases import GrantedLease
from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.work_queue import KIND_MEMORY_S, task_of
from actors.coordinator.scheduling.workers import machine_of
from actors.coordinator.steering import Steering
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.directive_store import DirectiveStore
from actors.coordinator.storage.store import Store
from actors.coordinator.tasks import RunTasks
from actors.deadlines import COORDINATOR_DRAIN_S
from actors.log import FilteringBoundLogger
from protocol import messages
from protocol.settings import Settings
from protocol.values import WORKER_ROLES, Role, Task

POLL_S = 0.25
RETIRE_S = 0.3


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """What a coordinator starts with: the run, and what the supervisor's command says of it."""

    run_dir: Path
    settings: Settings
    tasks: list[Task]
    supervisor: str = ""  # its incarnation: a new one means that this machine's workers are new
    # The settings that a new supervisor's command names, `budget` or `max_cost`: they hold over
    # what a person asked before.
    named: tuple[str, ...] = ()


class Coordinator:
    """Serves one run until it is finished, stopped or blocked."""

    def __init__(
        self,
        start: RunStart,
        *,
        database: Database,
        socket: zmq.Socket[bytes],
        log: FilteringBoundLogger,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.settings = start.settings
        self.log = log
        self.db = database
        self.store = Store(database)
        self.activity = ActivityStore(database)
        self.directives = DirectiveStore(database)
        self.authenticator = authenticator
        self.peer_socket = PeerSocket(
            socket, log, lambda name: name in self.scheduler.peers, authenticator
        )
        self._drain_requested = False
        self._draining: tuple[float, str, str] | None = None  # (until, status, reason)
        self._served_roles = [role for role in WORKER_ROLES if self.settings.is_served(role)]
        self._tick = time.monotonic()
        self.epoch = self.store.count_start(time.time())
        self.scheduler = self._make_scheduler()
        self.health = FleetHealth(self.scheduler, self.activity)
        former = self.store.change_supervisor(start.supervisor) if start.supervisor else ""
        self.budget = self._store_start(start, () if former == start.supervisor else start.named)
        self.tasks = self._make_tasks()
        self.steering = self._make_steering()
        self.dispatcher = self._make_dispatcher()
        self._restore()
        if former not in ("", start.supervisor):
            self._end_former_incarnations()
        self.db.commit()

    def _store_start(self, start: RunStart, named: tuple[str, ...]) -> BudgetLedger:
        """Store the run's tasks, with references of an earlier run; return the budget in force."""
        for task in start.tasks:
            self.store.add_task(task, self.settings.search.budget, is_named="budget" in named)
        take_references(start.run_dir, self.settings, start.tasks, self.store, self._event)
        cap = self.directives.cap_at_start(self.settings.max_cost, is_named="max_cost" in named)
        return BudgetLedger(self.activity, cap)

    def _make_scheduler(self) -> Scheduler:
        has_others = self.settings.may_have_other_devices
        return Scheduler(
            lease_s=self.settings.lease_s,
            epoch=self.activity.last_epoch(),
            kind_memory_s=KIND_MEMORY_S if has_others else 0.0,
            has_background=not self.settings.first_looks,
        )

    def _make_tasks(self) -> RunTasks:
        return RunTasks(
            settings=self.settings,
            store=self.store,
            activity=self.activity,
            decisions=DecisionStore(self.db),
            directives=self.directives,
            scheduler=self.scheduler,
            record_event=self._event,
        )

    def _make_steering(self) -> Steering:
        run_dir = self.db.run_dir
        verbs = Verbs(
            run_dir,
            settings=self.settings,
            tasks=self.tasks,
            directives=self.directives,
            budget=self.budget,
        )
        return Steering(run_dir, verbs=verbs, directives=self.directives, record_event=self._event)

    def _make_dispatcher(self) -> Dispatcher:
        run = RunState(
            settings=self.settings,
            epoch=self.epoch,
            scheduler=self.scheduler,
            health=self.health,
            activity=self.activity,
            budget=self.budget,
            tasks=self.tasks,
        )
        return Dispatcher(
            run,
            peer_socket=self.peer_socket,
            authenticator=self.authenticator,
            record_event=self._event,
            stop=self.drain,
        )

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> str:
        """Serve until the run is over; return its status."""
        status = None
        while status is None:
            self.peer_socket.wait(self._tick + POLL_S - time.monotonic())
            status = self.round()
        return status

    def round(self) -> str | None:
        """Read, decide, commit, send; return the run's status once it is over."""
        for sender, identity, message in self.peer_socket.read():
            failpoints.hit_message("hear", message)
            self.dispatcher.dispatch(sender, identity, message)
            failpoints.hit_message("heard", message)
        self.tasks.begin_tasks()
        now = time.monotonic()
        if self.authenticator is not None:
            self.authenticator.limit_connections(now)
        if self.peer_socket.has_read_all:
            # After a suspension of this process, waiting messages are read before leases expire.
            self._keep_time(now)
        # The last look is before the end: no directive is left that was submitted in time.
        self.steering.take(now, at_once=self.tasks.is_finished)
        self._allow_calls()
        is_idle = self._draining or self.steering.is_paused
        granted = [] if is_idle else self._grant(now)
        work = [(grant, self.tasks.message_for(grant.lease)) for grant in granted]
        over = self._is_over(now)
        if over is not None:
            self.budget.charge_orphaned_calls(set(), time.time())
            self.store.set_status(*over)
        failpoints.hit("before-commit")
        self.db.commit()
        failpoints.hit("after-commit")
        self.steering.committed()
        self.peer_socket.flush()
        for grant, message_of_work in work:
            if not self.peer_socket.send(grant.incarnation, message_of_work):
                self.dispatcher.leases_ended(self.scheduler.peer_lost(grant.incarnation))
        failpoints.hit("after-told")
        if over is None:
            return None
        self._retire_workers(over[0])
        return over[0]

    @property
    def is_draining(self) -> bool:
        """Whether the run is to end soon."""
        return self._drain_requested or self._draining is not None

    def ask_to_drain(self) -> None:
        """Drain from the next round on; safe to call from a signal handler."""
        self._drain_requested = True

    def drain(self, status: str = "stopped", reason: str = "") -> None:
        """Lease no more work; end the run when no lease is held."""
        if self._draining is None:
            self._draining = (time.monotonic() + COORDINATOR_DRAIN_S, status, reason)
            self.dispatcher.closing = True
            self.scheduler.preempt_all()
            self.dispatcher.leases_ended(self.scheduler.take_preempted())
            self.store.set_status("draining", reason)
            self._retire_all("the run stops")

    def _keep_time(self, now: float) -> None:
        if self._drain_requested:
            self.drain()
        if now < self._tick + POLL_S:
            return
        self.store.add_seconds(now - self._tick)
        self._tick = now
        self._expire(now)
        self.health.write_stats(now)

    def _expire(self, now: float) -> None:
        silent_before = set(self.scheduler.silent)
        self.dispatcher.leases_ended(self.scheduler.expire_leases(now))
        for incarnation in self.scheduler.silent.keys() - silent_before:
            slot = self.scheduler.silent[incarnation].slot
            reason = f"no message for {self.settings.lease_s:g} s"
            self.activity.worker_gone(slot, incarnation, "silent", reason, time.time())
            self._event("silent", slot, reason)

    def _is_over(self, now: float) -> tuple[str, str] | None:
        """Return the final (status, reason) when the run is over."""
        if self.tasks.is_finished:
            self.directives.set_finishing(finishing=False)
            refusals, left = self.tasks.refused_reasons(), self.tasks.not_begun
            if left:
                return "stopped", f"it was finished before {', '.join(left[:5])} began"
            return ("refused", "; ".join(refusals)) if refusals else ("finished", "")
        if self._draining is not None:
            until, status, reason = self._draining
            if not self.scheduler.grants or now > until:
                return status, reason
        elif (
            self.settings.ends_when_idle
            and self.scheduler.is_idle(self._served_roles)
            and not self.tasks.begin_next()
        ):
            later = "; confirmations and baselines are left for a later start"
            reason = "nothing is left for the roles that run here"
            return "idle", reason + later * self.settings.first_looks
        return None

    def _retire_all(self, reason: str) -> None:
        for peer in self.scheduler.peers.values():
            if peer.role in WORKER_ROLES or not peer.identity.is_local:
                self.peer_socket.queue(peer.incarnation, messages.Retire(reason=reason))

    def _retire_workers(self, status: str) -> None:
        self._retire_all(f"the run is {status}")
        self.peer_socket.flush()
        time.sleep(RETIRE_S)  # linger counts from the socket's close: its pipes must empty first

    # --- leasing -----------------------------------------------------------------------------

    def _grant(self, now: float) -> list[GrantedLease]:
        granted = self.scheduler.grant_leases(now)
        self.dispatcher.leases_ended(self.scheduler.take_preempted())
        for grant in granted:
            slot = self.scheduler.peers[grant.incarnation].slot
            self.activity.grant(grant.epoch, grant.work, slot, grant.incarnation, time.time())
        return granted

    def _allow_calls(self) -> None:
        """Let agents make the calls that --max-cost allows; drain when it allows no more."""
        if self._draining:
            return
        for incarnation, reserved in self.budget.grant_reservations(time.time()):
            self.peer_socket.queue(incarnation, reserved)
        reason = self.budget.exhausted_reason()
        if reason:
            self._event("blocked", "", reason)
            self.drain("blocked", reason)

    # --- restoring and recording -------------------------------------------------------------

    def _restore(self) -> None:
        """Restore leases, peers, tasks and reservations of an earlier coordinator from disk."""
        now = time.monotonic()
        grants = [
            GrantedLease(
                work=row.work,
                role=ROLE_OF[parse_work(row.work)[2]],
                slot=row.slot,
                incarnation=row.incarnation,
                epoch=row.epoch,
                expires_at=now + self.settings.lease_s,
                candidate_running=row.running,
            )
            for row in self.activity.open_leases()
        ]
        self.scheduler.restore(
            grants, self.activity.evaluator_losses(), self.activity.machine_losses()
        )
        for slot, role, incarnation in self.activity.workers_up():
            self.scheduler.expect_peer(slot, Role(role), incarnation, now)
        self.tasks.restore({task_of(grant.work) for grant in grants})
        self.budget.charge_orphaned_calls(
            {(row.incarnation, row.work) for row in grants}, time.time()
        )
        self._event("coordinator", f"epoch {self.epoch}")

    def _end_former_incarnations(self) -> None:
        """Record the death of this machine's workers: a new supervisor serves the run now."""
        self.dispatcher.leases_ended(self.scheduler.machine_lost(""))
        for slot, _, incarnation in self.activity.workers_up():
            if not machine_of(slot):
                reason = "its supervisor ended"
                self.activity.worker_gone(slot, incarnation, "lost", reason, time.time())

    def _event(self, what: str, subject: str, detail: str = "") -> None:
        self.activity.add_event(time.time(), what, subject, detail)
        self.log.info(what, subject=subject, detail=detail)
