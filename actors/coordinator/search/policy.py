"""Policies: which node to grow next.

A policy is a small class with one method, a function of the tree and of the given random generator;
the search calls it once for each attempt.  It may keep figures of its own, as `mcts.py` does, if
they follow from the tree alone.  To add one: `docs/add-a-policy.md`.
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

    With probability 1 - epsilon it is the eligible node with the best score; with probability
    epsilon it is one of the leaves, failing ones included, each equally likely.  The tree decides
    eligibility: the root is eligible below its cap of children, a node whose more than n_child
    children all failed is not, and a node under repair is not at present.  Where no correct node is
    eligible, the scores of all others are equal (infinite), and a leaf is drawn, too.  A node that
    a person pinned counts as the best one while it is eligible; exploration does not change.
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

    It is always the eligible node with the best score, the oldest among equals.  A failed node is
    grown only while no correct one is eligible: then all scores are infinite, and a leaf is drawn.
    The rule is `EpsilonGreedy` with an epsilon of 0.
    """

    def select(self, tree: Tree, rng: Random) -> int | None:
        best = tree.best_eligible()
        return tree.random_leaf(rng) if best is None else best


@dataclass(frozen=True)
class Evolutionary:
    """Regularised evolution (Real et al. 2019, arXiv 1802.01548, algorithm 1).

    The population is the youngest `population` correct nodes; the root is the first of all.  A new
    correct node pushes the oldest one out, however fast that one is; failed candidates do not enter
    the population.  A tournament grows the fastest of `tournament` nodes, drawn without replacement
    from the eligible ones of the population; of equals the oldest wins.  Where none is eligible (at
    first, while the root has all its children and none of them works) a leaf is drawn, each equally
    likely, so that failures are repaired and the search does not wait.  An eligible node that a
    person pinned wins without a tournament.
    """

    population: int
    tournament: int

    def select(self, tree: Tree, rng: Random) -> int | None:
        if tree.pinned and (pinned := tree.best_pinned()) is not None:
            return pinned
        eligible = [n for n in tree.correct[-self.population :] if tree.is_eligible(tree[n])]
        if not eligible:
            return tree.random_leaf(rng)
        drawn = rng.sample(eligible, min(self.tournament, len(eligible)))
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
    """Return the policy of that name; raise ValueError with the known names for any other."""
    make = POLICIES.get(name)
    if make is None:
        raise ValueError(f"unknown policy {name!r}: there are {', '.join(sorted(POLICIES))}")
    return make(settings)
