"""Monte-Carlo tree search as a policy: UCT on the tree of attempts.

It keeps visits, rewards and open nodes of every subtree, updated from the tree's own record of
events: a step costs the depth of the tree, at ten nodes and at a million.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from actors.coordinator.search.tree import ROOT, Node, Tree


@dataclass(slots=True)
class SubtreeStatistics:
    """The figures of a node and all nodes below it."""

    visits: int = 1  # nodes in the subtree, those under way included
    reward: float = 0.0  # the sum over its evaluated nodes
    open: int = 0  # nodes in it that may get a child now
    is_open: bool = False  # the node itself


class Mcts:
    """UCT (Kocsis & Szepesvari 2006), with the tree's own rules on what may be grown.

    The walk begins at the root.  A node that is eligible and has fewer than `width` children, those
    under way included, gets the next one; otherwise the walk goes on to the child of the largest

        reward / visits + c * sqrt(ln(visits of the node) / visits of the child),

    the oldest among equals, leaving out children with nothing below that may be grown.  A node's
    reward is its speed normalised by the reference's, x / (1 + x) for x times as fast: 0 for a
    failure, 1/2 for the reference, below 1 always.  A child under way counts as a visit without a
    reward yet (virtual loss, Chaslot et al. 2008), so that expansions under way at once spread.
    The tree has no simulations: the evaluation of an attempt takes their place, as in SWE-Search
    (Antoniades et al. 2024, arXiv 2410.20285), where `width`, the limit of children a node, comes
    from.  Nothing is drawn: the same tree gives the same node.  An eligible
    pinned node is grown without a walk.
    """

    def __init__(self, *, c: float, width: int) -> None:
        self.c = c
        self.width = width
        self._statistics = TreeStatistics(width)

    def select(self, tree: Tree, rng: Random) -> int | None:
        if tree.pinned and (pinned := tree.best_pinned()) is not None:
            return pinned
        known = self._statistics
        if known.tree is not tree or known.steered != tree.steered:
            self._statistics = TreeStatistics(self.width, tree, tree.steered)
        self._statistics.update()
        below = self._statistics.below
        at = ROOT
        while not below[at].is_open:
            open_children = [child for child in tree[at].children if below[child].open]
            if not open_children:
                return None
            at = max(
                open_children,
                key=lambda child: (self.upper_confidence_bound(below[at], below[child]), -child),
            )
        return at

    def upper_confidence_bound(self, node: SubtreeStatistics, child: SubtreeStatistics) -> float:
        """Return the upper confidence bound of a child."""
        return child.reward / child.visits + self.c * math.sqrt(
            math.log(node.visits) / child.visits
        )


@dataclass
class TreeStatistics:
    """The figures of one tree, up to the events read so far."""

    width: int
    tree: Tree | None = None
    steered: int = 0  # the state of `Tree.steered`
    below: dict[int, SubtreeStatistics] = field(default_factory=dict)
    _begun: int = 0
    _recorded: int = 0

    def update(self) -> None:
        """Read the tree's events since the last update."""
        tree = self.tree
        if tree is None:
            return
        touched = tree.begun[self._begun :]
        if not self.below:
            self._enter(tree, ROOT)
            touched.append(ROOT)
        # Nodes first: children begun below them count on the whole path.
        for number in tree.recorded[self._recorded :]:
            self._enter(tree, number)
            touched += (number, tree[number].parent or ROOT)
        for parent in tree.begun[self._begun :]:
            for number in _path(tree, parent):
                self.below[number].visits += 1
        self._begun, self._recorded = len(tree.begun), len(tree.recorded)
        for number in touched:
            self._update_open(tree, number)

    def _enter(self, tree: Tree, number: int) -> None:
        self.below[number] = SubtreeStatistics()
        reward = reward_of(tree[number], tree[ROOT].score)
        if reward:
            for above in _path(tree, number):
                self.below[above].reward += reward

    def _update_open(self, tree: Tree, number: int) -> None:
        node, own = tree[number], self.below[number]
        is_open = tree.is_eligible(node) and node.degree < self.width
        if is_open != own.is_open:
            own.is_open = is_open
            for above in _path(tree, number):
                self.below[above].open += 1 if is_open else -1


def reward_of(node: Node, reference: float) -> float:
    """Return a node's reward, from 0 for a failure towards 1 for infinitely fast."""
    return 0.0 if node.has_bug else reference / (reference + node.score)


def _path(tree: Tree, number: int) -> list[int]:
    """Return a node and all above it."""
    path = []
    at: int | None = number
    while at is not None:
        path.append(at)
        at = tree[at].parent
    return path
