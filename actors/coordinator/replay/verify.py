"""The verification of one task of a stored run.

It reports differences as text: between each node and its attempt, and between the recorded
decisions and the pure search's.  It also rebuilds the message that each agent got, so that
`scripts/replay.py` can render the request again and compare it.  It reads a `ReadOnlyDatabase` and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from actors.coordinator.gateway.work_messages import WorkMessages, work_id
from actors.coordinator.replay.rebuild import (
    DecisionReplay,
    PlacedEvent,
    RecordedNode,
)
from actors.coordinator.replay.replay_strategy import search_of_task
from actors.coordinator.search.attempt_stages import OPENING_STAGES, WRITING_STAGE, Attempt, Stage
from actors.coordinator.search.confirmation import BestConfirmed
from actors.coordinator.search.scoring import kernel_of, score_us
from actors.coordinator.search.search import OfferWork
from actors.coordinator.search.tree import FAILED_SCORE
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.decisions import Decision, DecisionStore
from actors.coordinator.storage.directive_store import DirectiveStore
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from actors.coordinator.storage.store import Store
from protocol.messages import AgentWork, Lease
from protocol.settings import Settings
from protocol.values import AttemptView, Candidate, Outcome, Plan, Reference, Task, Verdict


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """The message that an agent got for one piece of work, and its stored request."""

    work: str
    message: AgentWork
    request: str
    version: str  # of what wrote it; "": an older version did not store it


class RunVerifier:
    """One task of one stored run."""

    def __init__(self, database: ReadOnlyDatabase, task: Task, settings: Settings) -> None:
        self._database = database
        self._task = task
        self._settings = settings
        self._store = Store(database)
        self._activity = ActivityStore(database)
        self._directives = DirectiveStore(database)
        self.decisions = DecisionStore(database).decisions_of(task.name)
        self._injected = {row.attempt for row in self._directives.applied(task.name)} - {None}
        self._stages: dict[int, set[Stage]] = {}
        for decision in self.decisions:
            self._stages.setdefault(decision.number, set()).add(decision.stage)
        self._unconfirmed = DecisionStore(database).unconfirmed_verdicts(task.name)
        self.nodes = [row.number for row in self._store.nodes(task.name)]

    def differences(self) -> list[str]:
        """Return all differences, one line each; none for an unchanged run."""
        reference = self._store.reference(self._task.name)
        if reference is None:
            return []
        found = [*self._attempt_stages()]
        unknown = [number for number in self.nodes if self._has_gaps(number)]
        if unknown:
            some = ", ".join(map(str, unknown[:5]))
            reason = "removed, or made by an older version; the choices can't be rebuilt"
            return [*found, f"decisions of attempts {some} are not recorded: {reason}"]
        replay = DecisionReplay(
            lambda: search_of_task(self._task.name, self._settings),
            reference.eager_us,
            self.decisions,
            [*self._recorded_nodes()],
            [*self._placed_events()],
        )
        for difference in replay.run():
            found.append(
                f"attempt {difference.number}, {difference.stage}: {difference.description}"
            )
        return found

    def _has_gaps(self, number: int) -> bool:
        """Whether the decision of a stage that a node must have gone through is missing."""
        if number in self._injected:
            return Stage.EVALUATE not in self._stages.get(number, set())
        stages = self._stages.get(number, set())
        has_candidate = self._store.candidate(self._task.name, number) is not None
        needed = {Stage.EVALUATE} if has_candidate else set()
        if has_candidate and Stage.PLAN in stages:
            needed.add(Stage.WRITE)
        return not stages & {*OPENING_STAGES} or not needed <= stages

    def recorded_requests(self) -> Iterator[RecordedRequest]:
        """Yield the message of each agent's work that has a stored request."""
        for decision in self.decisions:
            if decision.stage not in (*OPENING_STAGES, Stage.WRITE, *WRITING_STAGE):
                continue
            lease = Lease(work=work_id(self._task.name, decision.number, decision.stage), epoch=0)
            calls = self._activity.calls(lease.work)
            if not calls:
                continue
            store = StoreBeforeConfirmation(self._database, self._unconfirmed_at(decision))
            attempt = Attempt(
                number=decision.number, parent=decision.parent, repair=False, stage=decision.stage
            )
            offer = OfferWork(decision.stage, attempt, decision.window, decision.seed)
            work_messages = WorkMessages(
                store,
                self._activity,
                self._directives,
                {self._task.name: self._task},
                DecisionStore(self._database),
                has_ledger=self._settings.has_ledger,
            )
            message = work_messages.message_for(lease, offer)
            yield RecordedRequest(
                work=lease.work,
                message=message,  # type: ignore[arg-type]
                request=calls[0].request,
                version=calls[0].request_version,
            )

    def _unconfirmed_at(self, decision: Decision) -> dict[int, Verdict]:
        """Return the first verdicts of the nodes that were confirmed after a decision."""
        confirmed_at = {d.number: d.order for d in self.decisions if d.stage is Stage.CONFIRM}
        return {
            number: first.verdict
            for number, first in self._unconfirmed.items()
            if decision.order < confirmed_at.get(number, 0)
        }

    def _placed_events(self) -> Iterator[PlacedEvent]:
        """Yield what a person asked of the task's search."""
        for row in self._directives.applied(self._task.name):
            event = row.search_event() if row.task == self._task.name else None
            if event is not None:
                yield PlacedEvent(
                    event=event,
                    decided=row.place.decided,
                    recorded=row.place.recorded,
                    confirmed=row.place.confirmed,
                )

    def _recorded_nodes(self) -> Iterator[RecordedNode]:
        for row in self._directives.before_rejection(
            self._task.name, self._store.nodes(self._task.name)
        ):
            score = FAILED_SCORE if row.score_us is None else row.score_us
            first = self._unconfirmed.get(row.number)
            is_confirmed = first is not None and row.confirmed
            second = BestConfirmed(row.number, score, row.is_confirmed_faster)
            yield RecordedNode(
                number=row.number,
                parent=row.parent,
                score=first.score if first else score,
                kernel=kernel_of(row.source, first.verdict if first else row.verdict),
                confirmation=second if is_confirmed else None,
                gives_up_on=row.gives_up_on,
            )

    def _attempt_stages(self) -> Iterator[str]:
        """Compare each node with its attempt, and its score with its verdict."""
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
                expected = score_us(verdict, reference)
                if expected != (FAILED_SCORE if score is None else score):
                    yield f"node {number}: its score is {score}, but its verdict makes {expected}"
            if written is None and verdict.verdict is not Outcome.NO_CANDIDATE:
                yield f"node {number}: it was judged without a candidate"


class StoreBeforeConfirmation(Store):
    """The store as it was before some nodes were confirmed."""

    def __init__(self, database: ReadOnlyDatabase, first: dict[int, Verdict]) -> None:
        super().__init__(database)
        self._unconfirmed = first

    def attempt_view(self, task: str, number: int) -> AttemptView:
        """Return a node as an agent saw it then."""
        node = super().attempt_view(task, number)
        first = self._unconfirmed.get(number)
        reference = self.reference(task)
        if first is None or reference is None:
            return node
        return msgspec.structs.replace(
            node, verdict=first, score_us=self._first_score(number, reference)
        )

    def recorded_scores(self, task: str, after: int) -> list[tuple[int, int, float | None]]:
        """Return (id, number, score) of later nodes, with the scores of then."""
        reference = self.reference(task)
        rows = super().recorded_scores(task, after)
        return [
            (row, number, self._first_score(number, reference))
            if reference is not None and number in self._unconfirmed
            else (row, number, score)
            for row, number, score in rows
        ]

    def _first_score(self, number: int, reference: Reference) -> float | None:
        score = score_us(self._unconfirmed[number], reference)
        return None if score == FAILED_SCORE else score
