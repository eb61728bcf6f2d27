"""The dispatcher: takes every message of every peer and carries out its consequences.

A message is first checked against its sender's rights (`gateway/authorization.py`), and its values
are brought into bounds (`gateway/sanitize.py`).  All consequences belong to one round of the
coordinator: they are on disk before an answer is sent.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from actors.coordinator.budget_service import BudgetLedger
from actors.coordinator.fleet_health import FleetHealth
from actors.coordinator.gateway import authorization
from actors.coordinator.gateway.authenticator import Authenticator
from actors.coordinator.gateway.peer_socket import PeerSocket
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
from protocol.values import Role, request_key

QUARANTINE_S = 10.0
REPLACED = (
    "another process has its slot: two machines use copies of one folder (--run-dir), give each one"
    " of its own"
)
MAX_LOGGED_VIOLATIONS = 100  # of one ticket: a hostile peer must not fill the disk


class RecordEvent(Protocol):
    """Records an event: what happened, to which subject."""

    def __call__(self, what: str, subject: str, detail: str = "") -> None: ...


class StopRun(Protocol):
    """Drains the run: no more work is leased."""

    def __call__(self, status: str, reason: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The parts of one run that messages read and change."""

    settings: Settings
    epoch: int  # of the coordinator, not of a lease
    scheduler: Scheduler
    health: FleetHealth
    activity: ActivityStore
    budget: BudgetLedger
    tasks: RunTasks


class Dispatcher:
    """Takes the messages of all peers of one run."""

    def __init__(
        self,
        run: RunState,
        *,
        peer_socket: PeerSocket,
        authenticator: Authenticator | None,
        record_event: RecordEvent,
        stop: StopRun,
    ) -> None:
        self.closing = False  # a peer that says Hello now is retired at once
        self._settings = run.settings
        self._epoch = run.epoch
        self._scheduler = run.scheduler
        self._health = run.health
        self._activity = run.activity
        self._budget = run.budget
        self._tasks = run.tasks
        self._peer_socket = peer_socket
        self._authenticator = authenticator
        self._event = record_event
        self._stop = stop
        self._violations: Counter[str] = Counter()  # by ticket

    def dispatch(
        self, sender: str, identity: PeerIdentity, received: messages.ToCoordinator
    ) -> None:
        """Take one message of a peer; refuse it when its sender may not send it."""
        peer = self._scheduler.peers.get(sender)
        others = self._scheduler.peer_count(identity) if isinstance(received, messages.Hello) else 0
        reason = authorization.violation(identity, sender, received, peer, others)
        if isinstance(received, messages.Hello) and self._scheduler.is_replaced(received):
            reason = reason or REPLACED
        if reason:
            self._refuse(sender, identity, reason)
            return
        message = sanitized(received, peer.kind if peer else "")
        if isinstance(message, messages.Hello):
            self._hello(sender, identity, message)
        elif peer is None:
            self._peer_socket.queue(sender, messages.Identify())
        elif isinstance(message, messages.Heartbeat):
            now = time.monotonic()
            self._revoke_and_end(sender, *self._scheduler.renew_leases(sender, message, now))
            answer = self._health.acknowledge(peer, message, now)
            if answer is not None:
                self._peer_socket.queue(sender, answer)
            self._activity.worker_doing(peer.slot, message.activity, time.time())
        elif peer.role is Role.SUPERVISOR:
            self._on_supervisor_message(message)
        else:
            self._on_worker_message(sender, peer.role, message)

    def leases_ended(self, ended: list[LeaseEnd], reason: str = "") -> None:
        """Record leases that ended without a result; work that is exhausted by them fails."""
        for end in ended:
            granted = end.granted
            self._activity.end_lease(granted.epoch, end.outcome, time.time())
            handed_back = end.outcome == "returned"
            self._budget.end_lease(
                granted.incarnation, granted.work, time.time(), observed_end=handed_back
            )
            detail = f"{granted.incarnation} {reason}".rstrip()
            self._event("lease " + end.outcome, granted.work, detail)
            if granted.incarnation in self._scheduler.peers and end.outcome != "returned":
                self._peer_socket.queue(granted.incarnation, messages.Revoke(lease=granted.lease))
            if end.exhausted:
                default_reason = f"{MAX_LOSSES} evaluators were lost while it ran"
                self._tasks.fail_work(granted.work, reason or default_reason)

    def _refuse(self, sender: str, identity: PeerIdentity, reason: str) -> None:
        """Refuse a peer that sent what it may not send; its leases end."""
        self._peer_socket.queue(sender, messages.Refuse(reason=reason))
        peer = self._scheduler.peers.get(sender)
        if peer is not None and peer.identity.ticket == identity.ticket:
            self.leases_ended(self._scheduler.dismiss_peer(sender))
            self._activity.worker_gone(peer.slot, sender, "dismissed", reason, time.time())
        self._violations[identity.ticket] += 1
        if self._violations[identity.ticket] <= MAX_LOGGED_VIOLATIONS:
            self._event("refused", identity.ticket or sender, reason)

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
        """Whether the incarnation, where it is known, is in the slot that the loss names."""
        known = [
            self._scheduler.peers.get(loss.incarnation),
            *self._scheduler.held_by(loss.incarnation),
        ]
        return all(one.slot == loss.slot for one in known if one is not None)

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
                self._peer_socket.queue(sender, messages.ResultStored(lease=message.lease))
            case messages.CallsBlocked() if self._scheduler.has_lease(sender, message.lease):
                self._blocked(sender, message)
            case _ if isinstance(message, messages.Result):
                self._result(sender, message)

    def _blocked(self, sender: str, message: messages.CallsBlocked) -> None:
        """Stop the run; a problem that a joined machine reports stops that machine only."""
        self._event("blocked", message.lease.work, message.reason)
        identity = self._scheduler.peers[sender].identity
        if identity.is_local:
            self._stop("blocked", message.reason)
        else:
            self._refuse(sender, identity, f"no call can succeed there: {message.reason}")

    def _hello(self, sender: str, identity: PeerIdentity, hello: messages.Hello) -> None:
        self._revoke_and_end(
            sender, *self._scheduler.connect_peer(hello, time.monotonic(), identity)
        )
        device = hello.device.name if hello.device is not None else ""
        self._activity.worker_up(hello.slot, hello.role, sender, hello.pid, time.time(), device)
        self._event("hello", hello.slot, f"pid {hello.pid}")
        self._peer_socket.queue(
            sender,
            messages.Welcome(
                epoch=self._epoch,
                beat_s=self._settings.beat_s,
                lease_s=self._settings.lease_s,
                settings=self._settings_for_guest(identity, hello.role),
            ),
        )
        if self.closing:
            self._peer_socket.queue(sender, messages.Retire(reason="the run stops"))

    def _settings_for_guest(self, identity: PeerIdentity, role: Role) -> str:
        """Return the run's settings as TOML for a joined machine's supervisor; "" for others."""
        if self._authenticator is None or identity.is_local or role is not Role.SUPERVISOR:
            return ""
        settings = self._settings
        if not self._authenticator.grants_agent_roles(identity.ticket):
            settings = replace(settings, base_url="")  # it may hold a password
        return to_toml(settings)

    def _quarantined(self, sender: str, reason: str) -> None:
        """Lease no work to a device for a while; its next lease begins with a device check."""
        slot = self._scheduler.peers[sender].slot
        self._scheduler.pause_peer(sender, time.monotonic() + QUARANTINE_S)
        self._activity.worker_quarantined(slot, reason)
        self._event("quarantined", slot, reason)

    def _revoke_and_end(self, sender: str, revoked: list[Lease], ended: list[LeaseEnd]) -> None:
        for lease in revoked:
            self._peer_socket.queue(sender, messages.Revoke(lease=lease))
        self.leases_ended(ended)

    def _on_budget_message(
        self, sender: str, role: Role, message: messages.ReserveBudget | messages.CallCompleted
    ) -> None:
        if isinstance(message, messages.ReserveBudget):
            if self._scheduler.has_lease(sender, message.lease):
                self._budget.reservation_requested(sender, role, message, time.time())
        elif self._was_granted(message.lease, sender):
            # Stored even when another peer holds the lease by now: the call was paid for.
            self._budget.call_completed(sender, role, message, time.time())
            key = request_key(message.call.request)
            self._peer_socket.queue(
                sender, messages.CallStored(lease=message.lease, request_key=key)
            )

    def _was_granted(
        self, lease: Lease, sender: str, result: messages.Result | None = None
    ) -> bool:
        """Whether the sender holds or held that lease, and `result` can end it.

        A sender that never held it is refused.
        """
        if not self._activity.was_granted(lease, sender):
            reason = f"{lease.work} was never leased to it"
        elif result is not None and not authorization.is_result_allowed(
            parse_work(lease.work)[2], result
        ):
            reason = f"{lease.work} does not end with {type(result).__name__}"
        else:
            return True
        self._refuse(sender, self._scheduler.peers[sender].identity, reason)
        return False

    def _result(self, sender: str, result: messages.Result) -> None:
        """Take a result from the present holder of its lease; only acknowledge a late result."""
        if not self._was_granted(result.lease, sender, result):
            return
        self._peer_socket.queue(sender, messages.ResultStored(lease=result.lease))
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
        """When a guest reports that the task is at fault, have a local worker check, if any can."""
        end = self._scheduler.requeue_for_local(lease, sender, time.monotonic())
        if end is None:
            return False
        self.leases_ended([end])
        self._event("doubted", lease.work, problem)
        return True
