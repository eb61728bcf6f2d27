"""Rebuilding: a task's stored events through the pure search, decision by decision.

Pure: from what was recorded (verdicts, in their order) the search has to come to the decisions that
were recorded.  Where it does not, the difference is named, and the rebuilding goes on from what was
recorded, so that one difference does not bring a hundred with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from actors.coordinator.search.search import (
    AttemptEnded,
    BestConfirmed,
    Instruction,
    OfferWork,
    ReferenceReady,
    Search,
    SearchEvent,
    StageEnded,
)
from actors.coordinator.search.stages import Attempt, Stage
from actors.coordinator.search.tree import FAILED_SCORE, ROOT
from actors.coordinator.storage.decisions import Decision
from protocol.values import GiveUpScope

OPENING_STAGES = (Stage.PLAN, Stage.REPAIR, Stage.SOLVE, Stage.REFLECT)


@dataclass(frozen=True, kw_only=True)
class RecordedNode:
    """A node as the search took it in, and as it stood once it was judged again."""

    number: int
    parent: int
    score: float
    kernel: str
    confirmed_score: BestConfirmed | None = None
    gives_up_on: GiveUpScope = "attempt"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One decision that the search does not come to."""

    number: int
    stage: Stage
    description: str


@dataclass
class DecisionReplay:
    """One task on its way through the search; `new_search` makes an empty one."""

    new_search: Callable[[], Search]
    eager_us: float
    decisions: Sequence[Decision]
    nodes: Sequence[RecordedNode]
    differences: list[Difference] = field(default_factory=list)

    def run(self) -> list[Difference]:
        """Return all differences, in the order in which they arose."""
        self.differences += self._impossible()
        if self.differences:
            return self.differences  # no tree has this shape, so there is nothing to rebuild
        self._search = self.new_search()
        self._known = 0  # nodes that the search has
        self._under_way: dict[int, Attempt] = {}  # as recorded
        self._confirmed: dict[int, BestConfirmed] = {}
        self._node = {node.number: node for node in self.nodes}
        made: dict[int, list[Decision]] = {}
        for decision in self.decisions:
            made.setdefault(decision.recorded, []).append(decision)
        for known in range(len(self.nodes) + 1):
            self._replay_round(known, made.get(known, []))
        return self.differences

    def _impossible(self) -> Iterator[Difference]:
        """Yield what grows from a node that was not there yet."""
        place = {node.number: n for n, node in enumerate(self.nodes, start=1)} | {ROOT: 0}
        after = len(self.nodes) + 1
        for d in self.decisions:
            if place.get(d.parent, after) > d.recorded:
                words = f"grows node {d.parent}, which was not there yet"
                yield Difference(number=d.number, stage=d.stage, description=words)
        for node in self.nodes:
            if place.get(node.parent, after) >= place[node.number]:
                words = f"its node hangs below {node.parent}, which was not there yet"
                yield Difference(number=node.number, stage=Stage.EVALUATE, description=words)

    def _replay_round(self, known: int, made: list[Decision]) -> None:
        """Let the search know one node more, and go through what was decided from then on."""
        openings = next(
            (n for n, d in enumerate(made) if d.stage not in OPENING_STAGES), len(made)
        )  # begun at once; what stands later was begun by a later start, with a larger budget
        self._search.budget = max(
            [self._search.begun, *(d.number for d in made[:openings])], default=0
        )
        self._known = known
        self._second_looks = 0
        offers = self._handle(self._record_node(known))
        self._compare(made[:openings], offers)
        for decision in made[openings:]:
            if decision.stage in OPENING_STAGES:
                self._search.budget = decision.number
                offers = self._restore_search()
            elif decision.stage is not Stage.CONFIRM:
                offers = self._handle(StageEnded(decision.number))
            self._compare([decision], offers)
            if decision.stage is Stage.CONFIRM:
                offers = self._confirm(decision.number)

    def _record_node(self, known: int) -> SearchEvent:
        if not known:
            return ReferenceReady(self.eager_us)
        node = self.nodes[known - 1]
        self._under_way.pop(node.number, None)
        return AttemptEnded(node.number, node.score, node.kernel, node.gives_up_on)

    def _confirm(self, number: int) -> list[Instruction]:
        node = self._node.get(number)
        if node is None or node.confirmed_score is None:
            return []  # the run was stopped before
        self._confirmed[number] = node.confirmed_score
        self._second_looks += 1
        return self._handle(node.confirmed_score)

    def _handle(self, event: SearchEvent) -> list[Instruction]:
        number = getattr(event, "number", None)
        unknown = isinstance(event, StageEnded | AttemptEnded) and (
            number not in self._search.under_way
        )
        return self._restore_search() if unknown else self._search.handle(event)

    def _compare(self, made: Sequence[Decision], instructions: Sequence[Instruction]) -> None:
        """Hold decisions against offers; where they part, the recorded ones are followed."""
        offers = {(i.attempt.number, i.stage): i for i in instructions if isinstance(i, OfferWork)}
        parted = False
        for decision in made:
            offer = offers.get((decision.number, decision.stage))
            words = _difference(decision, offer)
            if words:
                self.differences.append(
                    Difference(number=decision.number, stage=decision.stage, description=words)
                )
            parted |= offer is None or offer.attempt.parent != decision.parent
            if decision.stage is not Stage.CONFIRM:
                self._under_way[decision.number] = Attempt(
                    number=decision.number,
                    parent=decision.parent,
                    repair=self._failed(decision.parent),
                    stage=decision.stage,
                )
        if parted:
            self._restore_search()

    def _restore_search(self) -> list[Instruction]:
        """Begin anew from what was recorded so far, as a coordinator that restarts does."""
        budget = self._search.budget
        self._search = self.new_search()
        self._search.budget = budget
        attempts = [self._under_way[number] for number in sorted(self._under_way)]
        known = self.nodes[: self._known]
        nodes = [(n.number, n.parent, self._score(n), n.kernel) for n in known]
        return self._search.restore(
            self.eager_us,
            nodes,
            attempts,
            self._confirmed.values(),
            self._second_looks,
            given_up={n.number: n.gives_up_on for n in known},
        )

    def _score(self, node: RecordedNode) -> float:
        second = self._confirmed.get(node.number)
        return node.score if second is None else second.score

    def _failed(self, number: int) -> bool:
        return number != ROOT and self._node[number].score == FAILED_SCORE


def _difference(decision: Decision, offer: OfferWork | None) -> str:
    """Return in words how a decision differs from what the search offers; "" where it does not."""
    if offer is None:
        return f"recorded on node {decision.parent}, but the search does not come to it"
    if offer.attempt.parent != decision.parent:
        return f"grows node {decision.parent}, but the search chooses node {offer.attempt.parent}"
    if offer.window != decision.window:
        return f"was shown {list(decision.window)}, but its window is {list(offer.window)}"
    if offer.seed != decision.seed:
        return f"was given seed {decision.seed}, but the search draws {offer.seed}"
    return ""
