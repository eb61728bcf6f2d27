"""The tree of attempts: shape, scores and eligibility; no text, no socket, no clock.

The search and its policies read it.  The root is the PyTorch reference; every other node is one
attempt.  Sources and logs stay in the store, so that a million nodes fit in memory, and a selection
costs the same at ten nodes and at a million.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from sortedcontainers import SortedList

ROOT = 0
STAGNANT_ATTEMPTS = 3  # judged without a new best: then candidates are profiled
FAILED_SCORE = math.inf  # the score of a node that is not correct


@dataclass(slots=True)
class Node:
    """One attempt.  `score` is its runtime in microseconds, lower is better."""

    number: int
    parent: int | None
    score: float
    child_index: int = 0  # index among its parent's children
    depth: int = 0
    # An ancestor further up, chosen so that any ancestor is O(log depth) steps away.
    jump_ancestor: int = ROOT
    children: list[int] = field(default_factory=list)  # evaluated ones, in the order they ended
    grandchildren: list[int] = field(default_factory=list)
    pending: int = 0  # children under way
    failed: int = 0  # evaluated children that failed
    closed: bool = False  # an agent gave up on it, or a person rejected it
    rejected: bool = False  # a person rejected it: it is not a leader either
    prunes: int = 0  # how many nodes that a person pruned have it in their subtrees

    @property
    def is_pruned(self) -> bool:
        """Whether a person pruned it or a node above it."""
        return self.prunes > 0

    @property
    def has_bug(self) -> bool:
        return math.isinf(self.score)

    @property
    def correct_children(self) -> int:
        """Evaluated children that are correct."""
        return len(self.children) - self.failed

    @property
    def degree(self) -> int:
        """Children, those under way included."""
        return len(self.children) + self.pending


class Tree:
    """Nodes by number, with fast access to the best eligible node and to the leaves."""

    def __init__(self, *, root_score: float, root_children: int, failed_children: int) -> None:
        self.root_children = root_children
        self.failed_children = failed_children
        self.nodes: dict[int, Node] = {}
        # The events in order: a policy with figures of its own reads on from its last index.
        self.begun: list[int] = []  # the parent of each child that was begun
        self.recorded: list[int] = []  # evaluated nodes but the root, as they ended
        self.correct: list[int] = []  # the correct ones among them, the root first
        self.pinned: dict[int, None] = {}  # by a person, in their order
        self.pruned: set[int] = set()  # the tops of pruned subtrees
        self.steered = 0  # what a person changed so far: a cache of another number is stale
        # Sorted, so that a draw depends on the set of leaves and not on the order of events.
        self._leaves: SortedList[int] = SortedList()
        # (score, number) of correct nodes; an ineligible one is dropped when it comes up and
        # pushed again if a late child makes it eligible.
        self._heap: list[tuple[float, int]] = []
        self._insert(Node(number=ROOT, parent=None, score=root_score))

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    @property
    def is_stagnant(self) -> bool:
        """Whether none of the last `STAGNANT_ATTEMPTS` nodes is better than all before them."""
        scores = [self.nodes[number].score for number in (ROOT, *self.recorded)]
        earlier, last = scores[:-STAGNANT_ATTEMPTS], scores[-STAGNANT_ATTEMPTS:]
        return bool(earlier) and min(last) >= min(earlier)

    # --- growing -----------------------------------------------------------------------------

    def begin(self, parent: int) -> None:
        """Record that a child of `parent` is under way."""
        node = self.nodes[parent]
        if node.degree == 0:
            self._leaves.discard(parent)  # a closed node is not in it any more
        node.pending += 1
        self.begun.append(parent)

    def add(self, number: int, parent: int, score: float) -> Node:
        """Add the evaluated child that `begin` announced; FAILED_SCORE when it is not correct."""
        above = self.nodes[parent]
        above.pending -= 1
        was_eligible = self.is_eligible(above)
        node = Node(
            number=number,
            parent=parent,
            score=score,
            child_index=len(above.children),
            depth=above.depth + 1,
            jump_ancestor=self._jump_below(above),
            prunes=above.prunes,
        )
        above.children.append(number)
        above.failed += node.has_bug
        if above.parent is not None:
            self.nodes[above.parent].grandchildren.append(number)
        if not was_eligible and not above.has_bug and self.is_eligible(above):
            heapq.heappush(self._heap, (above.score, above.number))
        self._insert(node)
        self.recorded.append(number)
        return node

    def close(self, number: int) -> None:
        """Let a node have no further child."""
        self.nodes[number].closed = True
        self._leaves.discard(number)

    # --- what a person asks for --------------------------------------------------------------

    def pin(self, number: int) -> None:
        """Prefer a node as the parent, and keep it in the plan window."""
        self.pinned[number] = None
        self.steered += 1

    def unpin(self, number: int) -> None:
        """Take a pin back."""
        self.pinned.pop(number, None)
        self.steered += 1

    def prune(self, number: int) -> None:
        """Let no node of a subtree be a parent, and show none of them in a window."""
        self.pruned.add(number)
        self.steered += 1
        for node in self.subtree(number):
            node.prunes += 1
            self._leaves.discard(node.number)

    def unprune(self, number: int) -> None:
        """Take a prune back."""
        self.pruned.discard(number)
        self.steered += 1
        for node in self.subtree(number):
            node.prunes -= 1
            if node.is_pruned:
                continue
            if node.degree == 0 and not node.closed:
                self._leaves.add(node.number)
            if not node.has_bug:
                heapq.heappush(self._heap, (node.score, node.number))

    def reject(self, number: int) -> None:
        """Let a node be neither a parent nor a leader."""
        self.nodes[number].rejected = True
        self.steered += 1
        self.close(number)

    def subtree(self, top: int) -> Iterator[Node]:
        """Yield a node and all below it, in no particular order."""
        waiting = [top]
        while waiting:
            node = self.nodes[waiting.pop()]
            waiting += node.children
            yield node

    # --- shape -------------------------------------------------------------------------------

    def is_within(self, number: int, top: int) -> bool:
        """Whether a node is in the subtree of `top` (itself included), in O(log depth) steps."""
        node, height = self.nodes[number], self.nodes[top].depth
        while node.depth > height:
            far = self.nodes[node.jump_ancestor]
            node = far if far.depth >= height else self.nodes[node.parent or ROOT]
        return node.number == top

    def _jump_below(self, above: Node) -> int:
        """Return the jump ancestor of a new child: skew-binary jump pointers (Myers 1983)."""
        middle = self.nodes[above.jump_ancestor]
        far = self.nodes[middle.jump_ancestor]
        joined = above.depth - middle.depth == middle.depth - far.depth
        return far.number if joined else above.number

    # --- choosing ----------------------------------------------------------------------------

    def is_eligible(self, node: Node) -> bool:
        """Whether the policy may grow this node now."""
        if not self.is_growable(node):
            return False
        if node.number == ROOT and node.degree >= self.root_children:
            return False
        return not (node.failed > self.failed_children and node.correct_children == 0)

    def is_growable(self, node: Node) -> bool:
        """Whether a person may have this node grown now; the caps of children do not hold then."""
        is_in_repair = node.has_bug and node.pending > 0
        return not (node.closed or node.is_pruned or is_in_repair)

    def best_pinned(self) -> int | None:
        """Return the best eligible node that a person pinned, correct ones first.

        A failed one is preferred until one of its children is correct.
        """
        pinned = [self.nodes[number] for number in self.pinned]
        wanted = [
            (node.score, node.number)
            for node in pinned
            if self.is_eligible(node) and not (node.has_bug and node.correct_children)
        ]
        return min(wanted)[1] if wanted else None

    def best_eligible(self) -> int | None:
        """Return the correct, eligible node with the best score (the oldest among equals).

        An eligible node that a person pinned goes first.
        """
        if self.pinned and (pinned := self.best_pinned()) is not None:
            return pinned
        while self._heap:
            number = self._heap[0][1]
            if self.is_eligible(self.nodes[number]):
                return number
            heapq.heappop(self._heap)
        return None

    def random_leaf(self, rng: Random) -> int | None:
        """Return an expandable leaf, failing ones included, each equally likely."""
        if not self._leaves:
            return None
        leaf: int = self._leaves[rng.randrange(len(self._leaves))]
        return leaf

    def leaves(self) -> frozenset[int]:
        """Return the open nodes that have no child, neither evaluated nor under way."""
        return frozenset(self._leaves)

    def _insert(self, node: Node) -> None:
        self.nodes[node.number] = node
        if not node.has_bug:
            heapq.heappush(self._heap, (node.score, node.number))
            self.correct.append(node.number)
        if not node.is_pruned:
            self._leaves.add(node.number)
