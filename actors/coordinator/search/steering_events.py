"""What a person asks of one task's search: the events, and the attempts that a person boosted.

Pure.  Pins, prunes and rejections are properties of nodes (`tree.py`); `search.py` handles the
events.  All of them commute with the nodes that are recorded meanwhile, so that a restarted
coordinator, which restores the nodes first and then applies the events, has the same search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from actors.coordinator.search.tree import Tree

NodeVerb = Literal["pin", "unpin", "boost", "prune", "unprune", "reject"]


@dataclass(frozen=True)
class NodeSteered:
    """A directive about one node."""

    verb: NodeVerb
    number: int
    count: int = 1  # boost: of how many attempts the node is the parent
    begun: int = 0  # boost: the attempts that had begun by then


@dataclass(frozen=True)
class SourceInjected:
    """A person's source becomes this attempt, a child of `parent`."""

    number: int
    parent: int


@dataclass(frozen=True)
class BudgetChanged:
    """A person changed the number of attempts."""

    budget: int


SteeringEvent = NodeSteered | SourceInjected | BudgetChanged


def steer_node(tree: Tree, event: NodeSteered) -> None:
    """Change what the tree allows for a node; boosts are not a property of the tree."""
    match event.verb:
        case "pin":
            tree.pin(event.number)
        case "unpin":
            tree.unpin(event.number)
        case "prune":
            tree.prune(event.number)
        case "unprune":
            tree.unprune(event.number)
        case "reject":
            tree.reject(event.number)


@dataclass(slots=True)
class Boost:
    """The next `left` attempts grow from a node."""

    number: int
    left: int
    begun: int


class Boosts:
    """The boosted nodes, in the order in which a person named them.

    A boost holds over the policy, over the root's cap of children and over the rule for nodes whose
    children all failed.  While its node can't be grown (it is pruned, or its repair is under way)
    the boost waits, and the next one has its turn.
    """

    def __init__(self) -> None:
        self._boosts: list[Boost] = []

    def add(self, event: NodeSteered) -> None:
        """Take in a boost."""
        self._boosts.append(Boost(event.number, event.count, event.begun))

    def node_to_grow(self, tree: Tree) -> int | None:
        """Return the first boosted node that can be grown now; None when the policy decides."""
        for boost in self._boosts:
            if boost.left and tree.is_growable(tree[boost.number]):
                return boost.number
        return None

    def attempt_begun(self, number: int, parent: int) -> None:
        """Count an attempt that the search began on a node."""
        for boost in self._boosts:
            if boost.number == parent and boost.left and number > boost.begun:
                boost.left -= 1
                return

    def restore(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Count the attempts of a stored run, as (number, parent), without the injected ones."""
        for number, parent in sorted(attempts):
            self.attempt_begun(number, parent)
