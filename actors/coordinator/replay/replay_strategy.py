"""The replay strategy: a replay grows the nodes that the stored run grew.

`--model replay:RUN` has replies only to RUN's requests, and RUN selected its nodes by the times
that it measured.  Times differ a little from run to run, so that of two similar candidates the
other one may become the best.  Therefore a replay takes over the selections, and measures again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from random import Random

from actors.coordinator.search.attempt_stages import OPENING_STAGES, Attempt, Stage
from actors.coordinator.search.policy import make_policy
from actors.coordinator.search.search import Search
from actors.coordinator.search.strategy import Strategy, WindowContext, make_strategy
from actors.coordinator.search.tree import Node, Tree
from actors.coordinator.storage.decisions import Decision, DecisionStore
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from protocol.settings import Settings
from protocol.values import AGENT_ROLES

REPLAY_PREFIX = "replay:"


class ReplayStrategy:
    """A stored run's selections where they are possible; otherwise another strategy's own.

    A selection is possible when its node is recorded and has the same first stage as then: a node
    that was correct then and fails now is not improved.  While the node, or one of its window, is
    under way, the strategy waits: with several expansions under way the order of ends differs.
    """

    def __init__(self, strategy: Strategy, decisions: Iterable[Decision]) -> None:
        self._strategy = strategy
        self._recorded_decisions = {(d.number, d.stage): d for d in decisions}

    def select(self, tree: Tree, rng: Random) -> int | None:
        number = len(tree.begun) + 1
        for stage in OPENING_STAGES:
            recorded = self._recorded_decisions.get((number, stage))
            if recorded is None:
                continue
            node = tree.nodes.get(recorded.parent)
            needed = (recorded.parent, *recorded.window)
            if any(one not in tree.nodes and one < number for one in needed):
                return None
            if node is not None and self.first_stage(node) is stage:
                return recorded.parent
        return self._strategy.select(tree, rng)

    def first_stage(self, node: Node) -> Stage:
        return self._strategy.first_stage(node)

    def must_wait(self, attempt: Attempt, tree: Tree) -> bool:
        window = self._recorded_window(attempt)
        return window is not None and any(n not in tree.nodes for n in window)

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        window = self._recorded_window(attempt)
        if window is not None and all(n in context.tree.nodes for n in window):
            return window
        return self._strategy.window(attempt, context, rng)

    def _recorded_window(self, attempt: Attempt) -> tuple[int, ...] | None:
        """Return the recorded window of an attempt that grows the recorded node; else None."""
        recorded = self._recorded_decisions.get((attempt.number, attempt.stage))
        if recorded is None or recorded.parent != attempt.parent:
            return None
        return recorded.window


def search_of_task(task: str, settings: Settings) -> Search:
    """Return the empty search of a task with the policy and strategy of its run's settings."""
    numbers = settings.search
    policy = make_policy(settings.policy, numbers)
    strategy = make_strategy(settings.strategy, policy, numbers)
    decisions = _stored_decisions(task, settings)
    return Search(
        task=task,
        seed=settings.seed,
        strategy=ReplayStrategy(strategy, decisions) if decisions else strategy,
        settings=numbers,
    )


def _stored_decisions(task: str, settings: Settings) -> list[Decision]:
    """Return the decisions of the run that all agents replay; [] when they replay none."""
    models = {settings.model_of(role) for role in AGENT_ROLES}
    name = models.pop()
    if models or not name.startswith(REPLAY_PREFIX):
        return []
    try:
        database = ReadOnlyDatabase(Path(name.removeprefix(REPLAY_PREFIX)))
    except (ValueError, sqlite3.DatabaseError):
        return []  # of an older version, or missing: the strategy selects for itself
    try:
        return DecisionStore(database).decisions_of(task)
    finally:
        database.close()
