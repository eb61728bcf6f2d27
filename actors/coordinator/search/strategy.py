"""Strategies: where an attempt grows, which agents make it, and what each agent sees.

The same evaluator, budget and store serve all strategies, so that their results can be compared.  A
strategy is a small class, a function of the tree and of the given random generator.  To add one,
write the class, name it in `StrategyName` of `protocol/settings.py`, and give the name its row in
`STRATEGIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, runtime_checkable

from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.policy import Policy
from actors.coordinator.search.tree import ROOT, Node, Tree
from actors.coordinator.search.window import code_window, debug_window, plan_window
from protocol.settings import SearchSettings, StrategyName


@dataclass(frozen=True)
class WindowContext:
    """The data that windows are made from."""

    tree: Tree
    leaderboard: Leaderboard
    cap: int


class Strategy(Protocol):
    """Decides where an attempt grows, how it begins, and what each agent is shown."""

    def select(self, tree: Tree, rng: Random) -> int | None:
        """Return the node to grow, or None when no attempt can begin until one ends."""
        ...

    def first_stage(self, node: Node) -> Stage:
        """Return an attempt's first stage on that node; after PLAN comes WRITE, then EVALUATE."""
        ...

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        """Return the nodes that the agent of its stage sees, node i and the root among them."""
        ...


@runtime_checkable
class WaitsForNodes(Protocol):
    """A strategy whose windows may have to wait for nodes that are under way."""

    def must_wait(self, attempt: Attempt, tree: Tree) -> bool:
        """Whether the window of the attempt's stage needs a node that is not recorded yet."""
        ...


@dataclass(frozen=True)
class StarkStrategy:
    """STARK (arXiv 2510.16996, algorithm 1): the policy's node, a team of agents, their windows.

    A node with a bug goes to the debug agent, any other to the plan agent and then to the code
    agent; each sees the window of section 4.4.
    """

    policy: Policy

    def select(self, tree: Tree, rng: Random) -> int | None:
        return self.policy.select(tree, rng)

    def first_stage(self, node: Node) -> Stage:
        return Stage.REPAIR if node.has_bug else Stage.PLAN

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        i = attempt.parent
        match attempt.stage:
            case Stage.PLAN:
                return plan_window(context.tree, context.leaderboard, i, context.cap, rng)
            case Stage.WRITE:
                return code_window(context.tree, i, context.cap, rng)
        return debug_window(context.tree, i, context.cap, rng)


@dataclass(frozen=True)
class OneAnswerStrategy:
    """STARK with plan and code in one answer: its policy, windows and debug agent, one call less.

    Not in the paper.  The agent that improves a node sees the plan window, because it plans; no
    other agent's plan stands between what it sees and what it writes.
    """

    policy: Policy

    def select(self, tree: Tree, rng: Random) -> int | None:
        return self.policy.select(tree, rng)

    def first_stage(self, node: Node) -> Stage:
        return Stage.REPAIR if node.has_bug else Stage.SOLVE

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        i = attempt.parent
        if attempt.stage is Stage.SOLVE:
            return plan_window(context.tree, context.leaderboard, i, context.cap, rng)
        return debug_window(context.tree, i, context.cap, rng)


@dataclass(frozen=True)
class SearchAgentStrategy:
    """The paper's "Search Agent" (section 5, table 3): one agent and the strategic search.

    The policy selects the node, as in `StarkStrategy`, but a single agent improves or repairs it in
    one call.  It sees W(i) = {i, root}, which section 4.4 gives for a search without dynamic
    windows: these belong to the team's coordination, which this ablation removes.
    """

    policy: Policy

    def select(self, tree: Tree, rng: Random) -> int | None:
        return self.policy.select(tree, rng)

    def first_stage(self, node: Node) -> Stage:
        return Stage.SOLVE

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        return _only(attempt.parent)


class TeamStrategy:
    """The paper's "MA-only" (section 5, table 3): the team of agents, best of K instead of search.

    Samples are independent of each other: each is planned and written from the root, W(i) = {i,
    root}, and the fastest correct one wins.  The debug agent belongs to the workflow, so a failed
    sample is repaired before the next one begins, and so is a failed repair, up to `repairs` in a
    row (the paper gives no number).  Every candidate counts against the budget, repairs included,
    as in the search.
    """

    def __init__(self, *, repairs: int) -> None:
        self.repairs = repairs
        self._tree: Tree | None = None
        self._checked = 0  # of `tree.recorded`: the nodes before this index need no further repair

    def select(self, tree: Tree, rng: Random) -> int | None:
        if self._tree is not tree:
            self._tree, self._checked = tree, 0
        while self._checked < len(tree.recorded):
            number = tree.recorded[self._checked]
            node = tree[number]
            if not node.closed and node.degree == 0 and 0 < _failures(tree, number) <= self.repairs:
                return number
            self._checked += 1
        return ROOT

    def first_stage(self, node: Node) -> Stage:
        return Stage.REPAIR if node.has_bug else Stage.PLAN

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        return _only(attempt.parent)


@dataclass(frozen=True)
class SamplingStrategy:
    """The "Sampling Agent" (arXiv 2510.16996, section 5; KernelBench, Ouyang et al. 2025).

    A single agent gets the same request again and again, from the root and without the results of
    earlier attempts, and the fastest correct answer wins.  The root's cap of children is a rule of
    the search and does not hold here.
    """

    def select(self, tree: Tree, rng: Random) -> int | None:
        return ROOT

    def first_stage(self, node: Node) -> Stage:
        return Stage.SOLVE

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        return _only(attempt.parent)


@dataclass(frozen=True)
class ReflexionStrategy:
    """The "Reflexion Agent" (arXiv 2510.16996, section 5; Shinn et al. 2023, arXiv 2303.11366).

    One chain: each attempt begins with the last one, correct or not, sees its source and feedback,
    states in words what it teaches, and then writes.  These reflections are stored with the node;
    an attempt sees those of the last `memory` nodes of the chain (the authors use one to three),
    and no earlier source.  One attempt is under way at a time, whatever the setting.
    """

    memory: int

    def select(self, tree: Tree, rng: Random) -> int | None:
        last = tree.recorded[-1] if tree.recorded else ROOT
        while tree[last].rejected:  # by a person: the chain goes on above
            last = tree[last].parent or ROOT
        return None if tree[last].pending else last

    def first_stage(self, node: Node) -> Stage:
        return Stage.SOLVE if node.number == ROOT else Stage.REFLECT

    def window(self, attempt: Attempt, context: WindowContext, rng: Random) -> tuple[int, ...]:
        remembered: list[int] = []
        at: int | None = attempt.parent
        while at is not None and len(remembered) < self.memory:
            remembered.append(at)
            at = context.tree[at].parent
        return tuple(dict.fromkeys((attempt.parent, ROOT, *remembered)))


def _only(i: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((i, ROOT)))


def _failures(tree: Tree, number: int) -> int:
    """Return the number of failed nodes in a row, upwards from this one."""
    count, node = 0, tree[number]
    while node.has_bug and node.parent is not None:
        count, node = count + 1, tree[node.parent]
    return count


STRATEGIES: dict[StrategyName, Callable[[Policy, SearchSettings], Strategy]] = {
    "stark": lambda policy, settings: StarkStrategy(policy),
    "one-answer": lambda policy, settings: OneAnswerStrategy(policy),
    "search": lambda policy, settings: SearchAgentStrategy(policy),
    "team": lambda policy, settings: TeamStrategy(repairs=settings.repairs),
    "sampling": lambda policy, settings: SamplingStrategy(),
    "reflexion": lambda policy, settings: ReflexionStrategy(memory=settings.memory),
}


def make_strategy(name: StrategyName, policy: Policy, settings: SearchSettings) -> Strategy:
    """Return the strategy of that name; raise ValueError with the known names for any other."""
    make = STRATEGIES.get(name)
    if make is None:
        raise ValueError(f"unknown strategy {name!r}: there are {', '.join(sorted(STRATEGIES))}")
    return make(policy, settings)
