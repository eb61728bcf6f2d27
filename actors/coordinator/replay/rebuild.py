"""The replay of a task's recorded verdicts through the pure search, decision by decision.  Pure.

From the recorded verdicts, in their order, the search has to make the recorded decisions.  Where it
decides otherwise, the difference is reported, and the replay goes on from the recorded decision, so
that one difference does not cause a hundred others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from actors.coordinator.search.attempt_stages import OPENING_STAGES, WRITING_STAGE, Attempt, Stage
from actors.coordinator.search.confirmation import BestConfirmed
from actors.coordinator.search.search import Instruction, OfferWork, Search, SearchEvent
from actors.coordinator.search.search_events import (
    AttemptEnded,
    CheckFailed,
    ReferenceReady,
    StageEnded,
)
from actors.coordinator.search.steering_events import NodeSteered, SourceInjected, SteeringEvent
from actors.coordinator.search.tree import FAILED_SCORE, ROOT
from actors.coordinator.storage.decisions import Decision
from protocol.values import GiveUpScope


@dataclass(frozen=True, kw_only=True)
class RecordedNode:
    """A node as the search first took it in, and its confirmation."""

    number: int
    parent: int
    score: float
    kernel: str
    confirmation: BestConfirmed | None = None
    gives_up_on: GiveUpScope = "attempt"


@dataclass(frozen=True, kw_only=True)
class PlacedEvent:
    """What a person asked of the search, and where it stands among the decisions and results."""

    event: NodeSteered | SourceInjected
    decided: int  # the largest order of a decision before it
    recorded: int  # nodes in the tree at that time, without the root
    confirmed: int  # confirmations at that time


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One recorded decision that the search does not make."""

    number: int
    stage: Stage
    description: str


class DecisionReplay:
    """One task's recorded decisions, compared with the decisions of the search."""

    def __init__(
        self,
        new_search: Callable[[], Search],
        eager_us: float,
        decisions: Sequence[Decision],
        nodes: Sequence[RecordedNode],
        directives: Sequence[PlacedEvent] = (),
    ) -> None:
        """`new_search` makes an empty search; `directives`: a person's, in order."""
        self.differences: list[Difference] = []
        self._new_search = new_search
        self._eager_us = eager_us
        self._decisions = decisions
        self._nodes = nodes
        self._node_by_number = {node.number: node for node in nodes}
        self._search = new_search()
        self._known = 0  # nodes that the search has
        self._second_looks = 0
        self._under_way: dict[int, Attempt] = {}  # as recorded
        self._confirmed: dict[int, BestConfirmed] = {}
        self._directives = directives
        self._steering: list[SteeringEvent] = []  # what the search has taken in of them
        self._injected = {
            one.event.number: one.event.parent
            for one in directives
            if isinstance(one.event, SourceInjected)
        }
        self._unhandled: int | None = None  # the node whose recorded confirmation is next

    def run(self) -> list[Difference]:
        """Return all differences, in the order in which they arose."""
        self.differences += self._impossible()
        if self.differences:
            return self.differences  # no tree has this shape, so it can't be rebuilt
        steps: dict[int, list[Decision | PlacedEvent]] = {}
        unsorted: list[Decision | PlacedEvent] = [*self._decisions, *self._directives]
        for step in sorted(unsorted, key=_order):
            steps.setdefault(step.recorded, []).append(step)
        for known in range(len(self._nodes) + 1):
            self._replay_round(known, steps.get(known, []))
        return self.differences

    def _impossible(self) -> Iterator[Difference]:
        """Yield the decisions and nodes whose parent was not recorded before them."""
        order = {node.number: n for n, node in enumerate(self._nodes, start=1)} | {ROOT: 0}
        after = len(self._nodes) + 1
        for d in self._decisions:
            if order.get(d.parent, after) > d.recorded:
                text = f"grows node {d.parent}, which was not there yet"
                yield Difference(number=d.number, stage=d.stage, description=text)
        for node in self._nodes:
            if order.get(node.parent, after) >= order[node.number]:
                text = f"its node is below {node.parent}, which was not there yet"
                yield Difference(number=node.number, stage=Stage.EVALUATE, description=text)

    def _replay_round(self, known: int, steps: list[Decision | PlacedEvent]) -> None:
        """Give the search one more node, and compare the decisions up to the next node.

        Attempts that begin after another decision of this round were begun by a restarted
        coordinator with a larger budget, or by a person's directive.
        """
        openings = _leading_openings(steps)
        self._search.budget = max([self._search.begun, *(d.number for d in openings)], default=0)
        self._known = known
        self._second_looks = 0
        offers = self._handle(self._record_node(known))
        self._compare(openings, offers)
        for step in steps[len(openings) :]:
            if isinstance(step, PlacedEvent):
                if len(self._confirmed) < step.confirmed:
                    offers = self._confirm_pending()
                offers = [*offers, *self._steer(step.event)]
                continue
            if self._unhandled is not None:
                # Without a confirmation a restarted coordinator decided what follows: a person had
                # rejected the node meanwhile.
                offers = self._confirm_pending() or self._restore_search()
            if step.stage in OPENING_STAGES:
                self._search.budget = step.number
                offers = self._restore_search()
            elif step.stage in WRITING_STAGE:
                offers = self._handle(CheckFailed(step.number, WRITING_STAGE[step.stage]))
            elif step.stage is not Stage.CONFIRM and step.number not in self._injected:
                offers = self._handle(StageEnded(step.number))
            self._compare([step], offers)
            self._unhandled = step.number if step.stage is Stage.CONFIRM else None
        if self._unhandled is not None:
            self._confirm_pending()

    def _steer(self, event: SteeringEvent) -> list[Instruction]:
        """Hand a directive to the search, which is restored first if it was over."""
        if self._search.finished:
            self._restore_search()
        if isinstance(event, SourceInjected):
            self._search.budget = max(self._search.budget, event.number)
        self._steering.append(event)
        return self._search.handle(event)

    def _record_node(self, known: int) -> SearchEvent:
        if not known:
            return ReferenceReady(self._eager_us)
        node = self._nodes[known - 1]
        self._under_way.pop(node.number, None)
        return AttemptEnded(node.number, node.score, node.kernel, node.gives_up_on)

    def _confirm_pending(self) -> list[Instruction]:
        """Take in the recorded confirmation of the node that was chosen for one.

        Return what follows: at least one instruction, and none where nothing was confirmed.
        """
        number, self._unhandled = self._unhandled, None
        node = self._node_by_number.get(-1 if number is None else number)
        if node is None or node.confirmation is None:
            return []  # the run was stopped before, or its coordinator killed
        self._confirmed[node.number] = node.confirmation
        self._second_looks += 1
        return self._handle(node.confirmation)

    def _handle(self, event: SearchEvent) -> list[Instruction]:
        number = getattr(event, "number", None)
        unknown = isinstance(event, StageEnded | CheckFailed | AttemptEnded) and (
            number not in self._search.under_way
        )
        return self._restore_search() if unknown else self._search.handle(event)

    def _compare(self, decisions: Sequence[Decision], instructions: Sequence[Instruction]) -> None:
        """Compare decisions with offers; where they differ, go on from the recorded ones."""
        offers = {(i.attempt.number, i.stage): i for i in instructions if isinstance(i, OfferWork)}
        must_restore = False
        for decision in decisions:
            offer = offers.get((decision.number, decision.stage))
            text = _difference(decision, offer)
            if text:
                self.differences.append(
                    Difference(number=decision.number, stage=decision.stage, description=text)
                )
            must_restore |= offer is None or offer.attempt.parent != decision.parent
            if decision.stage is not Stage.CONFIRM:
                self._under_way[decision.number] = Attempt(
                    number=decision.number,
                    parent=decision.parent,
                    repair=self._failed(decision.parent),
                    stage=decision.stage,
                    injected=decision.number in self._injected,
                )
        if must_restore:
            self._restore_search()

    def _restore_search(self) -> list[Instruction]:
        """Restore a new search from the recorded nodes so far, as a restarted coordinator does."""
        budget = self._search.budget
        self._search = self._new_search()
        self._search.budget = budget
        attempts = [self._under_way[number] for number in sorted(self._under_way)]
        known = self._nodes[: self._known]
        nodes = [(n.number, n.parent, self._score(n), n.kernel) for n in known]
        return self._search.restore(
            self._eager_us,
            nodes,
            attempts,
            self._confirmed.values(),
            self._second_looks,
            given_up={n.number: n.gives_up_on for n in known},
            steering=self._steering,
        )

    def _score(self, node: RecordedNode) -> float:
        second = self._confirmed.get(node.number)
        return node.score if second is None else second.score

    def _failed(self, number: int) -> bool:
        return number != ROOT and self._node_by_number[number].score == FAILED_SCORE


def _leading_openings(steps: list[Decision | PlacedEvent]) -> list[Decision]:
    """Return the decisions at the beginning that begin attempts."""
    found: list[Decision] = []
    for step in steps:
        if isinstance(step, PlacedEvent) or step.stage not in OPENING_STAGES:
            break
        found.append(step)
    return found


def _order(step: Decision | PlacedEvent) -> tuple[int, bool]:
    """Return the place of a step: a directive comes after the decisions that were made by then."""
    return (step.decided, True) if isinstance(step, PlacedEvent) else (step.order, False)


def _difference(decision: Decision, offer: OfferWork | None) -> str:
    """Return how a decision differs from the search's offer, as text; "" where it does not."""
    if offer is None:
        return f"recorded on node {decision.parent}, but the search does not make it"
    if offer.attempt.parent != decision.parent:
        return f"grows node {decision.parent}, but the search chooses node {offer.attempt.parent}"
    if offer.window != decision.window:
        return f"was shown {list(decision.window)}, but its window is {list(offer.window)}"
    if offer.seed != decision.seed:
        return f"was given seed {decision.seed}, but the search draws {offer.seed}"
    return ""
