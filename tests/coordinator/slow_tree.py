"""The method's rules written the slow, obvious way: what the fast tree is held against."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class SlowTree:
    """Attempts as a flat list; every question is answered by looking at all of them."""

    root_children: int = 5
    failed_children: int = 3
    parents: dict[int, int | None] = field(default_factory=lambda: {0: None})
    scores: dict[int, float] = field(default_factory=lambda: {0: 100.0})
    kernels: dict[int, str] = field(default_factory=lambda: {0: "root"})
    pending: list[int] = field(default_factory=list)  # the parents of children under way
    order: list[int] = field(default_factory=list)  # evaluated nodes in the order they ended

    def children(self, i: int) -> list[int]:
        return [n for n in self.order if self.parents[n] == i]

    def siblings(self, i: int) -> list[int]:
        return [] if i == 0 else [n for n in self.children(self.parents[i]) if n != i]

    def subtree(self, i: int) -> set[int]:
        return {i}.union(*(self.subtree(child) for child in self.children(i)))

    def failed(self, i: int) -> bool:
        return math.isinf(self.scores[i])

    def eligible(self, i: int) -> bool:
        children, under_way = self.children(i), self.pending.count(i)
        if i == 0:
            return len(children) + under_way < self.root_children
        if self.failed(i) and under_way:
            return False
        failed = [child for child in children if self.failed(child)]
        return not (len(failed) > self.failed_children and len(failed) == len(children))

    def best_eligible(self) -> int | None:
        correct = [i for i in self.parents if not self.failed(i) and self.eligible(i)]
        return min(correct, key=lambda i: (self.scores[i], i), default=None)

    def leaves(self) -> frozenset[int]:
        busy = {self.parents[n] for n in self.order} | set(self.pending)
        return frozenset(i for i in self.parents if i not in busy)

    def board(self) -> list[int]:
        """Correct nodes, the first of each kernel, best first."""
        first: dict[str, int] = {}
        for i in [0, *self.order]:
            if not self.failed(i):
                first.setdefault(self.kernels[i], i)
        return sorted(first.values(), key=lambda i: (self.scores[i], i))

    def leaders_outside(self, i: int, r: int) -> list[int]:
        inside = self.subtree(i)
        return [n for n in self.board() if n not in inside][:r]

    def plan_window(self, i: int, r: int) -> set[int]:
        return {i, 0, *self.children(i), *self.leaders_outside(i, r)}

    def code_window(self, i: int) -> set[int]:
        cousins = [n for s in self.siblings(i) for n in self.children(s)]
        return {i, 0, *self.children(i), *cousins}

    def debug_window(self, i: int) -> set[int]:
        return {i, 0, *self.siblings(i)}
