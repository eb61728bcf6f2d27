"""Work ids and the messages that carry work: what a granted lease tells its worker.

The search speaks of stages and node numbers; here they become `Plan`, `Write`, `Repair`, `Measure`
and `Evaluate` with sources, verdicts and replies already bought, all read from the store.
"""

from __future__ import annotations

from functools import lru_cache

from actors.coordinator.books import Books
from actors.coordinator.search import Offer, Stage
from actors.coordinator.store import Store
from actors.coordinator.tree import ROOT
from protocol import messages
from protocol.messages import Lease
from protocol.values import Plan, Reference, Role, Task

ROLE_OF = {
    Stage.PLAN: Role.PLANNER,
    Stage.WRITE: Role.CODER,
    Stage.REPAIR: Role.DEBUGGER,
    Stage.MEASURE: Role.EVALUATOR,
    Stage.EVALUATE: Role.EVALUATOR,
    Stage.CONFIRM: Role.EVALUATOR,
}

CONFIRM_ROUNDS = 3  # fresh processes each: what differs from start to start is seen
SHOWN = 1024  # nodes kept at hand, so that a window costs no read


def work_id(task: str, number: int, stage: Stage) -> str:
    """Name one stage of one attempt: "gelu/7/write"."""
    return f"{task}/{number}/{stage}"


def parse_work(work: str) -> tuple[str, int, Stage]:
    """Return (task, attempt, stage) of a work id that `work_id` made."""
    task, number, stage = work.rsplit("/", 2)
    return task, int(number), Stage(stage)


class Orders:
    """Makes the message for a granted lease."""

    def __init__(self, store: Store, books: Books, tasks: dict[str, Task]) -> None:
        self._store = store
        self._books = books
        self._tasks = tasks
        # What is recorded never changes, and the same few nodes are shown again and again.
        self._node = lru_cache(maxsize=SHOWN)(store.observed)
        self._reference = lru_cache(maxsize=SHOWN)(self._measured)

    def message(self, lease: Lease, offer: Offer) -> messages.Work:
        """Return what the worker is to do; everything it needs is inside."""
        name, number, stage = parse_work(lease.work)
        task = self._tasks[name]
        if stage is Stage.MEASURE:
            return messages.Measure(lease=lease, task=task)
        reference = self._reference(name)
        if stage in (Stage.EVALUATE, Stage.CONFIRM):
            candidate = self._store.candidate(name, number)
            if candidate is None:
                raise RuntimeError(f"{lease.work} is leased without a candidate")
            return messages.Evaluate(
                lease=lease,
                task=task,
                source=candidate.source,
                reference=reference,
                rounds=CONFIRM_ROUNDS if stage is Stage.CONFIRM else 1,
            )
        node, root = self._node(name, offer.attempt.parent), self._node(name, ROOT)
        shown = [n for n in offer.window if n not in (ROOT, offer.attempt.parent)]
        window = tuple(self._node(name, n) for n in shown)
        answered = self._books.calls(lease.work)
        if stage is Stage.PLAN:
            return messages.MakePlan(
                lease=lease,
                task=task,
                attempt=number,
                node=node,
                root=root,
                window=window,
                reference=reference,
                seed=offer.seed,
                answered=answered,
            )
        plan = self._store.plan(name, number)
        make = messages.Write if stage is Stage.WRITE else messages.Repair
        return make(
            lease=lease,
            task=task,
            attempt=number,
            node=node,
            root=root,
            window=window,
            plan=plan or Plan(advice="", scaffold=node.source or root.source),
            reference=reference,
            seed=offer.seed,
            answered=answered,
        )

    def _measured(self, task: str) -> Reference:
        reference = self._store.reference(task)
        if reference is None:
            raise RuntimeError(f"{task}: work is leased before its reference was measured")
        return reference
