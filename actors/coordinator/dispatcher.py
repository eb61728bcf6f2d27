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

from actors.coordinator.budget_service import BudgetLedger
from actors.coordinator.fleet_health import FleetHealth
from actors.coordinator.gateway import authorization
from actors.coordinator.gateway.authenticator import Authenticator
from actors.coordinator.gateway.outbox import Outbox
from actors.coordinator.gateway.sanitize import sanitized
from actors.coordinator.gateway.work_messages import parse_work
from actors.coordinator.scheduling.leases import LeaseEnd
from actors.coordinator.scheduling.retry_policy import MAX_LOSSES
from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.workers import PeerIdentity
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.tasks import RunTasks
from protocol import messages
from protocol.messages import Lease
from protocol.settings import Settings, to_toml
from protocol.values import Role

QUARANTINE_S = 10.0
MAX_LOGGED_VIOLATIONS = 100  # of one ticket, that are recorded


class RecordEvent(Protocol):
    """Writes down what happened to whom."""

    def __call__(self, what: str, subject: str, detail: str = "") -> None: ...


class StopRun(Protocol):
    """Ends the run: nothing more is leased."""

    def __call__(self, status: str, reason: str) -> None: ...


class Dispatcher:
    """Hears all peers of one run."""

    def __init__(
        self,
        *,
        settings: Settings,
        epoch: int,
        scheduler: Scheduler,
        health: FleetHealth,
        activity: ActivityStore,
        budget: BudgetLedger,
        tasks: RunTasks,
        outbox: Outbox,
        authenticator: Authenticator | None,
        event: RecordEvent,
        stop: StopRun,
    ) -> None:
        self.closing = False  # whoever says Hello now is sent home
        self._settings = settings
        self._epoch = epoch  # of the coordinator, not of a lease
        self._scheduler = scheduler
        self._health = health
        self._activity = activity
        self._budget = budget
        self._tasks = tasks
        self._outbox = outbox
        self._authenticator = authenticator
        self._event = event
        self._stop = stop
        self._violations: Counter[str] = Counter()  # by ticket

    def dispatch(
        self, sender: str, identity: PeerIdentity, received: messages.ToCoordinator
    ) -> None:
        """Take one message of a peer, believed as far as its sender may claim what it says."""
        peer = self._scheduler.peers.get(sender)
        others = self._scheduler.peer_count(identity) if isinstance(received, messages.Hello) else 0
        wrong = authorization.violation(identity, sender, received, peer, others)
        if wrong:
            self._log_violation(sender, identity, wrong)
            return
        message = sanitized(received, peer.kind if peer else "")
        if isinstance(message, messages.Hello):
            self._hello(sender, identity, message)
        elif peer is None:
            self._outbox.queue(sender, messages.Identify())
        elif isinstance(message, messages.Heartbeat):
            now = time.monotonic()
            self._revoke_and_end(sender, *self._scheduler.renew_leases(sender, message, now))
            heard = self._health.acknowledge(peer, message, now)
            if heard is not None:
                self._outbox.queue(sender, heard)
            self._activity.worker_doing(peer.slot, message.activity, time.time())
        elif peer.role is Role.SUPERVISOR:
            self._on_supervisor_message(message)
        else:
            self._on_worker_message(sender, peer.role, message)

    def leases_ended(self, ended: list[LeaseEnd], why: str = "") -> None:
        """Record leases that ended without a result, and what that means for the candidate."""
        for end in ended:
            granted = end.granted
            self._activity.end_lease(granted.epoch, end.outcome, time.time())
            seen = end.outcome == "returned"
            self._budget.end_lease(
                granted.incarnation, granted.work, time.time(), observed_end=seen
            )
            self._event("lease " + end.outcome, granted.work, granted.incarnation)
            if granted.incarnation in self._scheduler.peers and end.outcome != "returned":
                self._outbox.queue(granted.incarnation, messages.Revoke(lease=granted.lease))
            if end.exhausted:
                lost = f"{MAX_LOSSES} evaluators were lost while it ran"
                self._tasks.fail_work(granted.work, why or lost)

    def _log_violation(self, sender: str, identity: PeerIdentity, wrong: str) -> None:
        """Refuse a message that claims what can't be, and with it its sender's leases."""
        self._outbox.queue(sender, messages.Refuse(reason=wrong))
        peer = self._scheduler.peers.get(sender)
        if peer is not None and peer.identity.ticket == identity.ticket:
            self.leases_ended(self._scheduler.dismiss_peer(sender))
            self._activity.worker_gone(peer.slot, sender, "dismissed", wrong, time.time())
        self._violations[identity.ticket] += 1
        if (
            self._violations[identity.ticket] <= MAX_LOGGED_VIOLATIONS
        ):  # a liar must not fill the disk
            self._event("refused", identity.ticket or sender, wrong)

    def _on_supervisor_message(self, message: messages.ToCoordinator) -> None:
        match message:
            case messages.WorkerLost() if self._may_report_loss(message):
                self.leases_ended(self._scheduler.peer_lost(message.incarnation))
                self._activity.worker_gone(
                    message.slot, message.incarnation, "lost", message.exit_description, time.time()
                )
                self._event("lost", message.slot, message.exit_description)
            case messages.Drain():
                self._stop("stopped", "")

    def _may_report_loss(self, loss: messages.WorkerLost) -> bool:
        """Whether that incarnation, where it is known, sits in the slot that the loss names."""
        seats = [
            self._scheduler.peers.get(loss.incarnation),
            *self._scheduler.held_by(loss.incarnation),
        ]
        return all(seat.slot == loss.slot for seat in seats if seat is not None)

    def _on_worker_message(self, sender: str, role: Role, message: messages.ToCoordinator) -> None:
        match message:
            case messages.ReserveBudget() | messages.CallCompleted():
                self._on_budget_message(sender, role, message)
            case messages.CandidateRunning():
                granted = self._scheduler.candidate_running(message.lease, sender)
                if granted is not None:
                    self._activity.mark_running(granted.epoch)
            case messages.HandedBack():
                self._budget.call_lost(sender, message, time.time())
                if not (
                    message.reference_failed
                    and self._recheck_locally(sender, message.lease, message.reason)
                ):
                    end = self._scheduler.hand_back(
                        message.lease, sender, reference_failed=message.reference_failed
                    )
                    self.leases_ended([end] if end else [], message.reason)
                if message.quarantined:
                    self._quarantined(sender, message.reason)
                self._outbox.queue(sender, messages.ResultStored(lease=message.lease))
            case messages.CallsBlocked() if self._scheduler.has_lease(sender, message.lease):
                self._blocked(sender, message)
            case messages.Planned() | messages.Written() | messages.Repaired():
                self._result(sender, message)
            case messages.ReplyUnusable() | messages.ReferenceMeasured() | messages.Evaluated():
                self._result(sender, message)

    def _blocked(self, sender: str, message: messages.CallsBlocked) -> None:
        """Stop the run; but what is wrong on a joined machine alone stops that machine alone."""
        self._event("blocked", message.lease.work, message.reason)
        identity = self._scheduler.peers[sender].identity
        if identity.is_local:
            self._stop("blocked", message.reason)
        else:
            self._log_violation(sender, identity, f"no call can succeed there: {message.reason}")

    def _hello(self, sender: str, identity: PeerIdentity, hello: messages.Hello) -> None:
        self._revoke_and_end(
            sender, *self._scheduler.connect_peer(hello, time.monotonic(), identity)
        )
        self._activity.worker_up(hello.slot, hello.role, sender, hello.pid, time.time())
        self._event("hello", hello.slot, f"pid {hello.pid}")
        self._outbox.queue(
            sender,
            messages.Welcome(
                epoch=self._epoch,
                beat_s=self._settings.beat_s,
                lease_s=self._settings.lease_s,
                settings=self._settings_for_guest(identity, hello.role),
            ),
        )
        if self.closing:
            self._outbox.queue(sender, messages.Retire(reason="the run stops"))

    def _settings_for_guest(self, identity: PeerIdentity, role: Role) -> str:
        """Return what a joined machine's supervisor needs to know of the run's settings."""
        if self._authenticator is None or identity.is_local or role is not Role.SUPERVISOR:
            return ""
        terms = self._settings
        if not self._authenticator.grants_agent_roles(identity.ticket):
            terms = replace(terms, base_url="")  # it may hold a password
        return to_toml(terms)

    def _quarantined(self, sender: str, why: str) -> None:
        """Leave a device alone for a while: the others go on, and its next lease examines it."""
        slot = self._scheduler.peers[sender].slot
        self._scheduler.pause_peer(sender, time.monotonic() + QUARANTINE_S)
        self._activity.worker_quarantined(slot, why)
        self._event("quarantined", slot, why)

    def _revoke_and_end(self, sender: str, revoked: list[Lease], ended: list[LeaseEnd]) -> None:
        for lease in revoked:
            self._outbox.queue(sender, messages.Revoke(lease=lease))
        self.leases_ended(ended)

    def _on_budget_message(
        self, sender: str, role: Role, message: messages.ReserveBudget | messages.CallCompleted
    ) -> None:
        if isinstance(message, messages.ReserveBudget):
            if self._scheduler.has_lease(sender, message.lease):
                self._budget.reservation_requested(sender, role, message, time.time())
        elif self._holds_lease(message.lease, sender):
            # Stored whoever holds the lease by now: it was paid for.
            self._budget.call_completed(sender, role, message, time.time())
            self._outbox.queue(sender, messages.CallStored(lease=message.lease))

    def _holds_lease(
        self, lease: Lease, sender: str, result: messages.Result | None = None
    ) -> bool:
        """Whether that lease was ever the sender's, and can end so; else the sender is refused."""
        if not self._activity.was_granted(lease, sender):
            wrong = f"{lease.work} was never leased to it"
        elif result is not None and not authorization.is_result_allowed(
            parse_work(lease.work)[2], result
        ):
            wrong = f"{lease.work} does not end with {type(result).__name__}"
        else:
            return True
        self._log_violation(sender, self._scheduler.peers[sender].identity, wrong)
        return False

    def _result(self, sender: str, result: messages.Result) -> None:
        """Take a result from whoever holds its lease now; a late one is acknowledged only."""
        if not self._holds_lease(result.lease, sender, result):
            return
        self._outbox.queue(sender, messages.ResultStored(lease=result.lease))
        if (
            isinstance(result, messages.ReferenceMeasured)
            and result.reference is None
            and self._recheck_locally(sender, result.lease, result.problem)
        ):
            return
        if self._scheduler.settle_result(result.lease, sender) is None:
            self._event("late result", result.lease.work, sender)
            return
        self._activity.end_lease(result.lease.epoch, "done", time.time())
        self._activity.worker_quarantined(self._scheduler.peers[sender].slot, "")
        self._budget.end_lease(sender, result.lease.work, time.time(), observed_end=True)
        peer = self._scheduler.peers[sender]
        self._tasks.record_result(
            authorization.with_limited_refusal(result, peer.identity, self._settings, peer.role)
        )

    def _recheck_locally(self, sender: str, lease: Lease, problem: str) -> bool:
        """Ask our own machine, where it can look, when a guest says that a task is at fault."""
        end = self._scheduler.requeue_for_local(lease, sender, time.monotonic())
        if end is None:
            return False
        self.leases_ended([end])
        self._event("doubted", lease.work, problem)
        return True
