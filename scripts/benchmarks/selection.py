"""Selection and window time by the size of the tree, for each policy."""

from __future__ import annotations

import time
from random import Random

from actors.cli import OneLineParser
from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.policy import POLICIES, Policy, make_policy
from actors.coordinator.search.tree import FAILED_SCORE, ROOT, Tree
from actors.coordinator.search.window import code_window, debug_window, plan_window
from protocol.settings import PolicyName, SearchSettings, Settings
from scripts.benchmarks.machine_info import percentile

SIZES = (1_000, 100_000, 1_000_000)
OTHER_POLICY_SIZES = SIZES[:2]  # only the default policy grows a million nodes
STEPS = 2_000


def grow_tree(name: PolicyName, size: int) -> tuple[Tree, Leaderboard, Policy, Random]:
    """Grow a tree by the policy itself: four in ten attempts fail, few improve on their parent."""
    settings = SearchSettings()
    tree = Tree(root_score=1000.0, root_children=5, failed_children=3)
    board = Leaderboard(tree, settings.leaders)
    board.add(ROOT, "root")
    rng = Random(0)
    policy = make_policy(name, settings)
    for number in range(1, size):
        step(tree, board, policy, rng, number)
    return tree, board, policy, rng


def step(
    tree: Tree, board: Leaderboard, policy: Policy, rng: Random, number: int
) -> tuple[int, ...]:
    """Do one attempt's work in the search: select, windows, add, leaderboard."""
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
    score = FAILED_SCORE if rng.random() < 0.4 else base * rng.uniform(0.97, 1.6)
    tree.add(number, parent, score)
    if score != FAILED_SCORE:
        board.add(number, str(number))
    return window


def main() -> None:
    """Print microseconds a step at each size."""
    print(f"{'policy':<16} {'nodes':>10} {'p50 µs':>10} {'p99 µs':>10}")
    for name in POLICIES:
        for size in SIZES if name == Settings().policy else OTHER_POLICY_SIZES:
            tree, board, policy, rng = grow_tree(name, size)
            times = []
            for number in range(size, size + STEPS):
                begun_at = time.perf_counter()
                step(tree, board, policy, rng, number)
                times.append((time.perf_counter() - begun_at) * 1e6)
            p50, p99 = percentile(times, 50), percentile(times, 99)
            print(f"{name:<16} {size:>10,} {p50:>10.1f} {p99:>10.1f}")


if __name__ == "__main__":
    OneLineParser(prog="python -m scripts.benchmarks.selection", description=__doc__).parse_args()
    main()
