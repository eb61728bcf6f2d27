"""Work on offer, and which of it suits whom.  Pure, like the fleet that leases it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors.coordinator.grants import ANYBODY, Want
from actors.coordinator.peers import Peer
from actors.coordinator.waiting import Waiting
from protocol.values import Role

KIND_S = 60.0  # work waits so long for a device of its kind; then any device may have it
MIXED = 2  # pieces of work that an evaluator holds, when they are of several tasks


class Offers:
    """All work that is not done: what it wants, and the queues of what nobody holds."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        """`peers`: all that there are, by incarnation."""
        self._peers = peers
        order: dict[str, int] = {}
        self._waiting = {role: Waiting(order) for role in Role}
        self._wants: dict[str, tuple[Role, Want]] = {}
        self._seen: dict[str, float] = {}  # kind that work waited for -> when one was at hand
        self._warm: Counter[str] = Counter()  # task -> evaluators whose last work was its

    def __len__(self) -> int:
        """Return how many pieces of work nobody holds."""
        return sum(map(len, self._waiting.values()))

    def add(self, work: str, role: Role, want: Want = ANYBODY, *, first: bool = False) -> None:
        """Queue work for a role, and a kind of device."""
        known = work in self._wants
        self._wants[work] = role, want
        if known:
            return  # restored with its lease, before it was known what it wants
        self._waiting[role].add(work, first=first)

    def restore(self, work: str, role: Role) -> None:
        """Take up work that somebody holds; what it wants is said when it is offered."""
        self._wants[work] = role, ANYBODY

    def keep_here(self, work: str) -> None:
        """Have this work done by the run's own machine, where somebody there can do it."""
        role, want = self._wants[work]
        self._wants[work] = role, Want(kind=want.kind, trusted=True)

    def can_stay_here(self, work: str, now: float) -> bool:
        """Whether somebody of the run's own machine can do this work."""
        role, want = self._wants[work]
        return self._at_home(role, want, now)

    def done(self, work: str) -> tuple[Role, Want]:
        """Forget work that is over; return what it wanted."""
        return self._wants.pop(work)

    def waits(self, role: Role) -> bool:
        """Whether any work waits for that role."""
        return bool(self._waiting[role])

    def take(self, peer: Peer, now: float) -> str | None:
        """Take the work that a peer had best do now; None: none of what waits."""
        if peer.rests_until > now:
            return None
        waiting = self._waiting[peer.role]
        task = self._task_for(peer, waiting, now)
        return None if task is None else waiting.take(task)

    def _task_for(self, peer: Peer, waiting: Waiting, now: float) -> str | None:
        """Return the task that a peer had best work for.

        An evaluator stays with its task.  Another one's work it gets only while it holds no more
        than one piece, so that a card builds the next candidate and does not go to and fro; and
        rather a task that no other evaluator is warm for.
        """
        if peer.role is not Role.EVALUATOR:
            return waiting.next_task()

        def fits(work: str) -> bool:
            return self._fits(peer, self._wants[work][1], now)

        if waiting.has(peer.task, fits):
            return peer.task
        return waiting.next_task(self._warm, fits) if peer.load < MIXED else None

    def _fits(self, peer: Peer, want: Want, now: float) -> bool:
        """Whether a peer may have work that wants this."""
        if not self._suits(peer, want, now):
            return False
        return not want.trusted or peer.origin.local or not self._at_home(peer.role, want, now)

    def _at_home(self, role: Role, want: Want, now: float) -> bool:
        """Whether somebody of the run's own machine takes work, and may have this."""
        return any(
            one.origin.local and one.credit and self._suits(one, want, now)
            for one in self._peers.values()
            if one.role is role
        )

    def _suits(self, peer: Peer, want: Want, now: float) -> bool:
        """Whether a peer's device will do.

        Figures of different devices are never compared, so work waits for a device of the kind
        that its task was measured on.  Where none comes any more, any device will do: a score is
        the ratio to the reference, taken in turn on one and the same device.
        """
        if not want.kind:
            return True
        seen = self._seen.setdefault(want.kind, now)
        return peer.kind == want.kind or now - seen > KIND_S

    def notice(self, peer: Peer) -> None:
        """Note that a device of the peer's kind is at hand."""
        if peer.credit and peer.kind in self._seen:
            self._seen[peer.kind] = peer.heard

    def warm(self, peer: Peer, task: str) -> None:
        """Note what a peer works on; "": it is gone."""
        if peer.role is Role.EVALUATOR and task != peer.task:
            for name, change in ((peer.task, -1), (task, 1)):
                self._warm[name] += change
                if not name or not self._warm[name]:
                    del self._warm[name]
        peer.task = task
