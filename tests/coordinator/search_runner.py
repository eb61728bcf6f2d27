"""A whole run of the real search without model, compiler and clock: outcomes are scripted."""

from __future__ import annotations

import math
from random import Random

from actors.coordinator.replay.rebuild import PlacedEvent
from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.confirmation import BestConfirmed
from actors.coordinator.search.policy import make_policy
from actors.coordinator.search.search import Instruction, OfferWork, SaveAttempt, Search
from actors.coordinator.search.search_events import AttemptEnded, ReferenceReady, StageEnded
from actors.coordinator.search.steering_events import BudgetChanged, SteeringEvent
from actors.coordinator.search.strategy import make_strategy
from actors.coordinator.storage.decisions import Decision
from protocol.settings import SearchSettings
from protocol.values import GiveUpScope

EAGER_US = 100.0


def make_search(
    *,
    budget: int = 12,
    in_flight: int = 1,
    seed: int = 0,
    strategy: str = "stark",
    policy: str = "epsilon-greedy",
) -> Search:
    settings = SearchSettings(budget=budget, in_flight=in_flight)
    chosen = make_strategy(strategy, make_policy(policy, settings), settings)
    return Search(task="t", seed=seed, strategy=chosen, settings=settings)


def outcome(number: int) -> tuple[float, str]:
    """Return the fixed score and kernel of attempt `number`."""
    rng = Random(f"outcome {number}")
    return (math.inf if rng.random() < 0.4 else round(rng.uniform(20, 150), 1)), f"k{number}"


def confirm(number: int, score: float) -> BestConfirmed:
    """Return a confirmation whose score is a tenth worse than the first."""
    return BestConfirmed(number, score * 1.1, faster=score * 1.1 < EAGER_US)


class InMemoryRun:
    """Carries out a search's instructions in memory, and records what a store would record."""

    def __init__(
        self, search: Search, *, strategy: str = "stark", policy: str = "epsilon-greedy"
    ) -> None:
        self.search = search
        self.outcome = outcome
        self.refusals: dict[int, GiveUpScope] = {}  # attempt without candidate -> given up on
        self.names = {"strategy": strategy, "policy": policy}  # for the search after a crash
        self.saved: dict[int, Attempt] = {}
        self.nodes: list[tuple[int, int, float, str]] = []
        self.offers: dict[int, OfferWork] = {}
        self.confirmed: dict[int, BestConfirmed] = {}
        self.confirm = confirm
        self.shown: dict[tuple[int, Stage], tuple[int, ...]] = {}
        self.decisions: dict[tuple[int, Stage], Decision] = {}
        self.directives: list[PlacedEvent] = []

    def perform(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SaveAttempt(attempt):
                    self.saved[attempt.number] = attempt
                case OfferWork(stage, attempt, window):
                    self.offers[attempt.number] = instruction
                    self.shown[attempt.number, stage] = window
                    self.record(instruction)

    def record(self, offer: OfferWork) -> None:
        """Record a decision once."""
        number, stage = offer.attempt.number, offer.stage
        if stage is not Stage.MEASURE and (number, stage) not in self.decisions:
            self.decisions[number, stage] = Decision(
                order=len(self.decisions) + 1,
                number=number,
                stage=stage,
                parent=offer.attempt.parent,
                window=offer.window,
                seed=offer.seed,
                recorded=self.search.recorded,
            )

    def step(self, number: int) -> None:
        """End the offered stage of one attempt with its fixed outcome."""
        offer = self.offers.pop(number)
        if offer.stage is Stage.MEASURE:
            self.perform(self.search.handle(ReferenceReady(EAGER_US)))
        elif offer.stage is Stage.CONFIRM:
            second = self.confirm(number, self.search.score(number))
            self.confirmed[number] = second
            self.perform(self.search.handle(second))
        elif number in self.refusals:
            self.nodes.append((number, offer.attempt.parent, math.inf, ""))
            del self.saved[number]
            ended = AttemptEnded(number, math.inf, "", self.refusals[number])
            self.perform(self.search.handle(ended))
        elif offer.stage is Stage.EVALUATE:
            score, kernel = self.outcome(number)
            self.nodes.append((number, offer.attempt.parent, score, kernel))
            del self.saved[number]
            self.perform(self.search.handle(AttemptEnded(number, score, kernel)))
        else:
            self.perform(self.search.handle(StageEnded(number)))

    def steer(self, event: SteeringEvent) -> None:
        """Hand a person's wish to the search, as the coordinator does, and record its place."""
        if self.search.finished:
            self.restore()  # a search that is over goes on from the store
        if not isinstance(event, BudgetChanged):
            self.directives.append(
                PlacedEvent(
                    event=event,
                    decided=len(self.decisions),
                    recorded=self.search.recorded,
                    confirmed=len(self.search.confirmed),
                )
            )
        self.perform(self.search.handle(event))

    def crash(self, more: int = 0) -> None:
        """Drop the search, and restore it from the records with `more` budget."""
        self.perform(self.restore(more))

    def restore(self, more: int = 0) -> list[Instruction]:
        """Replace the search by one that is restored from the records."""
        before = self.search
        self.search = make_search(
            budget=before.budget + more,
            in_flight=before.settings.in_flight,
            seed=before._seed,
            **self.names,
        )
        self.offers.clear()
        attempts = [self.saved[number] for number in sorted(self.saved)]
        stored = [
            (n, p, self.confirmed[n].score if n in self.confirmed else s, k)
            for n, p, s, k in self.nodes
        ]
        second_looks = sum(
            decision.stage is Stage.CONFIRM
            and decision.recorded == len(self.nodes)
            and decision.number in self.confirmed
            for decision in self.decisions.values()
        )
        offered = {}
        for attempt in attempts:
            made = self.decisions[attempt.number, attempt.stage]
            offered[attempt.number] = OfferWork(attempt.stage, attempt, made.window, made.seed)
        given_up = {n: self.refusals[n] for n, *_ in self.nodes if n in self.refusals}
        confirmed = self.confirmed.values()
        return self.search.restore(
            EAGER_US,
            stored,
            attempts,
            confirmed,
            second_looks,
            offered,
            given_up,
            [one.event for one in self.directives],
        )
