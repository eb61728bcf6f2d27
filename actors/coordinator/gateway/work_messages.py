"""Work ids, and the messages that carry work to the holders of leases.

The search names stages and nodes by number; here they become `MakePlan`, `Write`, `Repair`,
`MeasureReference` and `Evaluate` with sources, verdicts and stored replies, all read from the
store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from msgspec.structs import replace

from actors.coordinator.gateway.attempt_ledger import AttemptLedger, Ledger
from actors.coordinator.search.attempt_stages import JUDGED_STAGES, WRITING_STAGE, Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.search.tree import ROOT
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.directive_store import NO_DECISION, DirectiveStore
from actors.coordinator.storage.store import Store
from protocol import messages
from protocol.messages import Lease
from protocol.values import AttemptView, Outcome, Plan, Reference, Role, Task, source_key

ROLE_OF = {
    Stage.PLAN: Role.PLANNER,
    Stage.WRITE: Role.CODER,
    Stage.REPAIR: Role.DEBUGGER,
    # A strategy with a single agent uses the coder's process, with prompts of its own.
    Stage.SOLVE: Role.CODER,
    Stage.REFLECT: Role.CODER,
    Stage.MEASURE: Role.EVALUATOR,
    Stage.BASELINES: Role.EVALUATOR,
    Stage.EVALUATE: Role.EVALUATOR,
    Stage.AMEND_WRITE: Role.CODER,
    Stage.AMEND_REPAIR: Role.DEBUGGER,
    Stage.AMEND_SOLVE: Role.CODER,
    Stage.AMEND_REFLECT: Role.CODER,
    Stage.REEVALUATE: Role.EVALUATOR,
    Stage.CONFIRM: Role.EVALUATOR,
}

CONFIRM_ROUNDS = 3  # each in fresh processes, to see what differs from start to start
MAX_ROUNDS = 15  # while the interval is wide: processes differ by 20 % on some hosts
CACHED_VIEWS = 1024  # nodes in memory, so that a window costs no read
MAX_TRIED_SHOWN = 512  # candidates whose keys are sent: some ten kilobytes


def work_id(task: str, number: int, stage: Stage) -> str:
    """Return the id of one stage of one attempt: "gelu/7/write"."""
    return f"{task}/{number}/{stage}"


def parse_work(work: str) -> tuple[str, int, Stage]:
    """Return (task, attempt, stage) of a work id that `work_id` made."""
    task, number, stage = work.rsplit("/", 2)
    return task, int(number), Stage(stage)


class WorkMessages:
    """Makes the message for a granted lease."""

    def __init__(
        self,
        store: Store,
        activity: ActivityStore,
        directives: DirectiveStore,
        tasks: dict[str, Task],
        decisions: DecisionStore | None = None,
        *,
        has_ledger: bool = True,
    ) -> None:
        """`decisions`: for the ledger that agents see, and for candidates that they mend."""
        self._store = store
        self._decisions = decisions
        self._directives = directives
        self._activity = activity
        self._tasks = tasks
        # The same few nodes are shown again and again.
        self._keys: dict[str, deque[str]] = {}
        self._last_row: dict[str, int] = {}  # of the last node whose key is in `_keys`
        self._node = lru_cache(maxsize=CACHED_VIEWS)(store.attempt_view)
        self._ledger = (
            AttemptLedger(store, decisions, self._view, directives.rejections)
            if decisions is not None and has_ledger
            else None
        )

    def baselines_message(self, lease: Lease) -> messages.MeasureBaselines:
        """Return the message for the holder of a task's background work."""
        name, _number, _stage = parse_work(lease.work)
        return messages.MeasureBaselines(
            lease=lease, task=self._tasks[name], reference=self._reference(name)
        )

    def message_for(
        self,
        lease: Lease,
        offer: OfferWork,
        under_way: Sequence[Attempt] = (),
        best_speedup: float = 0.0,
        is_stagnant: bool = False,
    ) -> messages.Work:
        """Return the message for a worker; it contains everything that the worker needs.

        `under_way`: the attempts that have no node yet, this one included.  `best_speedup`: of the
        task's best node so far.  `is_stagnant`: whether that has not improved for some attempts.
        """
        name, _number, stage = parse_work(lease.work)
        if stage is Stage.MEASURE:
            return messages.MeasureReference(
                lease=lease, task=self._tasks[name], defer_baselines=True
            )
        if stage is Stage.CONFIRM:
            return self._confirm(lease)
        if stage in JUDGED_STAGES:
            return replace(self._evaluate(lease), best_speedup=best_speedup, profile=is_stagnant)
        if stage in WRITING_STAGE:
            return self._amend(lease, WRITING_STAGE[stage], under_way)
        return self._agent_work(lease, offer, under_way)

    def _evaluate(self, lease: Lease) -> messages.Evaluate:
        name, number, _stage = parse_work(lease.work)
        candidate = self._store.candidate(name, number)
        if candidate is None:
            raise RuntimeError(f"{lease.work} is leased without a candidate")
        return messages.Evaluate(
            lease=lease,
            task=self._tasks[name],
            source=candidate.source,
            reference=self._reference(name),
        )

    def _confirm(self, lease: Lease) -> messages.Evaluate:
        name, number, _stage = parse_work(lease.work)
        # A run that is told to finish has little time: a wide interval above 1 is better than none.
        is_short = self._directives.is_finishing()
        return replace(
            self._evaluate(lease),
            rounds=CONFIRM_ROUNDS,
            most_rounds=CONFIRM_ROUNDS if is_short else MAX_ROUNDS,
            is_doubtful=self._store.attempt_view(name, number).verdict.is_slower,
        )

    def _agent_work(
        self, lease: Lease, offer: OfferWork, under_way: Sequence[Attempt]
    ) -> messages.AgentWork:
        """Return the message for an agent: the node, its window, and what is known besides."""
        name, number, stage = parse_work(lease.work)
        parent = offer.attempt.parent
        order = self._order(name, number, stage)
        # A repair starts from its node's plan; every other stage needs a source.
        node_view = self._view if stage is Stage.REPAIR else self._node_with_source
        shown = [n for n in offer.window if n not in (ROOT, parent)]
        ledger = self._ledger.ledger(name, number, stage) if self._ledger else Ledger()
        best = None if ledger.best in (None, parent, *shown) else ledger.best
        siblings = [a for a in under_way if a.parent == parent and a.number != number]
        return self._request(stage, name, number, offer)(
            lease=lease,
            task=self._tasks[name],
            attempt=number,
            node=node_view(name, parent, order),
            root=self._node(name, ROOT),
            # Of earlier attempts than the last one, a reflecting agent sees the reflections only.
            window=tuple(self._view(name, n, order) for n in shown if stage is not Stage.REFLECT),
            reference=self._reference_shown(name, number, stage),
            seed=offer.seed,
            completed_calls=self._activity.calls(lease.work),
            tried=self._tried(name, under_way),
            planned=self._planned(name, siblings),
            person_advice=self._advice(name, parent, stage, order),
            ledger=ledger.entries,
            ledger_left_out=ledger.left_out,
            best=None if best is None else self._view(name, best, order),
        )

    def _amend(self, lease: Lease, writing: Stage, under_way: Sequence[Attempt]) -> messages.Work:
        """Return the message of the stage that wrote a candidate, with what the judge said of it.

        It shows what that stage was shown, so the conversation begins with the same request.
        """
        name, number, _ = parse_work(lease.work)
        decision = self._decisions.place_of(name, number, writing) if self._decisions else None
        if decision is None:
            raise RuntimeError(f"{lease.work} is leased, but nothing was written before it")
        attempt = Attempt(number=number, parent=decision.parent, repair=False, stage=writing)
        message = self.message_for(
            Lease(work=work_id(name, number, writing), epoch=lease.epoch),
            OfferWork(writing, attempt, decision.window, decision.seed),
            under_way,
        )
        return replace(
            message,
            lease=lease,
            completed_calls=self._activity.calls(lease.work),
            failed=self._store.failed_candidate(name, number),
        )

    def node_confirmed(self) -> None:
        """Read recorded nodes anew: a confirmation has replaced a verdict."""
        self._node.cache_clear()
        if self._ledger is not None:
            self._ledger.node_changed()

    def _order(self, task: str, number: int, stage: Stage) -> int:
        """Return the place of an attempt's decision: a request shows what was known then.

        So an attempt that is leased again has the same request, which its stored reply answers.
        """
        if not self._directives.applied(task):
            return NO_DECISION
        return self._directives.order_of(task, number, stage)

    def _advice(self, task: str, parent: int, stage: Stage, order: int) -> tuple[str, ...]:
        """Return a person's advice for the agents that plan."""
        if stage not in (Stage.PLAN, Stage.SOLVE, Stage.REFLECT) or order == NO_DECISION:
            return ()
        return self._directives.advice(task, self._store.parents(task, parent), order)

    def _view(self, task: str, number: int, order: int) -> AttemptView:
        """Return a node as it was when the decision of that order was made."""
        rejection = self._directives.rejections(task).get(number)
        if rejection is None:
            return self._node(task, number)
        view = self._store.attempt_view(task, number)
        if order > rejection.decided or view.verdict.verdict is not Outcome.REJECTED:
            return view
        return replace(view, verdict=rejection.verdict, score_us=rejection.score_us)

    def _tried(self, task: str, under_way: Sequence[Attempt]) -> tuple[str, ...]:
        """Return the keys of the newest candidates; each node's source is read once."""
        keys = self._keys.setdefault(task, deque(maxlen=MAX_TRIED_SHOWN))
        for row, source in self._store.sources(task, self._last_row.get(task, 0)):
            keys.append(source_key(source))
            self._last_row[task] = row
        written = [self._store.candidate(task, a.number) for a in under_way]
        return (*keys, *(source_key(one.source) for one in written if one is not None))

    def _planned(self, task: str, siblings: Sequence[Attempt]) -> tuple[str, ...]:
        """Return the advice of plans for the same node that have no candidate yet."""
        plans = [self._store.plan(task, a.number) for a in siblings if a.stage is Stage.WRITE]
        return tuple(plan.advice for plan in plans if plan is not None)

    def _request(
        self, stage: Stage, task: str, number: int, offer: OfferWork
    ) -> Callable[..., messages.AgentWork]:
        """Return the message type for an agent's stage, with the fields of this stage only."""
        if stage is Stage.PLAN:
            return messages.MakePlan
        if stage is Stage.SOLVE:
            return messages.Solve
        if stage is Stage.REFLECT:
            remembered = [self._node(task, n).advice for n in offer.window if n != ROOT]
            return partial(messages.Reflect, reflections=tuple(reversed(remembered)))
        node = self._node_with_source(task, offer.attempt.parent, NO_DECISION)
        plan = self._store.plan(task, number)
        return partial(
            messages.Write if stage is Stage.WRITE else messages.Repair,
            plan=plan or Plan(advice="", scaffold=node.source),
        )

    def _node_with_source(self, task: str, number: int, order: int) -> AttemptView:
        """Return a node; without code of its own it has the source that its agent was to change.

        So a chain that one refusal broke does not begin with the reference again.
        """
        node = above = self._view(task, number, order)
        while not above.source.strip() and above.parent is not None:
            above = self._node(task, above.parent)
        return node if above is node else replace(node, source=above.source)

    def _reference_shown(self, task: str, number: int, stage: Stage) -> Reference:
        """Return the reference as it was when an attempt's decision was made.

        Baselines that arrived later are left out, so an attempt that is leased again has the same
        request, and a stored run's requests can be made again.
        """
        reference = self._reference(task)
        decided = reference.baselines_decided
        if not decided or self._directives.order_of(task, number, stage) > decided:
            return reference
        return replace(reference, compile_us=None, max_autotune_us=None)

    def _reference(self, task: str) -> Reference:
        reference = self._store.reference(task)
        if reference is None:
            raise RuntimeError(f"{task}: work is leased before its reference was measured")
        return reference
