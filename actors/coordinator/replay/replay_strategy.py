"""Following: a replay grows the nodes that the stored run grew.

`--model replay:RUN` has replies only to what RUN asked, and RUN chose its nodes by the times that
it measured.  Every run measures them a little differently, and where two candidates are about as
fast another one would be the best: so a replay takes over the choices, and measures anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from random import Random

from actors.coordinator.search.policy import make_policy
from actors.coordinator.search.search import Search
from actors.coordinator.search.stages import Attempt, Stage
from actors.coordinator.search.strategy import Strategy, WindowContext, make_strategy
from actors.coordinator.search.tree import Node, Tree
from actors.coordinator.storage.decisions import Decision, DecisionStore
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from protocol.settings import Settings
from protocol.values import AGENT_ROLES

REPLAY_PREFIX = "replay:"


class ReplayStrategy:
    """A stored run's choices while they can be made, and after that another strategy's own.

    A choice can be made when its node is there and is of the kind that it was: one that worked
    then and fails now is not improved.  While its node, or one that its agents saw, is under way it
    is waited for: with several expansions at once they end in another order than they did then.
    """

    def __init__(self, strategy: Strategy, decisions: Iterable[Decision]) -> None:
        self._strategy = strategy
        self._recorded_decisions = {(d.number, d.stage): d for d in decisions}

    def select(self, tree: Tree, rng: Random) -> int | None:
        number = len(tree.begun) + 1
        for stage in Stage:
            made = self._recorded_decisions.get((number, stage))
            if made is None or stage in (Stage.WRITE, Stage.EVALUATE, Stage.CONFIRM):
                continue
            node = tree.nodes.get(made.parent)
            seen = (made.parent, *made.window)
            if any(shown not in tree.nodes and shown < number for shown in seen):
                return None
            if node is not None and self.first_stage(node) is stage:
                return made.parent
        return self._strategy.select(tree, rng)

    def first_stage(self, node: Node) -> Stage:
        return self._strategy.first_stage(node)

    def must_wait(self, attempt: Attempt, tree: Tree) -> bool:
        made = self._recorded_decisions.get((attempt.number, attempt.stage))
        follows = made is not None and made.parent == attempt.parent
        return made is not None and follows and any(n not in tree.nodes for n in made.window)

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        made = self._recorded_decisions.get((attempt.number, attempt.stage))
        follows = made is not None and made.parent == attempt.parent
        if made is not None and follows and all(n in context.tree.nodes for n in made.window):
            return made.window
        return self._strategy.window(attempt, context, rng)


def search_of_task(task: str, settings: Settings) -> Search:
    """Return the empty search of a task, as the settings of its run want it."""
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
    """Return what the run that all agents replay decided; nothing where there is no such run."""
    models = {settings.model_of(role) for role in AGENT_ROLES}
    name = models.pop()
    if models or not name.startswith(REPLAY_PREFIX):
        return []
    try:
        database = ReadOnlyDatabase(Path(name.removeprefix(REPLAY_PREFIX)))
    except (ValueError, sqlite3.DatabaseError):
        return []  # of an older version, or gone: the search chooses for itself
    try:
        return DecisionStore(database).decisions_of(task)
    finally:
        database.close()
