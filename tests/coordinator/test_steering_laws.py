"""What a person asks of a search: obeyed at once, kept over crashes, and replayed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from search_runner import InMemoryRun, make_search
from test_decision_replay import rebuilt

from actors.coordinator.search.attempt_stages import Stage
from actors.coordinator.search.policy import POLICIES
from actors.coordinator.search.steering_events import BudgetChanged, NodeSteered, SourceInjected
from actors.coordinator.search.tree import ROOT

OPENINGS = (Stage.PLAN, Stage.REPAIR)


def new_run(
    *, budget: int = 12, in_flight: int = 1, seed: int = 0, policy: str = "epsilon-greedy"
) -> InMemoryRun:
    """Return a run whose reference is measured."""
    names = {"strategy": "stark", "policy": policy}
    search = make_search(budget=budget, in_flight=in_flight, seed=seed, **names)
    runner = InMemoryRun(search, **names)
    runner.perform(runner.search.begin())
    runner.step(ROOT)
    return runner


def run_to(runner: InMemoryRun, recorded: int) -> None:
    """Go on until so many attempts have ended."""
    while runner.search.recorded < recorded:
        runner.step(min(runner.offers))


def run_out(runner: InMemoryRun) -> None:
    while runner.offers:
        runner.step(min(runner.offers))


def parents_after(runner: InMemoryRun, number: int) -> list[int]:
    """Return the parents of the attempts after this one, in order."""
    found = {d.number: d.parent for d in runner.decisions.values() if d.stage in OPENINGS}
    return [found[n] for n in sorted(found) if n > number]


def wish(rng: Random, runner: InMemoryRun) -> None:
    """Have a person ask for something that the coordinator would not refuse."""
    search = runner.search
    tree = search.tree
    if tree is None:
        return
    number = rng.choice(sorted(tree.nodes))
    node = tree[number]
    if search.finished and (search.begun >= search.budget) and rng.random() < 0.3:
        runner.steer(BudgetChanged(search.begun + 2))
        return
    if rng.random() < 0.2 and not node.rejected and search.confirming is None:
        if search.begun < search.budget:
            runner.steer(SourceInjected(search.begun + 1, number))
        return
    may_grow = not (node.rejected or node.is_pruned or node.closed)
    allowed = {
        "pin": may_grow and number not in tree.pinned,
        "unpin": number in tree.pinned,
        "boost": may_grow and search.begun < search.budget,
        "prune": number != ROOT and number not in tree.pruned,
        "unprune": number in tree.pruned,
        "reject": number != ROOT and not node.rejected,
    }
    verbs = [verb for verb, is_allowed in allowed.items() if is_allowed]
    verb = rng.choice(verbs) if verbs else ""
    if verb and (verb == "reject" or not search.finished):
        runner.steer(NodeSteered(verb, number, rng.randint(1, 3), search.begun))


def end_look_at_rejected(runner: InMemoryRun) -> None:
    """Kill the coordinator that looks again at a node which was rejected meanwhile.

    The next one does not look at it: a run that is killed there and one that is not differ in that.
    """
    tree, number = runner.search.tree, runner.search.confirming
    if tree is not None and number in runner.offers and tree[number].rejected:
        runner.crash()


def steered_run(
    seed: int,
    in_flight: int,
    crash_at: frozenset[int] = frozenset(),
    policy: str = "greedy",
    *,
    between: Callable[[InMemoryRun], None] = lambda _runner: None,
) -> InMemoryRun:
    """Return a run with wishes at random moments, the same ones for the same seed.

    `between`: what is done before each step, in which no wish can fall.
    """
    runner = new_run(seed=seed, in_flight=in_flight, policy=policy)
    rng = Random(seed)
    count = 0
    while runner.offers:
        between(runner)
        if not runner.offers:
            break
        runner.step(rng.choice(sorted(runner.offers)))
        if rng.random() < 0.3:
            wish(rng, runner)
        count += 1
        if count in crash_at:
            runner.crash()
    return runner


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(
    seed=st.integers(0, 10_000),
    in_flight=st.sampled_from([1, 3]),
    crash_at=st.frozensets(st.integers(1, 50), max_size=4),
)
# A person rejects the node that is being confirmed, and the coordinator is killed.
@example(seed=2329, in_flight=3, crash_at=frozenset({32}))
@example(seed=2425, in_flight=1, crash_at=frozenset({32}))
@settings(max_examples=60)
def test_a_steered_run_has_no_differences(
    policy: str, seed: int, in_flight: int, crash_at: frozenset[int]
) -> None:
    """The replay makes the same choices: each wish has its place among the decisions."""
    runner = steered_run(seed, in_flight, crash_at, policy)

    assert [] == rebuilt(runner, seed)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(
    seed=st.integers(0, 10_000),
    in_flight=st.sampled_from([1, 3]),
    crash_at=st.frozensets(st.integers(1, 50), min_size=1, max_size=4),
)
@example(seed=96, in_flight=1, crash_at=frozenset({1, 30}))  # while a rejected node is looked at
@settings(max_examples=60)
def test_crashes_leave_the_same_steered_tree(
    policy: str, seed: int, in_flight: int, crash_at: frozenset[int]
) -> None:
    """A coordinator that was killed obeys what a person asked of the one before."""
    undisturbed = steered_run(seed, in_flight, policy=policy, between=end_look_at_rejected)
    disturbed = steered_run(seed, in_flight, crash_at, policy, between=end_look_at_rejected)

    assert undisturbed.nodes == disturbed.nodes
    assert undisturbed.shown == disturbed.shown
    assert undisturbed.directives == disturbed.directives


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(seed=st.integers(0, 1_000), crash=st.booleans())
@settings(max_examples=20)
def test_the_next_attempts_grow_from_a_boosted_node(policy: str, seed: int, crash: bool) -> None:
    """Exactly K attempts, whatever the policy would choose; the root's cap does not hold."""
    runner = new_run(seed=seed, budget=20, policy=policy)
    run_to(runner, 6)
    begun = runner.search.begun
    number = next(n for n in runner.search.tree.recorded if not math.isinf(runner.search.score(n)))
    runner.steer(NodeSteered("boost", ROOT, 3, begun))
    runner.steer(NodeSteered("boost", number, 2, begun))
    run_to(runner, 8)
    if crash:
        runner.crash()
    run_out(runner)

    assert [ROOT, ROOT, ROOT, number, number] == parents_after(runner, begun)[:5]
    assert runner.search.begun == 20


@given(seed=st.integers(0, 1_000))
@settings(max_examples=20)
def test_a_pinned_node_is_the_greedy_choice(seed: int) -> None:
    """A pinned node that is not the best is grown by the greedy rule until it is unpinned."""
    runner = new_run(seed=seed, budget=20, policy="greedy")
    run_to(runner, 6)
    correct = [n for n in runner.search.tree.correct if n != ROOT]
    worst = max(correct, key=runner.search.score)
    runner.steer(NodeSteered("pin", worst))
    begun = runner.search.begun
    run_to(runner, 9)
    assert {worst} == set(parents_after(runner, begun)[:3])
    runner.steer(NodeSteered("unpin", worst))
    begun = runner.search.begun
    run_to(runner, 10)
    assert runner.search.tree.best_eligible() in runner.search.tree.correct


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(seed=st.integers(0, 1_000))
@settings(max_examples=20)
def test_a_pruned_subtree_is_neither_grown_nor_shown(policy: str, seed: int) -> None:
    """Of what begins after the prune, no attempt grows in the subtree, and no window shows it."""
    runner = new_run(seed=seed, budget=25, policy=policy, in_flight=2)
    run_to(runner, 8)
    top = runner.search.tree.recorded[0]
    runner.steer(NodeSteered("prune", top))
    before = set(runner.decisions)
    begun = runner.search.begun
    run_out(runner)
    subtree = {node.number for node in runner.search.tree.subtree(top)}

    assert not subtree & set(parents_after(runner, begun))
    for key in set(runner.decisions) - before:
        decision = runner.decisions[key]
        if decision.stage is not Stage.CONFIRM:
            assert set(decision.window) & subtree <= {decision.parent}


@given(seed=st.integers(0, 1_000))
@settings(max_examples=30)
def test_a_rejected_winner_is_followed_by_the_next_one(seed: int) -> None:
    """After the end of the task, too: the best of the others is judged again."""
    runner = new_run(seed=seed, budget=10, policy="greedy")
    run_out(runner)
    confirmed = list(runner.confirmed)
    if not confirmed:
        return
    runner.steer(NodeSteered("reject", confirmed[0]))
    run_out(runner)
    board = [n for _, n in runner.search.leaderboard.ranked() if n != ROOT]

    assert confirmed[0] not in board
    assert not board or set(runner.confirmed) - {confirmed[0]}
    assert runner.search.finished


@given(
    seed=st.integers(0, 1_000),
    before=st.lists(st.integers(0, 5), max_size=2),
    after=st.lists(st.integers(0, 5), max_size=3),
    more=st.sampled_from([0, 3]),
)
@settings(max_examples=100)
def test_rejections_around_confirmations_have_their_places(
    seed: int, before: list[int], after: list[int], more: int
) -> None:
    """A replay knows whether a node was rejected before its second look ended, or after that."""
    runner = new_run(seed=seed, budget=9, policy="greedy")

    def reject(rank: int) -> None:
        board = [n for _, n in runner.search.leaderboard.ranked() if n != ROOT]
        if rank < len(board):
            runner.steer(NodeSteered("reject", board[rank]))

    while runner.offers and runner.search.confirming is None:
        runner.step(min(runner.offers))
    for rank in before:
        reject(rank)
    run_out(runner)
    for rank in after:
        reject(rank)
        run_out(runner)
    if more:
        runner.steer(BudgetChanged(9 + more))
        run_out(runner)

    assert [] == rebuilt(runner, seed)
    assert 9 + more == len(runner.nodes)


def test_an_injected_attempt_counts_as_any_other() -> None:
    """It is judged at once, counts against the budget, and its node is grown like any."""
    runner = new_run(budget=6)
    run_to(runner, 2)
    number = runner.search.begun + 1
    runner.steer(SourceInjected(number, 1))
    assert Stage.EVALUATE is runner.offers[number].stage
    run_out(runner)

    assert [1] == [parent for n, parent, *_ in runner.nodes if n == number]
    assert sorted(n for n, *_ in runner.nodes) == list(range(1, 7))


def test_a_smaller_budget_ends_the_task_and_a_larger_one_goes_on() -> None:
    """What is under way is judged; no attempt is begun beyond the budget."""
    runner = new_run(budget=12, in_flight=3)
    run_to(runner, 2)
    begun = runner.search.begun
    runner.steer(BudgetChanged(begun))
    run_out(runner)
    assert begun == len(runner.nodes)
    assert runner.search.finished

    runner.steer(BudgetChanged(begun + 3))
    run_out(runner)
    assert begun + 3 == len(runner.nodes)
    assert [] == rebuilt(runner)
