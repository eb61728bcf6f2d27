"""Policies: which node to grow next.  Open this file to change what is tried.

A policy is a small class with one method, a function of the tree and the generator that it is
given; the search calls it once for each attempt.  It may keep figures of its own, as `mcts.py`
does, if they follow from the tree alone.  To add one: `docs/add-a-policy.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from actors.coordinator.search.mcts import Mcts
from actors.coordinator.search.tree import Tree
from protocol.settings import PolicyName, SearchSettings


class Policy(Protocol):
    """Chooses the node that the next attempt grows."""

    def select(self, tree: Tree, rng: Random) -> int | None:
        """Return a node's number, or None when nothing can be grown until an attempt ends."""
        ...


@dataclass(frozen=True)
class EpsilonGreedy:
    """STARK's adapted epsilon-greedy rule (arXiv 2510.16996, section 4.2).

    With probability 1 - epsilon the eligible node with the best score; with probability epsilon
    one of the leaves, failing ones included, each equally likely.  The tree says what is eligible:
    the root below its cap of children, a node whose more than n_child children all failed never,
    a node that is being debugged not now.  Where no correct node is eligible the scores of all the
    others are equal (infinite), and a leaf is drawn as well.
    """

    epsilon: float

    def select(self, tree: Tree, rng: Random) -> int | None:
        if rng.random() < self.epsilon:
            leaf = tree.random_leaf(rng)
            return tree.best_eligible() if leaf is None else leaf
        best = tree.best_eligible()
        return tree.random_leaf(rng) if best is None else best


@dataclass(frozen=True)
class Greedy:
    """The greedy rule that STARK was compared with (arXiv 2510.16996, section 4.2).

    Always the eligible node with the best score, the oldest among equals.  A failed node is grown
    only while no correct one is eligible: all scores are infinite then, and a leaf is drawn.  It is
    `EpsilonGreedy` with an epsilon of 0.
    """

    def select(self, tree: Tree, rng: Random) -> int | None:
        best = tree.best_eligible()
        return tree.random_leaf(rng) if best is None else best


@dataclass(frozen=True)
class Evolutionary:
    """Regularised evolution (Real et al. 2019, arXiv 1802.01548, algorithm 1).

    Alive are the youngest `population` correct nodes, the root being the first of all: whoever is
    born pushes the oldest out, however fast it is.  A tournament grows the fastest of `tournament`
    living nodes that are drawn, without putting back, from those that are eligible; of equals the
    oldest wins.  Failed candidates are stillborn.  Where nobody alive is eligible (at first, while
    the root has all its children and none of them works) a leaf is drawn, each equally likely, so
    that failures are repaired rather than waited for.
    """

    population: int
    tournament: int

    def select(self, tree: Tree, rng: Random) -> int | None:
        alive = [n for n in tree.correct[-self.population :] if tree.is_eligible(tree[n])]
        if not alive:
            return tree.random_leaf(rng)
        drawn = rng.sample(alive, min(self.tournament, len(alive)))
        return min(drawn, key=lambda number: (tree[number].score, number))


POLICIES: dict[PolicyName, Callable[[SearchSettings], Policy]] = {
    "epsilon-greedy": lambda settings: EpsilonGreedy(epsilon=settings.epsilon),
    "greedy": lambda settings: Greedy(),
    "mcts": lambda settings: Mcts(c=settings.mcts_c, width=settings.mcts_width),
    "evolutionary": lambda settings: Evolutionary(
        population=settings.population, tournament=settings.tournament
    ),
}


def make_policy(name: PolicyName, settings: SearchSettings) -> Policy:
    """Return the policy of that name; raise ValueError that lists the names there are."""
    make = POLICIES.get(name)
    if make is None:
        raise ValueError(f"unknown policy {name!r}: there are {', '.join(sorted(POLICIES))}")
    return make(settings)
