"""Policies: which node to grow next.  Open this file to change what is tried.

A policy is a small class with one method, pure in the tree and the generator that it is given; the
search calls it once for each attempt.  To add one, write the class and name it in `POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from actors.coordinator.tree import Tree
from protocol.settings import SearchSettings


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


POLICIES: dict[str, Callable[[SearchSettings], Policy]] = {
    "epsilon-greedy": lambda settings: EpsilonGreedy(epsilon=settings.epsilon),
}


def policy_named(name: str, settings: SearchSettings) -> Policy:
    """Return the policy of that name; raise ValueError that lists the names there are."""
    make = POLICIES.get(name)
    if make is None:
        raise ValueError(f"unknown policy {name!r}: there are {', '.join(sorted(POLICIES))}")
    return make(settings)
