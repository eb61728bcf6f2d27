"""Which directive about a node a search can't carry out, and why.  Pure."""

from __future__ import annotations

from collections.abc import Callable

from actors.coordinator.search.search import Search
from actors.coordinator.search.steering_events import NodeVerb
from actors.coordinator.search.tree import ROOT, Node, Tree


def refusal_of(verb: NodeVerb, search: Search, node: Node) -> str:
    """Return why a node can't be steered so, in one line; "" where it can."""
    if search.tree is None:
        return "its reference is not measured yet"
    return _RULES[verb](search, search.tree, node)


def _pin(search: Search, tree: Tree, node: Node) -> str:
    if node.number in tree.pinned:
        return f"node {node.number} is pinned already"
    return _why_no_parent(node)


def _unpin(search: Search, tree: Tree, node: Node) -> str:
    return "" if node.number in tree.pinned else f"node {node.number} is not pinned"


def _boost(search: Search, tree: Tree, node: Node) -> str:
    if search.given_up:
        return "the agents gave up on the task: no further attempt is begun"
    if search.begun >= search.budget:
        return f"the budget of {search.budget} attempts is used up: raise it first"
    return _why_no_parent(node)


def _why_no_parent(node: Node) -> str:
    if node.rejected:
        return f"node {node.number} is rejected: it can't be a parent"
    if node.is_pruned:
        return f"node {node.number} is pruned: unprune it first"
    if node.closed:
        return f"an agent gave up on node {node.number}: it is not grown again"
    return ""


def _prune(search: Search, tree: Tree, node: Node) -> str:
    if node.number == ROOT:
        return "node 0 is the root, and all nodes are below it: pause or finish the run instead"
    return f"node {node.number} is pruned already" if node.number in tree.pruned else ""


def _unprune(search: Search, tree: Tree, node: Node) -> str:
    if node.number in tree.pruned:
        return ""
    above = [top for top in sorted(tree.pruned) if tree.is_within(node.number, top)]
    if above:
        return f"node {node.number} is pruned with node {above[0]}: unprune that one"
    return f"node {node.number} is not pruned"


def _reject(search: Search, tree: Tree, node: Node) -> str:
    if node.number == ROOT:
        return "node 0 is the task's own module: it can't be rejected"
    return f"node {node.number} is rejected already" if node.rejected else ""


_RULES: dict[NodeVerb, Callable[[Search, Tree, Node], str]] = {
    "pin": _pin,
    "unpin": _unpin,
    "boost": _boost,
    "prune": _prune,
    "unprune": _unprune,
    "reject": _reject,
}
