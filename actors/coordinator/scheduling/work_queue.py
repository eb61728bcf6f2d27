"""Work that is not done: what each piece asks for, and the queues of unleased work.  Pure.

Tasks go in the order of their first work, so that a run of many tasks finishes one after the
other.  An evaluator's latest task goes before that order: the task's reference is warm there, and
warming up another reference takes seconds and, for some tasks, gigabytes.

Background work (confirmations, then baselines) has queues of its own.  The scheduler looks at them
only for peers that have nothing else to do.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from actors.coordinator.scheduling.workers import Peer
from protocol.values import Role

KIND_MEMORY_S = 60.0  # how long work waits for a device of its kind; then any device may have it
MAX_MIXED_LEASES = 2  # of one evaluator, when they are of several tasks


@dataclass(frozen=True)
class Placement:
    """What work asks of a peer beyond the role."""

    kind: str = ""  # the fingerprint of a device; "": any
    trusted: bool = False  # on the run's own machine, as long as a worker there can do it
    is_background: bool = False  # of an idle peer only, and it gives way to other work
    is_last: bool = False  # background work that other background work goes before


ANY_WORKER = Placement()


def task_of(work: str) -> str:
    """Return the task of a work id, TASK/ATTEMPT/STAGE."""
    return work.rsplit("/", 2)[0]


class TaskQueues:
    """The queues of one role's work, one queue a task."""

    def __init__(self, order: dict[str, int]) -> None:
        self._order = order  # task -> its position; shared by the roles
        self._queues: dict[str, deque[str]] = {}  # only of tasks that have work here

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, work: str, *, first: bool) -> None:
        """Queue work behind its task's other work, or before it."""
        task = task_of(work)
        self._order.setdefault(task, len(self._order))
        queue = self._queues.setdefault(task, deque())
        queue.appendleft(work) if first else queue.append(work)

    def has_work(self, task: str, fits: Callable[[str], bool] | None = None) -> bool:
        """Whether work of this task waits, and its first piece `fits`."""
        queue = self._queues.get(task)
        return queue is not None and (fits is None or fits(queue[0]))

    def next_task(
        self, avoided: Container[str] = (), fits: Callable[[str], bool] | None = None
    ) -> str | None:
        """Return the first task that is not `avoided`, or the first one when all are.

        Only tasks whose first piece of work `fits` count; None where there is none.
        """
        tasks = sorted(self._queues, key=self._order.__getitem__)
        if fits is not None:
            tasks = [task for task in tasks if fits(self._queues[task][0])]
        return next((task for task in tasks if task not in avoided), tasks[0] if tasks else None)

    def take(self, task: str) -> str:
        """Remove and return the first piece of a task's work."""
        queue = self._queues[task]
        work = queue.popleft()
        if not queue:
            del self._queues[task]
        return work


class WorkQueue:
    """All work that is not done: its placements, and the queues of unleased work."""

    def __init__(self, peers: Mapping[str, Peer], kind_memory_s: float = KIND_MEMORY_S) -> None:
        """`peers`: all connected peers, by incarnation.

        `kind_memory_s`: how long work waits for a device of its kind.
        """
        self._peers = peers
        self._kind_memory_s = kind_memory_s
        order: dict[str, int] = {}
        self._waiting = {role: TaskQueues(order) for role in Role}
        self._background = {role: TaskQueues(order) for role in Role}
        self._last = {role: TaskQueues(order) for role in Role}
        self._placements: dict[str, tuple[Role, Placement]] = {}
        self._kind_seen_at: dict[str, float] = {}  # of the kinds that work has waited for
        self._peers_by_task: Counter[str] = Counter()  # task -> evaluators with that latest task

    def __len__(self) -> int:
        """Return the number of pieces of work that are not leased."""
        queues = (self._waiting, self._background, self._last)
        return sum(len(queue) for by_role in queues for queue in by_role.values())

    def add(
        self, work: str, role: Role, placement: Placement = ANY_WORKER, *, first: bool = False
    ) -> None:
        """Queue work for a role, and a kind of device."""
        is_leased = work in self._placements
        self._placements[work] = role, placement
        if is_leased:
            return  # restored with its lease, before its placement was known
        background = self._last if placement.is_last else self._background
        queues = background if placement.is_background else self._waiting
        queues[role].add(work, first=first)

    def restore(self, work: str, role: Role) -> None:
        """Record work that is leased already; `add` brings its placement later."""
        self._placements[work] = role, ANY_WORKER

    def keep_local(self, work: str) -> None:
        """Have this work done on the run's own machine, as long as a worker there can do it."""
        role, placement = self._placements[work]
        self._placements[work] = role, replace(placement, trusted=True)

    def can_run_locally(self, work: str, now: float) -> bool:
        """Whether a worker of the run's own machine can do this work."""
        role, placement = self._placements[work]
        return self._has_local_worker(role, placement, now)

    def remove(self, work: str) -> tuple[Role, Placement]:
        """Forget work that has ended; return its role and placement."""
        return self._placements.pop(work)

    def has_waiting(self, role: Role) -> bool:
        """Whether any work but background work waits for that role."""
        return bool(self._waiting[role])

    def has_background(self, role: Role) -> bool:
        """Whether background work waits for that role."""
        return bool(self._background[role] or self._last[role])

    def is_background(self, work: str) -> bool:
        """Whether work that is not done gives way to other work."""
        return self._placements[work][1].is_background

    def take_best(self, peer: Peer, now: float) -> str | None:
        """Remove and return the best waiting work for a peer; None when no work suits it."""
        return self._take(peer, self._waiting[peer.role], now)

    def take_background(self, peer: Peer, now: float) -> str | None:
        """Remove and return background work for a peer; None when none suits it."""
        work = self._take(peer, self._background[peer.role], now)
        return self._take(peer, self._last[peer.role], now) if work is None else work

    def _take(self, peer: Peer, queues: TaskQueues, now: float) -> str | None:
        if peer.paused_until > now:
            return None
        task = self._task_for(peer, queues, now)
        return None if task is None else queues.take(task)

    def _task_for(self, peer: Peer, queues: TaskQueues, now: float) -> str | None:
        """Return the task that a peer should work for.

        An evaluator stays with its task.  It gets another task's work only while it holds fewer
        than `MAX_MIXED_LEASES` pieces, so that it builds the next candidate instead of switching
        between tasks; a task that no other evaluator is warm for goes first.
        """
        if peer.role is not Role.EVALUATOR:
            return queues.next_task()

        def fits(work: str) -> bool:
            return self._can_take(peer, self._placements[work][1], now)

        if queues.has_work(peer.task, fits):
            return peer.task
        return queues.next_task(self._peers_by_task, fits) if peer.load < MAX_MIXED_LEASES else None

    def _can_take(self, peer: Peer, placement: Placement, now: float) -> bool:
        """Whether a peer may have work with this placement."""
        if not self._suits(peer, placement, now):
            return False
        return (
            not placement.trusted
            or peer.identity.is_local
            or not self._has_local_worker(peer.role, placement, now)
        )

    def _has_local_worker(self, role: Role, placement: Placement, now: float) -> bool:
        """Whether a worker of the run's own machine has credit and suits this placement."""
        return any(
            one.identity.is_local and one.credit and self._suits(one, placement, now)
            for one in self._peers.values()
            if one.role is role
        )

    def _suits(self, peer: Peer, placement: Placement, now: float) -> bool:
        """Whether a peer's device is of the kind that the placement asks for.

        Figures of different devices are never compared, so work waits for a device of the kind
        that its task was measured on.  Where none has come for that long, any device will do:
        a score is the ratio to the reference, taken in turn on one and the same device.
        """
        if not placement.kind:
            return True
        seen_at = self._kind_seen_at.setdefault(placement.kind, now)
        return peer.kind == placement.kind or now - seen_at > self._kind_memory_s

    def note_device_kind(self, peer: Peer) -> None:
        """Note that a device of the peer's kind is available now."""
        if peer.credit and peer.kind in self._kind_seen_at:
            self._kind_seen_at[peer.kind] = peer.last_heard

    def note_task(self, peer: Peer, task: str) -> None:
        """Record the task that a peer works for; "": the peer is gone."""
        if peer.role is Role.EVALUATOR and task != peer.task:
            for name, change in ((peer.task, -1), (task, 1)):
                self._peers_by_task[name] += change
                if not name or not self._peers_by_task[name]:
                    del self._peers_by_task[name]
        peer.task = task
