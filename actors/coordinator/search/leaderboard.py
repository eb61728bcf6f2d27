"""The leaderboard: the best distinct kernels, overall and outside any node's subtree.

The plan window needs the r leaders outside node i's subtree.  Two facts make that cheap at any
size: at the first query node i has no descendants, so the top of the board is the answer; a later
query needs only the nodes that joined since.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from actors.coordinator.search.tree import Tree

Entry = tuple[float, int]  # (score in microseconds, node number)
MAX_CACHED_JOINS = 64  # with more new members, reading the board from the top is cheaper


@dataclass(slots=True)
class CachedLeaders:
    """The last answer for one node, and how many members the board had then."""

    joined: int = 0
    leaders: list[Entry] = field(default_factory=list)


class Leaderboard:
    """All correct nodes with distinct kernels, the root included."""

    def __init__(self, tree: Tree, leaders: int) -> None:
        self._tree = tree
        self._leaders = leaders
        self._board: SortedList[Entry] = SortedList()
        self._joined: list[Entry] = []  # in the order in which they joined
        self._kernels: set[str] = set()
        self._cached: dict[int, CachedLeaders] = {}
        self._steered = 0  # the state of `Tree.steered` that the cached answers are for

    def add(self, number: int, kernel: str) -> bool:
        """Add a correct node; False when its kernel is already on the board.

        `kernel` identifies the source: of two nodes with the same kernel the first one counts.
        """
        if kernel in self._kernels:
            return False
        self._kernels.add(kernel)
        entry = (self._tree[number].score, number)
        self._board.add(entry)
        self._joined.append(entry)
        return True

    def ranked(self) -> Iterator[Entry]:
        """Yield all entries that a person did not reject, best first."""
        return (entry for entry in self._board if not self._tree[entry[1]].rejected)

    def leaders_outside(self, number: int) -> list[int]:
        """Return the r best nodes that are not in `number`'s subtree, best first.

        A node that a person pruned or rejected is left out.
        """
        if self._steered != self._tree.steered:
            self._steered = self._tree.steered
            self._cached.clear()
        cached = self._cached.get(number)
        if cached is not None and len(self._joined) - cached.joined <= MAX_CACHED_JOINS:
            for entry in self._joined[cached.joined :]:
                if self._is_leader_outside(entry[1], number):
                    insort(cached.leaders, entry)
            del cached.leaders[self._leaders :]
        else:
            cached = self._cached[number] = CachedLeaders(leaders=self._scan_from_best(number))
        cached.joined = len(self._joined)
        return [leader for _, leader in cached.leaders]

    def _scan_from_best(self, number: int) -> list[Entry]:
        found: list[Entry] = []
        for entry in self._board:
            if len(found) == self._leaders:
                break
            if self._is_leader_outside(entry[1], number):
                found.append(entry)
        return found

    def _is_leader_outside(self, leader: int, number: int) -> bool:
        node = self._tree[leader]
        return not (node.is_pruned or node.rejected or self._tree.is_within(leader, number))
