"""Tree, leaderboard and windows compared with the slow, simple model of the method's rules."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

from hypothesis import given, settings
from tree_builders import STEPS, R, grow

from actors.coordinator.search.tree import FAILED_SCORE, Tree
from actors.coordinator.search.window import code_window, debug_window, plan_window


@given(STEPS)
@settings(max_examples=100)
def test_tree_answers_as_the_slow_model(steps: list[tuple[int, float, int]]) -> None:
    """Eligibility, best eligible node and leaves follow `docs/method.md` in every tree."""
    tree, _, slow = grow(steps)

    assert slow.leaves() == tree.leaves()
    assert {i: slow.eligible(i) for i in slow.parents} == {
        i: tree.is_eligible(tree[i]) for i in slow.parents
    }
    assert slow.best_eligible() == tree.best_eligible()


@given(STEPS)
@settings(max_examples=100)
def test_leaders_outside_a_subtree_are_the_slow_models(steps: list[tuple[int, float, int]]) -> None:
    """The leaders are the r best distinct kernels outside i's subtree, in order, for each i."""
    _, board, slow = grow(steps)

    assert {i: slow.leaders_outside(i, R) for i in slow.parents} == {
        i: board.leaders_outside(i) for i in slow.parents
    }


@given(STEPS)
@settings(max_examples=100)
def test_windows_are_those_of_the_method(steps: list[tuple[int, float, int]]) -> None:
    """Without a cap each window is the set of `docs/method.md`; with a cap it is a subset."""
    tree, board, slow = grow(steps)
    for i in slow.parents:
        expected = {
            "plan": slow.plan_window(i, R),
            "code": slow.code_window(i),
            "debug": slow.debug_window(i),
        }
        for cap in (5, 1000):
            actual = {
                "plan": plan_window(tree, board, i, cap, Random(1)),
                "code": code_window(tree, i, cap, Random(1)),
                "debug": debug_window(tree, i, cap, Random(1)),
            }
            for name, nodes in actual.items():
                assert len(set(nodes)) == len(nodes)
                assert min(cap, len(expected[name])) == len(nodes)
                assert set(nodes) <= expected[name]
                pinned = [n for n in slow.pinned if n in expected[name]]
                assert set(pinned[-cap:]) <= set(nodes)  # no draw takes a pinned node out


def wide_tree() -> Tree:
    """The root has five correct children; the first one has twenty children."""
    tree = Tree(root_score=100.0, root_children=5, failed_children=3)
    for number in range(1, 26):
        parent = 0 if number <= 5 else 1
        tree.begin(parent)
        tree.add(number, parent, 50.0 + number)
    return tree


def test_a_window_over_the_cap_is_a_uniform_draw() -> None:
    """Beyond five nodes each member is drawn with the same probability."""
    tree = wide_tree()
    seen = Counter(n for seed in range(4000) for n in code_window(tree, 1, 5, Random(seed)))

    assert set(seen) == {0, 1, *range(6, 26)}
    expected = 4000 * 5 / 22
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in seen.values())


def test_a_dead_branch_is_pruned_and_revived_by_a_late_success() -> None:
    """A node with more than three children, all failed, is not grown until one works."""
    tree = Tree(root_score=100.0, root_children=1, failed_children=3)
    tree.begin(0)
    tree.add(1, 0, 50.0)
    for _ in range(5):
        tree.begin(1)
    for number in range(2, 5):
        tree.add(number, 1, FAILED_SCORE)
    assert tree.best_eligible() == 1
    tree.add(5, 1, FAILED_SCORE)
    assert tree.best_eligible() is None
    tree.add(6, 1, 70.0)
    assert tree.best_eligible() == 1
