"""Random and fixed trees, built in the fast tree and in the slow model of it."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from reference_tree import ReferenceTree

from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.steering_events import NodeSteered, steer_node
from actors.coordinator.search.tree import FAILED_SCORE, Tree

R = 2
SCORES = st.one_of(st.just(FAILED_SCORE), st.sampled_from([10.0, 20.0, 30.0, 99.0, 150.0]))
STEER = ("pin", "unpin", "prune", "unprune", "reject")  # what a person does: kernels 7 to 11
PLAIN_STEPS = st.lists(st.tuples(st.integers(0, 10**6), SCORES, st.integers(0, 6)), max_size=40)
STEERED_STEPS = st.lists(st.tuples(st.integers(0, 10**6), SCORES, st.integers(0, 11)), max_size=40)
STEPS = st.one_of(PLAIN_STEPS, STEERED_STEPS)


def grow(steps: list[tuple[int, float, int]]) -> tuple[Tree, Leaderboard, ReferenceTree]:
    """Grow both trees; a step begins a child, ends the oldest one, or is a person's wish."""
    tree = Tree(root_score=100.0, root_children=5, failed_children=3)
    board = Leaderboard(tree, R)
    board.add(0, "root")
    slow = ReferenceTree()
    under_way: list[int] = []
    for choice, score, kernel in steps:
        if kernel > 6:
            steer(tree, slow, STEER[kernel - 7], sorted(slow.parents)[choice % len(slow.parents)])
            continue
        begin = not (kernel == 6 and under_way)
        parent = sorted(slow.parents)[choice % len(slow.parents)]
        tree.begin(parent)
        slow.pending.append(parent)
        under_way.append(parent)
        while under_way and (not begin or len(under_way) > 2):
            begin = True
            ended = under_way.pop(0)
            number = len(slow.parents)
            slow.pending.remove(ended)
            slow.parents[number] = ended
            slow.scores[number] = score
            slow.kernels[number] = f"kernel {kernel}"
            slow.order.append(number)
            tree.add(number, ended, score)
            if not math.isinf(score):
                board.add(number, f"kernel {kernel}")
    return tree, board, slow


def steer(tree: Tree, slow: ReferenceTree, verb: str, number: int) -> None:
    """Do what a person asks in both trees, where the coordinator would."""
    match verb:
        case "pin" if number not in slow.pinned and slow.growable(number):
            slow.pinned.append(number)
        case "unpin" if number in slow.pinned:
            slow.pinned.remove(number)
        case "prune" if number and number not in slow.prunes:
            slow.prunes.add(number)
        case "unprune" if number in slow.prunes:
            slow.prunes.remove(number)
        case "reject" if number and number not in slow.rejected:
            slow.rejected.add(number)
        case _:
            return
    steer_node(tree, NodeSteered(verb, number))


def build_tree(children: dict[int, tuple[int, float]], pending: tuple[int, ...] = ()) -> Tree:
    """Return a fixed tree: number -> (parent, score), in the order in which they ended."""
    tree = Tree(root_score=100.0, root_children=5, failed_children=3)
    for number, (parent, score) in children.items():
        tree.begin(parent)
        tree.add(number, parent, score)
    for parent in pending:
        tree.begin(parent)
    return tree


def reference_copy(tree: Tree, pending: tuple[int, ...] = ()) -> ReferenceTree:
    """Return the slow model of a tree."""
    slow = ReferenceTree(root_children=tree.root_children, failed_children=tree.failed_children)
    for number in tree.recorded:
        slow.parents[number] = tree[number].parent
        slow.scores[number] = tree[number].score
        slow.order.append(number)
    slow.pending += pending
    return slow
