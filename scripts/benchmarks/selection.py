"""Selection and window time against the size of the tree."""

from __future__ import annotations

import time
from random import Random

from actors.coordinator.leaderboard import Leaderboard
from actors.coordinator.policy import EpsilonGreedy
from actors.coordinator.tree import FAILED, ROOT, Tree
from actors.coordinator.window import code_window, debug_window, plan_window
from protocol.settings import SearchSettings
from scripts.benchmarks.machine import percentile

SIZES = (1_000, 100_000, 1_000_000)
STEPS = 2_000


def grown(size: int) -> tuple[Tree, Leaderboard, EpsilonGreedy, Random]:
    """Grow a tree by the policy itself: four in ten attempts fail, few improve on their parent."""
    settings = SearchSettings()
    tree = Tree(root_score=1000.0, root_children=5, failed_children=3)
    board = Leaderboard(tree, settings.leaders)
    board.add(ROOT, "root")
    rng = Random(0)
    policy = EpsilonGreedy(epsilon=settings.epsilon)
    for number in range(1, size):
        step(tree, board, policy, rng, number)
    return tree, board, policy, rng


def step(
    tree: Tree, board: Leaderboard, policy: EpsilonGreedy, rng: Random, number: int
) -> tuple[int, ...]:
    """Do all that one attempt costs the search: select, windows, add, leaderboard."""
    parent = policy.select(tree, rng)
    if parent is None:
        raise RuntimeError("nothing can be grown")
    tree.begin(parent)
    node = tree[parent]
    if node.has_bug:
        window = debug_window(tree, parent, 5, rng)
    else:
        window = plan_window(tree, board, parent, 5, rng) + code_window(tree, parent, 5, rng)
    base = 1000.0 if node.has_bug else node.score
    score = FAILED if rng.random() < 0.4 else base * rng.uniform(0.97, 1.6)
    tree.add(number, parent, score)
    if score != FAILED:
        board.add(number, str(number))
    return window


def main() -> None:
    """Print microseconds a step at each size."""
    print(f"{'nodes':>10} {'p50 µs':>10} {'p99 µs':>10}")
    for size in SIZES:
        tree, board, policy, rng = grown(size)
        times = []
        for number in range(size, size + STEPS):
            begun = time.perf_counter()
            step(tree, board, policy, rng, number)
            times.append((time.perf_counter() - begun) * 1e6)
        print(f"{size:>10,} {percentile(times, 50):>10.1f} {percentile(times, 99):>10.1f}")


if __name__ == "__main__":
    main()
