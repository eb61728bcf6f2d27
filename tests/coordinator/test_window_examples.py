"""The three windows on one fixed tree; the sets were derived by hand from the method.

    0 (100 us)
    |- 1 (80 us)
    |  |- 4 (60 us)
    |  |  |- 9 failed
    |  |  '- 10 (50 us)
    |  |- 5 failed
    |  |  '- 11 (90 us), the debugger's repair
    |  '- 6 (70 us)
    |- 2 failed
    |  '- 7 failed
    '- 3 (95 us)
       '- 8 (40 us)

The fastest of all: 8, 10, 4, 6, 1, 11, 3, 0.  Under way: a child of 6 and a second one of 2.
"""

from __future__ import annotations

from random import Random

import pytest
from tree_builders import build_tree

from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.tree import FAILED_SCORE, ROOT, Tree
from actors.coordinator.search.window import code_window, debug_window, plan_window

LEADERS = 2
NO_CAP = 99


def tree_and_board() -> tuple[Tree, Leaderboard]:
    scores = {
        1: (0, 80.0),
        2: (0, FAILED_SCORE),
        3: (0, 95.0),
        4: (1, 60.0),
        5: (1, FAILED_SCORE),
        6: (1, 70.0),
        7: (2, FAILED_SCORE),
        8: (3, 40.0),
        9: (4, FAILED_SCORE),
        10: (4, 50.0),
        11: (5, 90.0),
    }
    tree = build_tree(scores, pending=(6, 2))
    board = Leaderboard(tree, LEADERS)
    for number in [ROOT, *tree.recorded]:
        if not tree[number].has_bug:
            board.add(number, f"kernel {number}")
    return tree, board


@pytest.mark.parametrize(
    ("i", "children", "leaders"),
    [
        (0, {1, 2, 3}, set()),  # every node is in the root's subtree
        (1, {4, 5, 6}, {8, 3}),  # 10, 4, 6 and 11 are below 1
        (3, {8}, {10, 4}),  # 8 is below 3
        (4, {9, 10}, {8, 6}),
        (6, set(), {8, 10}),  # its child under way has no code yet
        (8, set(), {10, 4}),
        (10, set(), {8, 4}),  # a parent is outside its child's subtree
        (11, set(), {8, 10}),
    ],
)
def test_plan_window(i: int, children: set[int], leaders: set[int]) -> None:
    """It has the children of i, and the two best kernels outside i's subtree."""
    tree, board = tree_and_board()

    assert {i, ROOT} | children | leaders == set(plan_window(tree, board, i, NO_CAP, Random(0)))


@pytest.mark.parametrize(
    ("i", "children", "cousins"),
    [
        (0, {1, 2, 3}, set()),  # the root has no siblings
        (1, {4, 5, 6}, {7, 8}),
        (3, {8}, {4, 5, 6, 7}),
        (4, {9, 10}, {11}),  # siblings 5 and 6; the child of 6 is under way
        (6, set(), {9, 10, 11}),
        (8, set(), set()),  # an only child
        (10, set(), set()),  # its sibling 9 has no children
    ],
)
def test_code_window(i: int, children: set[int], cousins: set[int]) -> None:
    """It has the children of i and of its siblings, but not the siblings themselves."""
    tree, _ = tree_and_board()

    assert {i, ROOT} | children | cousins == set(code_window(tree, i, NO_CAP, Random(0)))


@pytest.mark.parametrize(
    ("i", "siblings"),
    [(2, {1, 3}), (5, {4, 6}), (7, set()), (9, {10})],
)
def test_debug_window(i: int, siblings: set[int]) -> None:
    """It has the siblings of i, correct and failed, but not its own earlier repairs."""
    tree, _ = tree_and_board()

    assert {i, ROOT} | siblings == set(debug_window(tree, i, NO_CAP, Random(0)))


def test_the_cap_is_a_draw_of_five_from_the_whole_window() -> None:
    """Plan and code windows of 7 nodes become draws of 5 from all of them; 5 nodes stay 5."""
    tree, board = tree_and_board()
    whole = {1, 0, 4, 5, 6, 8, 3}
    drawn = [set(plan_window(tree, board, 1, 5, Random(seed))) for seed in range(300)]

    assert all(len(window) == 5 and window < whole for window in drawn)
    assert whole == set().union(*drawn)
    assert {1, 0, 4, 5, 6, 7, 8} == set().union(
        *(code_window(tree, 1, 5, Random(seed)) for seed in range(300))
    )
    assert {4, 0, 9, 10, 11} == set(code_window(tree, 4, 5, Random(0)))


def test_a_pending_child_counts_for_the_roots_cap_and_is_in_no_window() -> None:
    """With three children and two under way the root is full, and the planner sees the three."""
    tree, board = tree_and_board()
    for _ in range(2):
        assert tree.is_eligible(tree[ROOT])
        tree.begin(ROOT)

    assert not tree.is_eligible(tree[ROOT])
    assert {0, 1, 2, 3} == set(plan_window(tree, board, ROOT, NO_CAP, Random(0)))


def test_of_equal_kernels_the_first_is_the_leader() -> None:
    """Two leaders are two different kernels: of two nodes with the same source one counts."""
    tree, board = tree_and_board()
    tree.begin(3)
    tree.add(12, 3, 41.0)
    assert not board.add(12, "kernel 8")
    assert [8, 10] == board.leaders_outside(11)
