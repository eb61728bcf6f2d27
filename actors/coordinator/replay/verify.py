"""Looking back at a task of a stored run: does what is recorded follow from what is recorded?

Three questions, each answered with the differences in words: do a node and its attempt tell one
story; does the pure search come to the recorded decisions; and, for whoever can render a prompt,
what was each agent told then.  Reads an `ReadOnlyDatabase`, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from actors.coordinator.gateway.work_messages import WorkMessages, work_id
from actors.coordinator.replay.rebuild import OPENING_STAGES, DecisionReplay, RecordedNode
from actors.coordinator.replay.replay_strategy import search_of_task
from actors.coordinator.search.scoring import checked_verdict, kernel_of, score_us
from actors.coordinator.search.search import BestConfirmed, OfferWork
from actors.coordinator.search.stages import Attempt, Stage
from actors.coordinator.search.tree import FAILED_SCORE
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.decisions import Decision, DecisionStore
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from actors.coordinator.storage.store import Store
from protocol.messages import AgentWork, Lease
from protocol.settings import Settings
from protocol.values import AttemptView, Candidate, Outcome, Plan, Task, Verdict


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """What an agent was told for one piece of work, and the request that was stored for it."""

    work: str
    message: AgentWork
    request: str


class RunVerifier:
    """One task of one stored run."""

    def __init__(self, database: ReadOnlyDatabase, task: Task, settings: Settings) -> None:
        self._database = database
        self._task = task
        self._settings = settings
        self._store = Store(database)
        self._activity = ActivityStore(database)
        self.decisions = DecisionStore(database).decisions_of(task.name)
        self._stages: dict[int, set[Stage]] = {}
        for decision in self.decisions:
            self._stages.setdefault(decision.number, set()).add(decision.stage)
        self._first = DecisionStore(database).unconfirmed_verdicts(task.name)
        self.nodes = [row.number for row in self._store.nodes(task.name)]

    def differences(self) -> list[str]:
        """Return what does not follow, one line each; none for a run that is as it was made."""
        reference = self._store.reference(self._task.name)
        if reference is None:
            return []
        found = [*self._attempt_stages()]
        unknown = [number for number in self.nodes if self._has_gaps(number)]
        if unknown:
            some = ", ".join(map(str, unknown[:5]))
            why = "taken away, or made by an older version; the choices can't be rebuilt"
            return [*found, f"decisions of attempts {some} are not recorded: {why}"]
        replay = DecisionReplay(
            lambda: search_of_task(self._task.name, self._settings),
            reference.eager_us,
            self.decisions,
            [*self._ended()],
        )
        for difference in replay.run():
            found.append(
                f"attempt {difference.number}, {difference.stage}: {difference.description}"
            )
        return found

    def _has_gaps(self, number: int) -> bool:
        """Whether a stage that a node must have gone through was never decided."""
        made = self._stages.get(number, set())
        written = self._store.candidate(self._task.name, number) is not None
        needed = {Stage.EVALUATE} if written else set()
        if written and Stage.PLAN in made:
            needed.add(Stage.WRITE)
        return not made & {*OPENING_STAGES} or not needed <= made

    def recorded_requests(self) -> Iterator[RecordedRequest]:
        """Yield what each agent was told, where a request is stored for it."""
        for decision in self.decisions:
            if decision.stage not in (*OPENING_STAGES, Stage.WRITE):
                continue
            lease = Lease(work=work_id(self._task.name, decision.number, decision.stage), epoch=0)
            calls = self._activity.calls(lease.work)
            if not calls:
                continue
            then = StoreBeforeConfirmation(self._database, self._unconfirmed_nodes_shown(decision))
            attempt = Attempt(
                number=decision.number, parent=decision.parent, repair=False, stage=decision.stage
            )
            offer = OfferWork(decision.stage, attempt, decision.window, decision.seed)
            message = WorkMessages(then, self._activity, {self._task.name: self._task}).message_for(
                lease, offer
            )
            yield RecordedRequest(work=lease.work, message=message, request=calls[0].request)  # type: ignore[arg-type]

    def _unconfirmed_nodes_shown(self, decision: Decision) -> dict[int, Verdict]:
        """Return the verdicts that the agents saw at a decision instead of the later ones."""
        again = {d.number: d.order for d in self.decisions if d.stage is Stage.CONFIRM}
        return {
            number: first.verdict
            for number, first in self._first.items()
            if decision.order < again.get(number, 0)
        }

    def _ended(self) -> Iterator[RecordedNode]:
        for row in self._store.nodes(self._task.name):
            score = FAILED_SCORE if row.score_us is None else row.score_us
            first = self._first.get(row.number)
            again = first is not None and row.confirmed
            second = BestConfirmed(row.number, score, row.is_confirmed_faster)
            yield RecordedNode(
                number=row.number,
                parent=row.parent,
                score=first.score if first else score,
                kernel=kernel_of(row.source, first.verdict if first else row.verdict),
                confirmed_score=second if again else None,
                gives_up_on=row.gives_up_on,
            )

    def _attempt_stages(self) -> Iterator[str]:
        """Hold each node against its attempt, and its score against its verdict."""
        reference = self._store.reference(self._task.name)
        rows = self._database.rows(
            "SELECT n.number, n.parent, a.parent, n.source, a.candidate, n.advice, a.plan, n.word,"
            " n.verdict, n.score_us FROM node AS n LEFT JOIN attempt AS a"
            " ON a.task = n.task AND a.number = n.number WHERE n.task = ? AND n.number > 0"
            " ORDER BY n.id",
            (self._task.name,),
        )
        for number, parent, began, source, candidate, advice, plan, word, blob, score in rows:
            verdict = msgspec.msgpack.decode(blob, type=Verdict)
            written = msgspec.msgpack.decode(candidate, type=Candidate) if candidate else None
            planned = msgspec.msgpack.decode(plan, type=Plan) if plan else None
            if began is None:
                yield f"node {number}: there is no attempt {number}"
                continue
            if parent != began:
                yield f"node {number}: its parent is {parent}, but the attempt grew node {began}"
            if source != (written.source if written else ""):
                yield f"node {number}: its source is not what the attempt's agent wrote"
            if advice != (planned.advice if planned else ""):
                yield f"node {number}: its advice is not the attempt's plan"
            if word != verdict.verdict:
                yield f"node {number}: its word is {word}, but its verdict says {verdict.verdict}"
            if reference is not None:
                expected = score_us(checked_verdict(verdict), reference)
                if expected != (FAILED_SCORE if score is None else score):
                    yield f"node {number}: its score is {score}, but its verdict makes {expected}"
            if written is None and verdict.verdict is not Outcome.NO_CANDIDATE:
                yield f"node {number}: it was judged without a candidate"


class StoreBeforeConfirmation(Store):
    """The store as it stood before some nodes were judged again."""

    def __init__(self, database: ReadOnlyDatabase, first: dict[int, Verdict]) -> None:
        super().__init__(database)
        self._first = first

    def attempt_view(self, task: str, number: int) -> AttemptView:
        """Return a node as an agent saw it then."""
        node = super().attempt_view(task, number)
        first = self._first.get(number)
        reference = self.reference(task)
        if first is None or reference is None:
            return node
        score = score_us(first, reference)
        return msgspec.structs.replace(
            node, verdict=first, score_us=None if score == FAILED_SCORE else score
        )
