"""The search over one task: a pure state machine, `handle(event) -> [instruction]`.

It contains no socket, clock, file or global random generator.  `tasks.py` hands it the events and
carries out its instructions, so that a test of a crash at any point takes milliseconds.  Every draw
is seeded by task, attempt and stage: with one expansion at a time, two runs grow the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from actors.coordinator.search.attempt_stages import (
    AMENDING_STAGE,
    JUDGED_STAGES,
    WRITING_STAGE,
    Attempt,
    Stage,
    stage_after,
)
from actors.coordinator.search.confirmation import BestConfirmed, next_to_confirm
from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.search_events import (
    AttemptEnded,
    CheckFailed,
    ReferenceReady,
    ReferenceRefused,
    StageEnded,
)
from actors.coordinator.search.steering_events import (
    Boosts,
    BudgetChanged,
    NodeSteered,
    SourceInjected,
    SteeringEvent,
    steer_node,
)
from actors.coordinator.search.strategy import Strategy, WaitsForNodes, WindowContext
from actors.coordinator.search.tree import FAILED_SCORE, ROOT, Tree
from protocol.settings import SearchSettings
from protocol.values import GiveUpScope

ROOT_KERNEL = "root"


SearchEvent = (
    ReferenceReady
    | ReferenceRefused
    | StageEnded
    | CheckFailed
    | AttemptEnded
    | BestConfirmed
    | SteeringEvent
)


# --- instructions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfferWork:
    """Lease this stage of this attempt to a worker; `window`: the nodes that an agent sees."""

    stage: Stage
    attempt: Attempt
    window: tuple[int, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class SaveAttempt:
    """Make this attempt's progress durable."""

    attempt: Attempt


@dataclass(frozen=True)
class FinishTask:
    """The task is over; `problem`: why its reference could not be measured."""

    problem: str = ""


Instruction = OfferWork | SaveAttempt | FinishTask


class Search:
    """The tree of one task and the attempts under way on it."""

    def __init__(
        self, *, task: str, seed: int, strategy: Strategy, settings: SearchSettings
    ) -> None:
        self.task = task
        self.settings = settings
        self.budget = settings.budget
        self.finished = False
        self.abandoned = False  # a person finished the run before this task began an attempt
        self.given_up = False  # an agent gave up on the task: no further attempt is begun
        self.tree: Tree | None = None
        self.leaderboard: Leaderboard | None = None
        self.under_way: dict[int, Attempt] = {}
        self.begun = 0  # attempts begun, those ended included
        self.confirmed: dict[int, BestConfirmed] = {}
        self.confirming: int | None = None  # the node whose confirmation is under way
        self._boosts = Boosts()
        self._second_looks = 0  # since the last attempt ended
        self._seed = seed
        self._strategy = strategy
        self._waiting: dict[int, Attempt] = {}  # attempts whose windows need nodes under way

    @property
    def recorded(self) -> int:
        """The number of nodes in the tree, without the root."""
        return len(self.tree.recorded) if self.tree is not None else 0

    @property
    def is_growing(self) -> bool:
        """Whether attempts may still begin: neither over, nor only waiting for a confirmation."""
        return not self.finished and self.confirming is None

    @property
    def best_speedup(self) -> float:
        """The speed-up of the best node, the reference included; 0 before it is measured."""
        if self.leaderboard is None:
            return 0.0
        score, _number = next(self.leaderboard.ranked())  # the root is always among them
        return self._tree[ROOT].score / score

    @property
    def ended(self) -> int:
        """The number of attempts with a verdict."""
        return self.begun - len(self.under_way)

    def score(self, number: int) -> float:
        """Return a node's score in the tree."""
        return self._tree[number].score

    def begin(self) -> list[Instruction]:
        """Return the first instruction of a task that has no reference yet."""
        measure = Attempt(number=ROOT, parent=ROOT, repair=False, stage=Stage.MEASURE)
        return [OfferWork(Stage.MEASURE, measure)]

    def handle(self, event: SearchEvent) -> list[Instruction]:
        """Take in one event; return the instructions that follow, in order."""
        match event:
            case ReferenceReady():
                self._add_root(event.eager_us)
                return [] if self.finished else self._grow()
            case ReferenceRefused():
                self.finished = True
                return [FinishTask(event.problem)]
            case StageEnded():
                attempt = self.under_way[event.number]
                return self._advance(attempt, stage_after(attempt.stage))
            case CheckFailed():
                attempt = self.under_way[event.number]
                return self._advance(attempt, AMENDING_STAGE[event.writing])
            case AttemptEnded():
                self._end(event)
                return self._grow() + self._release()
            case BestConfirmed():
                self.confirmed[event.number] = event
                self.confirming = None
                self._second_looks += 1
                return self._confirm_or_finish()
            case SourceInjected():
                return self._inject(event)
            case NodeSteered() | BudgetChanged():
                return self._steer(event)

    # --- restoring ---------------------------------------------------------------------------

    def restore(
        self,
        eager_us: float,
        nodes: list[tuple[int, int, float, str]],
        attempts: list[Attempt],
        confirmed: Iterable[BestConfirmed] = (),
        second_looks: int = 0,
        offered: dict[int, OfferWork] | None = None,
        given_up: dict[int, GiveUpScope] | None = None,
        steering: Sequence[SteeringEvent] = (),
    ) -> list[Instruction]:
        """Restore a stored search; return the offers of attempts under way, and new ones.

        Args:
            eager_us: the root's score.
            nodes: (number, parent, score, kernel) of every node but the root, in the order in
                which they were recorded.
            attempts: the attempts that have no node yet, by number.
            confirmed: the confirmations of recorded nodes.
            second_looks: the number of confirmations since the last attempt ended.
            offered: the stored offers of those attempts, by number; they are made again.
            given_up: what the agents of recorded nodes gave up on, by number.
            steering: what a person asked of this search so far, in order.
        """
        self._add_root(eager_us)
        self.confirmed = {one.number: one for one in confirmed}
        for number, parent, score, kernel in nodes:
            self._tree.begin(parent)
            self._add(number, parent, score, kernel)
        for attempt in attempts:
            self._tree.begin(attempt.parent)
            self.under_way[attempt.number] = attempt
        self.begun = len(nodes) + len(attempts)
        self._second_looks = second_looks
        for number, scope in (given_up or {}).items():
            self._give_up(number, scope)
        self._restore_steering(steering)
        return self._offers_again(attempts, offered or {}) + self._grow() + self._release()

    def _offers_again(
        self, attempts: list[Attempt], stored: Mapping[int, OfferWork]
    ) -> list[Instruction]:
        offers: list[Instruction] = []
        for attempt in attempts:
            offer = stored.get(attempt.number)
            offers += [offer] if offer else self._offer_or_wait(attempt)
        return offers

    # --- the loop of the method --------------------------------------------------------------

    def _grow(self) -> list[Instruction]:
        """Begin attempts until the budget, the number under way or the tree forbids another one.

        Where no attempt is under way and no node can grow, the task is over before its budget.
        """
        instructions: list[Instruction] = []
        is_stuck = self.given_up
        while (
            not is_stuck
            and self.begun < self.budget
            and len(self.under_way) < self.settings.in_flight
        ):
            number = self.begun + 1
            parent = self._boosts.node_to_grow(self._tree)
            if parent is None:
                parent = self._strategy.select(self._tree, self._rng(number, "select"))
            if parent is None or self._tree[parent].closed:
                is_stuck = True
                break
            node = self._tree[parent]
            attempt = Attempt(
                number=number,
                parent=parent,
                repair=node.has_bug,
                stage=self._strategy.first_stage(node),
            )
            self._begin(attempt)
            self._boosts.attempt_begun(number, parent)
            instructions += [SaveAttempt(attempt), self._offer(attempt)]
        if not self.under_way and (is_stuck or self.begun >= self.budget):
            instructions += self._confirm_or_finish()
        return instructions

    def _begin(self, attempt: Attempt) -> None:
        self._tree.begin(attempt.parent)
        self.begun = attempt.number
        self.under_way[attempt.number] = attempt

    def _confirm_or_finish(self) -> list[Instruction]:
        """Confirm the best node until the best of all is a confirmed one; then finish."""
        number = next_to_confirm(
            self._tree, self._board, self.confirmed.values(), self._second_looks
        )
        if number is None:
            self.finished = True
            return [FinishTask()]
        parent = self._tree[number].parent or ROOT
        self.confirming = number
        again = Attempt(number=number, parent=parent, repair=False, stage=Stage.CONFIRM)
        return [OfferWork(Stage.CONFIRM, again)]

    def _advance(self, attempt: Attempt, following: Stage) -> list[Instruction]:
        attempt = attempt.at(following)
        self.under_way[attempt.number] = attempt
        return [SaveAttempt(attempt), *self._offer_or_wait(attempt), *self._release()]

    def _offer_or_wait(self, attempt: Attempt) -> list[Instruction]:
        strategy = self._strategy
        if isinstance(strategy, WaitsForNodes) and strategy.must_wait(attempt, self._tree):
            self._waiting[attempt.number] = attempt
            return []
        return [self._offer(attempt)]

    def _release(self) -> list[Instruction]:
        """Offer the waiting attempts whose nodes are there; all when no other is under way."""
        waiting, self._waiting = self._waiting, {}
        offers = [offer for one in waiting.values() for offer in self._offer_or_wait(one)]
        if not offers and len(self._waiting) == len(self.under_way):
            offers = [self._offer(one) for one in self._waiting.values()]
            self._waiting = {}
        return offers

    def _end(self, event: AttemptEnded) -> None:
        attempt = self.under_way.pop(event.number)
        self._second_looks = 0
        self._add(event.number, attempt.parent, event.score, event.kernel)
        self._give_up(event.number, event.gives_up_on)

    def _give_up(self, number: int, scope: GiveUpScope) -> None:
        """Close the nodes that a node's agent gave up on; its own node has no code to repair."""
        if scope == "attempt":
            return
        self.given_up |= scope == "task"
        self._tree.close(number)
        self._tree.close(self._tree[number].parent or ROOT)

    def _add(self, number: int, parent: int, score: float, kernel: str) -> None:
        self._tree.add(number, parent, score)
        if score != FAILED_SCORE:
            self._board.add(number, kernel)

    def _offer(self, attempt: Attempt) -> OfferWork:
        window: tuple[int, ...] = ()
        # An agent that mends its candidate sees again what it saw: it needs no window of its own.
        if attempt.stage not in (*JUDGED_STAGES, *WRITING_STAGE):
            context = WindowContext(self._tree, self._board, self.settings.window_cap)
            rng = self._rng(attempt.number, attempt.stage)
            window = self._strategy.window(attempt, context, rng)
        seed = self._rng(attempt.number, f"{attempt.stage} seed").getrandbits(32)
        return OfferWork(attempt.stage, attempt, window, seed)

    # --- a person's directives ---------------------------------------------------------------

    def _steer(self, event: NodeSteered | BudgetChanged) -> list[Instruction]:
        """Take in a directive; it may begin attempts, or end the task.

        A rejected winner has to be followed by another one, also after the end of the task.
        """
        if isinstance(event, BudgetChanged):
            self.budget = event.budget
            self.finished &= event.budget <= self.begun
        else:
            self._steer_node(event)
            self.finished &= event.verb != "reject"
        if self.tree is None or self.finished or self.confirming is not None:
            return []
        return self._grow()

    def _steer_node(self, event: NodeSteered) -> None:
        if event.verb == "boost":
            self._boosts.add(event)
        else:
            steer_node(self._tree, event)

    def _inject(self, event: SourceInjected) -> list[Instruction]:
        """Begin an attempt whose candidate is there already; it counts as any other."""
        attempt = Attempt(
            number=event.number,
            parent=event.parent,
            repair=False,
            stage=Stage.EVALUATE,
            injected=True,
        )
        self.finished = False
        self._begin(attempt)
        return [SaveAttempt(attempt), self._offer(attempt)]

    def _restore_steering(self, events: Sequence[SteeringEvent]) -> None:
        for event in events:
            if isinstance(event, NodeSteered):
                self._steer_node(event)
        injected = {event.number for event in events if isinstance(event, SourceInjected)}
        parents = {number: self._tree[number].parent or ROOT for number in self._tree.recorded}
        parents |= {number: attempt.parent for number, attempt in self.under_way.items()}
        self._boosts.restore(
            (number, parent) for number, parent in parents.items() if number not in injected
        )

    # --- tree and draws ----------------------------------------------------------------------

    def _add_root(self, eager_us: float) -> None:
        self.tree = Tree(
            root_score=eager_us,
            root_children=self.settings.root_children,
            failed_children=self.settings.failed_children,
        )
        self.leaderboard = Leaderboard(self.tree, self.settings.leaders)
        self.leaderboard.add(ROOT, ROOT_KERNEL)

    def _rng(self, number: int, purpose: str) -> Random:
        return Random(f"{self._seed}/{self.task}/{number}/{purpose}")

    @property
    def _tree(self) -> Tree:
        if self.tree is None:
            raise RuntimeError(f"{self.task}: the reference was not measured yet")
        return self.tree

    @property
    def _board(self) -> Leaderboard:
        if self.leaderboard is None:
            raise RuntimeError(f"{self.task}: the reference was not measured yet")
        return self.leaderboard
