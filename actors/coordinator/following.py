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

from actors.coordinator.archive import Archive
from actors.coordinator.decisions import Decision, Decisions
from actors.coordinator.policy import policy_named
from actors.coordinator.search import Search
from actors.coordinator.stages import Attempt, Stage
from actors.coordinator.strategy import Sight, Strategy, strategy_named
from actors.coordinator.tree import Node, Tree
from protocol.settings import Settings
from protocol.values import AGENTS

KIND = "replay:"


class Following:
    """A stored run's choices while they can be made, and after that another strategy's own.

    A choice can be made when its node is there and is of the kind that it was: one that worked
    then and fails now is not improved.  While its node, or one that its agents saw, is under way it
    is waited for: with several expansions at once they end in another order than they did then.
    """

    def __init__(self, strategy: Strategy, decisions: Iterable[Decision]) -> None:
        self._strategy = strategy
        self._made = {(d.number, d.stage): d for d in decisions}

    def select(self, tree: Tree, rng: Random) -> int | None:
        number = len(tree.begun) + 1
        for stage in Stage:
            made = self._made.get((number, stage))
            if made is None or stage in (Stage.WRITE, Stage.EVALUATE, Stage.CONFIRM):
                continue
            node = tree.nodes.get(made.parent)
            seen = (made.parent, *made.window)
            if any(shown not in tree.nodes and shown < number for shown in seen):
                return None
            if node is not None and self.opening(node) is stage:
                return made.parent
        return self._strategy.select(tree, rng)

    def opening(self, node: Node) -> Stage:
        return self._strategy.opening(node)

    def awaits(self, attempt: Attempt, tree: Tree) -> bool:
        made = self._made.get((attempt.number, attempt.stage))
        follows = made is not None and made.parent == attempt.parent
        return made is not None and follows and any(n not in tree.nodes for n in made.window)

    def window(self, attempt: Attempt, sight: Sight, rng: Random) -> tuple[int, ...]:
        made = self._made.get((attempt.number, attempt.stage))
        follows = made is not None and made.parent == attempt.parent
        if made is not None and follows and all(n in sight.tree.nodes for n in made.window):
            return made.window
        return self._strategy.window(attempt, sight, rng)


def search_for(task: str, settings: Settings) -> Search:
    """Return the empty search of a task, as the settings of its run want it."""
    numbers = settings.search
    policy = policy_named(settings.policy, numbers)
    strategy = strategy_named(settings.strategy, policy, numbers)
    decisions = _stored_decisions(task, settings)
    return Search(
        task=task,
        seed=settings.seed,
        strategy=Following(strategy, decisions) if decisions else strategy,
        settings=numbers,
    )


def _stored_decisions(task: str, settings: Settings) -> list[Decision]:
    """Return what the run that all agents replay decided; nothing where there is no such run."""
    models = {settings.model_of(role) for role in AGENTS}
    name = models.pop()
    if models or not name.startswith(KIND):
        return []
    try:
        archive = Archive(Path(name.removeprefix(KIND)))
    except (ValueError, sqlite3.DatabaseError):
        return []  # of an older version, or gone: the search chooses for itself
    try:
        return Decisions(archive).of(task)
    finally:
        archive.close()
