"""Looking back at a task of a stored run: does what is recorded follow from what is recorded?

Three questions, each answered with the differences in words: do a node and its attempt tell one
story; does the pure search come to the recorded decisions; and, for whoever can render a prompt,
what was each agent told then.  Reads an `Archive`, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from actors.coordinator.archive import Archive
from actors.coordinator.books import Books
from actors.coordinator.decisions import Decision, Decisions
from actors.coordinator.following import search_for
from actors.coordinator.rebuild import OPENINGS, Ended, Rebuilding
from actors.coordinator.scoring import believable, kernel_of, score_us
from actors.coordinator.search import Confirmed, Offer
from actors.coordinator.stages import Attempt, Stage
from actors.coordinator.store import Store
from actors.coordinator.tree import FAILED
from actors.coordinator.work import Orders, work_id
from protocol.messages import AgentWork, Lease
from protocol.settings import Settings
from protocol.values import Candidate, Observed, Plan, Task, Verdict, Word


@dataclass(frozen=True, kw_only=True)
class Told:
    """What an agent was told for one piece of work, and the request that was stored for it."""

    work: str
    message: AgentWork
    request: str


class Lookback:
    """One task of one stored run."""

    def __init__(self, archive: Archive, task: Task, settings: Settings) -> None:
        self._archive = archive
        self._task = task
        self._settings = settings
        self._store = Store(archive)
        self._books = Books(archive)
        self.decisions = Decisions(archive).of(task.name)
        self._stages: dict[int, set[Stage]] = {}
        for decision in self.decisions:
            self._stages.setdefault(decision.number, set()).add(decision.stage)
        self._first = Decisions(archive).first_looks(task.name)
        self.nodes = [row.number for row in self._store.nodes(task.name)]

    def differences(self) -> list[str]:
        """Return what does not follow, one line each; none for a run that is as it was made."""
        reference = self._store.reference(self._task.name)
        if reference is None:
            return []
        found = [*self._stories()]
        unknown = [number for number in self.nodes if self._is_gappy(number)]
        if unknown:
            some = ", ".join(map(str, unknown[:5]))
            why = "taken away, or made by an older version; the choices can't be rebuilt"
            return [*found, f"decisions of attempts {some} are not recorded: {why}"]
        rebuilding = Rebuilding(
            lambda: search_for(self._task.name, self._settings),
            reference.eager_us,
            self.decisions,
            [*self._ended()],
        )
        for difference in rebuilding.run():
            found.append(f"attempt {difference.number}, {difference.stage}: {difference.words}")
        return found

    def _is_gappy(self, number: int) -> bool:
        """Whether a stage that a node must have gone through was never decided."""
        made = self._stages.get(number, set())
        written = self._store.candidate(self._task.name, number) is not None
        needed = {Stage.EVALUATE} if written else set()
        if written and Stage.PLAN in made:
            needed.add(Stage.WRITE)
        return not made & {*OPENINGS} or not needed <= made

    def told(self) -> Iterator[Told]:
        """Yield what each agent was told, where a request is stored for it."""
        for decision in self.decisions:
            if decision.stage not in (*OPENINGS, Stage.WRITE):
                continue
            lease = Lease(work=work_id(self._task.name, decision.number, decision.stage), epoch=0)
            calls = self._books.calls(lease.work)
            if not calls:
                continue
            then = AsItWas(self._archive, self._shown_first(decision))
            attempt = Attempt(
                number=decision.number, parent=decision.parent, repair=False, stage=decision.stage
            )
            offer = Offer(decision.stage, attempt, decision.window, decision.seed)
            message = Orders(then, self._books, {self._task.name: self._task}).message(lease, offer)
            yield Told(work=lease.work, message=message, request=calls[0].request)  # type: ignore[arg-type]

    def _shown_first(self, decision: Decision) -> dict[int, Verdict]:
        """Return the verdicts that the agents saw at a decision instead of the later ones."""
        again = {d.number: d.order for d in self.decisions if d.stage is Stage.CONFIRM}
        return {
            number: first.verdict
            for number, first in self._first.items()
            if decision.order < again.get(number, 0)
        }

    def _ended(self) -> Iterator[Ended]:
        for row in self._store.nodes(self._task.name):
            score = FAILED if row.score_us is None else row.score_us
            first = self._first.get(row.number)
            again = first is not None and row.confirmed
            second = Confirmed(row.number, score, row.is_confirmed_faster)
            yield Ended(
                number=row.number,
                parent=row.parent,
                score=first.score if first else score,
                kernel=kernel_of(row.source, first.verdict if first else row.verdict),
                second=second if again else None,
                gives_up_on=row.gives_up_on,
            )

    def _stories(self) -> Iterator[str]:
        """Hold each node against its attempt, and its score against its verdict."""
        reference = self._store.reference(self._task.name)
        rows = self._archive.rows(
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
                expected = score_us(believable(verdict), reference)
                if expected != (FAILED if score is None else score):
                    yield f"node {number}: its score is {score}, but its verdict makes {expected}"
            if written is None and verdict.verdict is not Word.NO_CANDIDATE:
                yield f"node {number}: it was judged without a candidate"


class AsItWas(Store):
    """The store as it stood before some nodes were judged again."""

    def __init__(self, archive: Archive, first: dict[int, Verdict]) -> None:
        super().__init__(archive)
        self._first = first

    def observed(self, task: str, number: int) -> Observed:
        """Return a node as an agent saw it then."""
        node = super().observed(task, number)
        first = self._first.get(number)
        reference = self.reference(task)
        if first is None or reference is None:
            return node
        score = score_us(first, reference)
        return msgspec.structs.replace(
            node, verdict=first, score_us=None if score == FAILED else score
        )
