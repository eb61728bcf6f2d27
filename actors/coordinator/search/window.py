"""The three windows: which earlier attempts each agent sees (arXiv 2510.16996, section 4.4).

Node i and the root belong to every window.  A window of more than `cap` nodes is a uniform draw of
`cap` from it; the prompts show node i and the root in sections of their own in any case.  A person
changes that: a pinned node is in every plan window, and no draw takes it out of any window; pruned
nodes are shown in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.tree import ROOT, Tree


def plan_window(tree: Tree, board: Leaderboard, i: int, cap: int, rng: Random) -> tuple[int, ...]:
    """Return i, the root, i's children, and the leaders outside i's subtree."""
    fixed = (i, ROOT, *board.leaders_outside(i))
    if tree.steered:
        fixed = (*fixed, *(one for one in tree.pinned if not tree[one].rejected))
        return _steered_window(tree, i, (*fixed, *tree[i].children), cap, rng)
    return _sample_window(fixed, tree[i].children, cap, rng)


def code_window(tree: Tree, i: int, cap: int, rng: Random) -> tuple[int, ...]:
    """Return i, the root, i's children, and the children of i's siblings."""
    parent = tree[i].parent
    # The children of all of a parent's children: i's own and its siblings'.
    shown = tree[i].children if parent is None else tree[parent].grandchildren
    if tree.steered:
        return _steered_window(tree, i, (i, ROOT, *shown), cap, rng)
    return _sample_window((i, ROOT), shown, cap, rng)


def debug_window(tree: Tree, i: int, cap: int, rng: Random) -> tuple[int, ...]:
    """Return i, the root, and i's siblings."""
    parent = tree[i].parent
    siblings = () if parent is None else tree[parent].children
    if tree.steered:
        return _steered_window(tree, i, (i, ROOT, *siblings), cap, rng)
    return _sample_window((i, ROOT), siblings, cap, rng, skip=tree[i].child_index)


def _steered_window(
    tree: Tree, i: int, shown: Sequence[int], cap: int, rng: Random
) -> tuple[int, ...]:
    """Return the window of a task that a person steers: without the pruned, with the pinned.

    Of more pinned nodes than the window holds, the latest are shown.
    """
    members = [one for one in dict.fromkeys(shown) if one in (i, ROOT) or not tree[one].is_pruned]
    if len(members) <= cap:
        return tuple(members)
    pinned = [one for one in tree.pinned if one in members]
    kept = set(pinned[max(0, len(pinned) - cap) :])
    others = [one for one in members if one not in kept]
    drawn = kept.union(rng.sample(others, cap - len(kept)))
    return tuple(one for one in members if one in drawn)


def _sample_window(
    fixed: tuple[int, ...],
    others: Sequence[int],
    cap: int,
    rng: Random,
    skip: int | None = None,
) -> tuple[int, ...]:
    """Return fixed + others (without the one at `skip`), or a draw of `cap` from them.

    The cost is the same for five others and for a million: indices are drawn, nothing is copied.
    """
    fixed = tuple(dict.fromkeys(fixed))
    skipping = skip is not None and len(others) > 0
    count = len(fixed) + len(others) - skipping

    def member(index: int) -> int:
        if index < len(fixed):
            return fixed[index]
        index -= len(fixed)
        if skipping and skip is not None and index >= skip:
            index += 1
        return others[index]

    chosen = range(count) if count <= cap else sorted(rng.sample(range(count), cap))
    return tuple(member(index) for index in chosen)
