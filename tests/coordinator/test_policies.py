"""Each policy compared with a slow, simple model of its rule, and its statistics on fixed trees."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from tree_builders import STEPS, build_tree, grow, reference_copy

from actors.coordinator.search.policy import (
    POLICIES,
    EpsilonGreedy,
    Evolutionary,
    Greedy,
    Mcts,
    Policy,
    make_policy,
)
from actors.coordinator.search.tree import FAILED_SCORE, Tree
from protocol import settings as settings_file
from protocol.settings import SearchSettings

DRAWS = 10_000
# The 99.9 % point of chi-square by degrees of freedom: seeds are fixed, so a pass stays a pass.
LIMITS = (0.0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88, 29.59, 31.26)

# A search half-way: the root full, a dead branch below 3 (pruned), a node under repair (5), a
# chain, ties, and a failed leaf.
HALF_WAY = {
    1: (0, 80.0),
    2: (0, FAILED_SCORE),
    3: (0, 60.0),
    4: (0, 120.0),
    5: (0, FAILED_SCORE),
    6: (3, FAILED_SCORE),
    7: (3, FAILED_SCORE),
    8: (3, FAILED_SCORE),
    9: (3, FAILED_SCORE),
    10: (1, 70.0),
    11: (10, 70.0),
    12: (2, 95.0),
}
UNDER_WAY = (5, 4)
TREES: dict[str, tuple[dict[int, tuple[int, float]], tuple[int, ...]]] = {
    "half-way": (HALF_WAY, UNDER_WAY),
    "only the root": ({}, ()),
    "the root full, all failed": ({n: (0, FAILED_SCORE) for n in range(1, 6)}, (3,)),
    "the root a dead branch": ({n: (0, FAILED_SCORE) for n in range(1, 5)}, ()),
}


def shares(name: str, slow, tree: Tree) -> dict[int, float]:
    """Return each node's share of selections, by the slow model."""
    s = SearchSettings()
    leaves = {leaf: 1 / len(slow.leaves()) for leaf in slow.leaves()}
    greedy = {i: 1 / len(slow.greedy()) for i in slow.greedy()}
    match name:
        case "greedy":
            return greedy
        case "epsilon-greedy":
            return {
                i: s.epsilon * leaves.get(i, 0.0) + (1 - s.epsilon) * greedy.get(i, 0.0)
                for i in leaves.keys() | greedy.keys()
            }
        case "evolutionary":
            return slow.tournament_shares(s.population, s.tournament)
    return {slow.uct(s.mcts_c, s.mcts_width): 1.0}


@pytest.mark.parametrize("tree_name", sorted(TREES))
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_ten_thousand_selections_agree_with_the_rule(name: str, tree_name: str) -> None:
    """Every node is selected as often as the rule says (chi-square), and no other node ever is."""
    children, pending = TREES[tree_name]
    tree = build_tree(children, pending)
    expected = shares(name, reference_copy(tree, pending), tree)
    policy = make_policy(name, SearchSettings())
    drawn = Counter(policy.select(tree, Random(seed)) for seed in range(DRAWS))

    assert set(drawn) == set(expected)
    distance = sum(
        (drawn[i] - DRAWS * share) ** 2 / (DRAWS * share) for i, share in expected.items()
    )
    assert distance <= LIMITS[len(expected) - 1]


@given(STEPS)
@settings(max_examples=100)
def test_greedy_is_the_slow_models_best(steps: list[tuple[int, float, int]]) -> None:
    """It selects the best eligible node, and a leaf only where no correct node is eligible."""
    tree, _, slow = grow(steps)

    allowed = slow.greedy() or {None}
    assert {Greedy().select(tree, Random(seed)) for seed in range(20)} <= allowed


@given(STEPS)
@settings(max_examples=100)
def test_evolution_grows_the_young_and_fast(steps: list[tuple[int, float, int]]) -> None:
    """A tournament's winner is in the population and eligible, and at most two others beat it."""
    tree, _, slow = grow(steps)
    policy = Evolutionary(population=6, tournament=3)

    allowed = set(slow.tournament_shares(6, 3)) or {None}
    assert {policy.select(tree, Random(seed)) for seed in range(20)} <= allowed


@given(STEPS)
@settings(max_examples=100)
def test_mcts_selects_as_the_slow_model(steps: list[tuple[int, float, int]]) -> None:
    """UCT over freshly counted visits, rewards and open nodes selects the same node."""
    tree, _, slow = grow(steps)

    for c, width in ((0.5, 5), (2.0, 2), (0.0, 3)):
        assert slow.uct(c, width) == Mcts(c=c, width=width).select(tree, Random(0))


@given(STEPS)
@settings(max_examples=100)
def test_mcts_updates_its_figures_step_by_step(steps: list[tuple[int, float, int]]) -> None:
    """It selects the same node when called after every step, once at the end, or after a crash."""
    policy = Mcts(c=0.5, width=5)
    tree = Tree(root_score=100.0, root_children=5, failed_children=3)
    for number, (place, score, _) in enumerate(steps, start=1):
        parent = place % number
        tree.begin(parent)
        policy.select(tree, Random(0))
        tree.add(number, parent, score)
        assert Mcts(c=0.5, width=5).select(tree, Random(0)) == policy.select(tree, Random(0))


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(steps=STEPS)
@settings(max_examples=60)
def test_every_policy_obeys_the_trees_rules(name: str, steps: list[tuple[int, float, int]]) -> None:
    """The root's cap, pruning and one repair a node hold; with none under way a node grows."""
    tree, _, slow = grow(steps)
    chosen = make_policy(name, SearchSettings()).select(tree, Random(len(steps)))

    if chosen is None:
        assert slow.pending
    else:
        # This holds for a leaf of exploration, too: it has no children and no repair under way.
        assert slow.eligible(chosen)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_same_seed_gives_the_same_selections(name: str) -> None:
    """A policy has no state between draws other than what follows from the tree."""
    tree = build_tree(HALF_WAY, UNDER_WAY)
    used, fresh = (make_policy(name, SearchSettings()) for _ in range(2))
    first = [used.select(tree, Random(seed)) for seed in range(200)]

    assert first == [fresh.select(tree, Random(seed)) for seed in range(200)]
    assert first[::-1] == [used.select(tree, Random(seed)) for seed in reversed(range(200))]


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_epsilon_is_the_share_of_leaves(epsilon: float) -> None:
    """At 0 it selects the best node, at 1 a leaf, failing ones as likely as the others."""
    tree = build_tree({n: (0, FAILED_SCORE if n % 2 else 60.0 + n) for n in range(1, 6)})
    policy: Policy = EpsilonGreedy(epsilon=epsilon)
    drawn = Counter(policy.select(tree, Random(seed)) for seed in range(2_000))

    assert set(drawn) == ({2} if epsilon == 0.0 else {1, 2, 3, 4, 5})


def test_an_unknown_policy_is_refused_with_the_known_names() -> None:
    """The error is one line that lists the names."""
    with pytest.raises(ValueError, match="there are epsilon-greedy, evolutionary, greedy, mcts"):
        make_policy("clever", SearchSettings())


def test_the_command_takes_every_policy() -> None:
    """`--policy` takes the names of the classes in `policy.py`, and no other name."""
    assert set(POLICIES) == set(settings_file.POLICIES)
