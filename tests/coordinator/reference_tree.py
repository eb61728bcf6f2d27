"""The method's rules in a slow and simple form, which the fast tree is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations


@dataclass
class ReferenceTree:
    """Attempts as a flat list; every query scans all of them."""

    root_children: int = 5
    failed_children: int = 3
    parents: dict[int, int | None] = field(default_factory=lambda: {0: None})
    scores: dict[int, float] = field(default_factory=lambda: {0: 100.0})
    kernels: dict[int, str] = field(default_factory=lambda: {0: "root"})
    pending: list[int] = field(default_factory=list)  # the parents of children under way
    order: list[int] = field(default_factory=list)  # evaluated nodes in the order they ended
    # What a person asked for.
    pinned: list[int] = field(default_factory=list)
    prunes: set[int] = field(default_factory=set)  # the tops of pruned subtrees
    rejected: set[int] = field(default_factory=set)

    def children(self, i: int) -> list[int]:
        return [n for n in self.order if self.parents[n] == i]

    def siblings(self, i: int) -> list[int]:
        return [] if i == 0 else [n for n in self.children(self.parents[i]) if n != i]

    def subtree(self, i: int) -> set[int]:
        return {i}.union(*(self.subtree(child) for child in self.children(i)))

    def failed(self, i: int) -> bool:
        return math.isinf(self.scores[i])

    def pruned(self, i: int) -> bool:
        return any(i in self.subtree(top) for top in self.prunes)

    def growable(self, i: int) -> bool:
        in_repair = self.failed(i) and i in self.pending
        return not (in_repair or i in self.rejected or self.pruned(i))

    def eligible(self, i: int) -> bool:
        if not self.growable(i):
            return False
        children, under_way = self.children(i), self.pending.count(i)
        if i == 0 and len(children) + under_way >= self.root_children:
            return False
        failed = [child for child in children if self.failed(child)]
        return not (len(failed) > self.failed_children and len(failed) == len(children))

    def best_pinned(self) -> int | None:
        """The best eligible pinned node; a failed one counts until a child of it is correct."""

        def repaired(i: int) -> bool:
            return self.failed(i) and not all(self.failed(child) for child in self.children(i))

        wanted = [i for i in self.pinned if self.eligible(i) and not repaired(i)]
        return min(wanted, key=lambda i: (self.scores[i], i), default=None)

    def best_eligible(self) -> int | None:
        pinned = self.best_pinned()
        if pinned is not None:
            return pinned
        correct = [i for i in self.parents if not self.failed(i) and self.eligible(i)]
        return min(correct, key=lambda i: (self.scores[i], i), default=None)

    def leaves(self) -> frozenset[int]:
        busy = {self.parents[n] for n in self.order} | set(self.pending)
        return frozenset(
            i for i in self.parents if not (i in busy or i in self.rejected or self.pruned(i))
        )

    def board(self) -> list[int]:
        """Correct nodes, the first of each kernel, best first."""
        first: dict[str, int] = {}
        for i in [0, *self.order]:
            if not self.failed(i):
                first.setdefault(self.kernels[i], i)
        return sorted(first.values(), key=lambda i: (self.scores[i], i))

    def leaders_outside(self, i: int, r: int) -> list[int]:
        inside = self.subtree(i)
        hidden = {n for n in self.parents if n in self.rejected or self.pruned(n)}
        return [n for n in self.board() if n not in inside | hidden][:r]

    def plan_window(self, i: int, r: int) -> set[int]:
        pinned = set(self.pinned) - self.rejected
        return self.shown(i, {*self.children(i), *self.leaders_outside(i, r), *pinned})

    def code_window(self, i: int) -> set[int]:
        cousins = [n for s in self.siblings(i) for n in self.children(s)]
        return self.shown(i, {*self.children(i), *cousins})

    def debug_window(self, i: int) -> set[int]:
        return self.shown(i, set(self.siblings(i)))

    def shown(self, i: int, others: set[int]) -> set[int]:
        return {i, 0}.union(n for n in others if not self.pruned(n))

    # --- the choices of the policies ---------------------------------------------------------

    def greedy(self) -> set[int]:
        """The nodes that the greedy rule may select, each equally likely."""
        best = self.best_eligible()
        return set(self.leaves()) if best is None else {best}

    def tournament_shares(self, population: int, tournament: int) -> dict[int, float]:
        """Each node's share of selections: of all draws, those in which it is the fastest."""
        if self.best_pinned() is not None:
            return {self.best_pinned(): 1.0}
        correct = [i for i in [0, *self.order] if not self.failed(i)]
        alive = [i for i in correct[-population:] if self.eligible(i)]
        if not alive:
            return {i: 1 / len(self.leaves()) for i in self.leaves()}
        draws = list(combinations(alive, min(tournament, len(alive))))
        winners = [min(draw, key=lambda i: (self.scores[i], i)) for draw in draws]
        return {i: winners.count(i) / len(draws) for i in alive if i in winners}

    def visits(self, i: int) -> int:
        return len(self.subtree(i)) + sum(self.pending.count(n) for n in self.subtree(i))

    def reward(self, i: int) -> float:
        speeds = [self.scores[0] / self.scores[n] for n in self.subtree(i)]
        return sum(x / (1 + x) for x in speeds)

    def uct(self, c: float, width: int) -> int | None:
        """Walk down by the rule; None where no node may be grown."""
        if self.best_pinned() is not None:
            return self.best_pinned()

        def grows(i: int) -> bool:
            return self.eligible(i) and len(self.children(i)) + self.pending.count(i) < width

        def bound(i: int, child: int) -> float:
            explore = math.sqrt(math.log(self.visits(i)) / self.visits(child))
            return self.reward(child) / self.visits(child) + c * explore

        at = 0
        while not grows(at):
            ways = [n for n in self.children(at) if any(grows(m) for m in self.subtree(n))]
            if not ways:
                return None
            at = max(ways, key=lambda child: (round(bound(at, child), 9), -child))
        return at
