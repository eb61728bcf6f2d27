"""The leaderboard: the best distinct kernels, overall and outside any node's subtree.

Each node remembers the few best of its subtree and its few best children, so that "the r leaders
outside node i's subtree" is a walk from i to the root, whatever the size of the tree.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from actors.coordinator.tree import Tree

Entry = tuple[float, int]  # (score in microseconds, node number)


@dataclass(slots=True)
class Standing:
    """What one node knows of its subtree."""

    best: list[Entry] = field(default_factory=list)  # the r best of the subtree, itself included
    children: list[tuple[Entry, int]] = field(default_factory=list)  # r + 1 children, by their best


class Leaderboard:
    """All correct nodes with a kernel of their own; the root is one from the start."""

    def __init__(self, tree: Tree, leaders: int) -> None:
        self._tree = tree
        self._leaders = leaders
        self._standing: dict[int, Standing] = {}
        self._kernels: set[str] = set()
        self._members: set[int] = set()
        self._best: Entry | None = None

    def add(self, number: int, kernel: str) -> bool:
        """Add a correct node; False when its kernel is already on the board.

        `kernel` identifies the source: of two nodes with the same kernel the first one counts.
        """
        if kernel in self._kernels:
            return False
        self._kernels.add(kernel)
        self._members.add(number)
        entry = (self._tree[number].score, number)
        if self._best is None or entry < self._best:
            self._best = entry
        self._raise(entry)
        return True

    @property
    def best(self) -> Entry | None:
        """The best entry of all; None while the board is empty."""
        return self._best

    def outside(self, number: int) -> list[int]:
        """Return the r best nodes that are not in `number`'s subtree, best first."""
        found: list[Entry] = []
        below = number
        parent = self._tree[below].parent
        while parent is not None:
            if parent in self._members:
                self._keep(found, (self._tree[parent].score, parent))
            for _, child in self._standing[parent].children if parent in self._standing else ():
                if child != below:
                    for entry in self._standing[child].best:
                        self._keep(found, entry)
            below, parent = parent, self._tree[parent].parent
        return [leader for _, leader in found]

    def _raise(self, entry: Entry) -> None:
        """Carry a new entry upwards until it no longer matters."""
        below: int | None = None
        number: int | None = entry[1]
        while number is not None:
            standing = self._standing.setdefault(number, Standing())
            if below is not None:
                self._rank_child(standing, below)
            if not self._keep(standing.best, entry):
                # Not among the best here, so not further up either; but a child that has just
                # got its first entry had to be ranked, which happened above.
                return
            below, number = number, self._tree[number].parent

    def _rank_child(self, standing: Standing, child: int) -> None:
        standing.children = [entry for entry in standing.children if entry[1] != child]
        insort(standing.children, (self._standing[child].best[0], child))
        del standing.children[self._leaders + 1 :]

    def _keep(self, best: list[Entry], entry: Entry) -> bool:
        insort(best, entry)
        kept = entry in best[: self._leaders]
        del best[self._leaders :]
        return kept
