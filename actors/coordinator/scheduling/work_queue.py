"""Work on offer, and which of it suits whom.  Pure, like the fleet that leases it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors.coordinator.scheduling.granted_leases import ANY_WORKER, Placement
from actors.coordinator.scheduling.task_queues import TaskQueues
from actors.coordinator.scheduling.workers import Peer
from protocol.values import Role

KIND_MEMORY_S = 60.0  # work waits so long for a device of its kind; then any device may have it
MIXED_KINDS = 2  # pieces of work that an evaluator holds, when they are of several tasks


class WorkQueue:
    """All work that is not done: what it wants, and the queues of what nobody holds."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        """`peers`: all that there are, by incarnation."""
        self._peers = peers
        order: dict[str, int] = {}
        self._waiting = {role: TaskQueues(order) for role in Role}
        self._placements: dict[str, tuple[Role, Placement]] = {}
        self._seen: dict[str, float] = {}  # kind that work waited for -> when one was at hand
        self._peers_by_task: Counter[str] = Counter()  # task -> evaluators whose last work was its

    def __len__(self) -> int:
        """Return how many pieces of work nobody holds."""
        return sum(map(len, self._waiting.values()))

    def add(
        self, work: str, role: Role, placement: Placement = ANY_WORKER, *, first: bool = False
    ) -> None:
        """Queue work for a role, and a kind of device."""
        known = work in self._placements
        self._placements[work] = role, placement
        if known:
            return  # restored with its lease, before it was known what it wants
        self._waiting[role].add(work, first=first)

    def restore(self, work: str, role: Role) -> None:
        """Take up work that somebody holds; what it wants is said when it is offered."""
        self._placements[work] = role, ANY_WORKER

    def keep_local(self, work: str) -> None:
        """Have this work done by the run's own machine, where somebody there can do it."""
        role, placement = self._placements[work]
        self._placements[work] = role, Placement(kind=placement.kind, trusted=True)

    def can_run_locally(self, work: str, now: float) -> bool:
        """Whether somebody of the run's own machine can do this work."""
        role, placement = self._placements[work]
        return self._has_local_worker(role, placement, now)

    def done(self, work: str) -> tuple[Role, Placement]:
        """Forget work that is over; return what it wanted."""
        return self._placements.pop(work)

    def has_waiting(self, role: Role) -> bool:
        """Whether any work waits for that role."""
        return bool(self._waiting[role])

    def take_best(self, peer: Peer, now: float) -> str | None:
        """Take the work that a peer had best do now; None: none of what waits."""
        if peer.paused_until > now:
            return None
        queues = self._waiting[peer.role]
        task = self._task_for(peer, queues, now)
        return None if task is None else queues.take(task)

    def _task_for(self, peer: Peer, queues: TaskQueues, now: float) -> str | None:
        """Return the task that a peer had best work for.

        An evaluator stays with its task.  Another one's work it gets only while it holds no more
        than one piece, so that a card builds the next candidate and does not go to and fro; and
        rather a task that no other evaluator is warm for.
        """
        if peer.role is not Role.EVALUATOR:
            return queues.next_task()

        def fits(work: str) -> bool:
            return self._can_take(peer, self._placements[work][1], now)

        if queues.has_work(peer.task, fits):
            return peer.task
        return queues.next_task(self._peers_by_task, fits) if peer.load < MIXED_KINDS else None

    def _can_take(self, peer: Peer, placement: Placement, now: float) -> bool:
        """Whether a peer may have work that wants this."""
        if not self._suits(peer, placement, now):
            return False
        return (
            not placement.trusted
            or peer.identity.is_local
            or not self._has_local_worker(peer.role, placement, now)
        )

    def _has_local_worker(self, role: Role, placement: Placement, now: float) -> bool:
        """Whether somebody of the run's own machine takes work, and may have this."""
        return any(
            one.identity.is_local and one.credit and self._suits(one, placement, now)
            for one in self._peers.values()
            if one.role is role
        )

    def _suits(self, peer: Peer, placement: Placement, now: float) -> bool:
        """Whether a peer's device will do.

        Figures of different devices are never compared, so work waits for a device of the kind
        that its task was measured on.  Where none comes any more, any device will do: a score is
        the ratio to the reference, taken in turn on one and the same device.
        """
        if not placement.kind:
            return True
        seen = self._seen.setdefault(placement.kind, now)
        return peer.kind == placement.kind or now - seen > KIND_MEMORY_S

    def note_device_kind(self, peer: Peer) -> None:
        """Note that a device of the peer's kind is at hand."""
        if peer.credit and peer.kind in self._seen:
            self._seen[peer.kind] = peer.last_heard

    def note_task(self, peer: Peer, task: str) -> None:
        """Note what a peer works on; "": it is gone."""
        if peer.role is Role.EVALUATOR and task != peer.task:
            for name, change in ((peer.task, -1), (task, 1)):
                self._peers_by_task[name] += change
                if not name or not self._peers_by_task[name]:
                    del self._peers_by_task[name]
        peer.task = task
