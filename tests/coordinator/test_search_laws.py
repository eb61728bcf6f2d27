"""The search as a state machine: budget, determinism, and crashes at every point."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from search_runner import EAGER_US, InMemoryRun, make_search

from actors.coordinator.search.attempt_stages import Stage
from actors.coordinator.search.confirmation import BestConfirmed
from actors.coordinator.search.scoring import kernel_of
from actors.coordinator.search.search import FinishTask, OfferWork
from actors.coordinator.search.search_events import (
    AttemptEnded,
    ReferenceReady,
    ReferenceRefused,
    StageEnded,
)
from protocol.values import Outcome, Verdict


def whole_run(
    crash_at: frozenset[int] = frozenset(), *, seed: int = 0, budget: int = 12
) -> InMemoryRun:
    """Run with one expansion at a time, and with crashes before the steps in `crash_at`."""
    runner = InMemoryRun(make_search(seed=seed, budget=budget))
    runner.perform(runner.search.begin())
    step = 0
    while runner.offers:
        if step in crash_at and step > 0:
            runner.crash()
        runner.step(min(runner.offers))
        step += 1
    return runner


@given(st.frozensets(st.integers(1, 40), max_size=12), st.integers(0, 5))
@settings(max_examples=100)
def test_crashes_anywhere_leave_the_same_tree(crash_at: frozenset[int], seed: int) -> None:
    """Tree and windows are those of a run without a kill, whichever steps a kill precedes."""
    undisturbed = whole_run(seed=seed)
    crashed = whole_run(crash_at, seed=seed)

    assert undisturbed.nodes == crashed.nodes
    assert undisturbed.shown == crashed.shown
    assert undisturbed.confirmed == crashed.confirmed


def test_the_budget_is_met_exactly_and_the_task_finishes() -> None:
    """There are B attempts, numbered 1 to B."""
    runner = whole_run(budget=12)

    assert [n for n, *_ in runner.nodes] == list(range(1, 13))
    assert runner.search.finished


@given(st.integers(2, 8), st.integers(0, 10**6))
@settings(max_examples=100)
def test_the_rules_hold_with_several_under_way(in_flight: int, seed: int) -> None:
    """At most K are under way, the root's cap holds, and a node has one repair at a time."""
    rng = Random(seed)
    runner = InMemoryRun(make_search(budget=20, in_flight=in_flight, seed=seed))
    runner.perform(runner.search.begin())
    while runner.offers:
        search = runner.search
        assert len(search.under_way) <= in_flight
        if search.tree is not None:
            assert search.tree[0].degree <= 5
            debugged = [a.parent for a in search.under_way.values() if a.repair]
            assert len(set(debugged)) == len(debugged)
        runner.step(rng.choice(sorted(runner.offers)))

    assert sorted(n for n, *_ in runner.nodes) == list(range(1, 21))


def test_a_failed_node_is_repaired_and_a_correct_one_improved() -> None:
    """A node with a bug goes to the debugger, any other node to planner and coder."""
    runner = whole_run(budget=30)
    failed = {number for number, _, score, _ in runner.nodes if score == float("inf")}
    for number, parent, *_ in runner.nodes:
        stages = {stage for n, stage in runner.shown if n == number} - {Stage.CONFIRM}
        agents = {Stage.REPAIR} if parent in failed else {Stage.PLAN, Stage.WRITE}
        assert agents | {Stage.EVALUATE} == stages


def test_a_reference_that_cannot_be_measured_ends_the_task() -> None:
    """Without a running reference no attempt begins, and the reason is passed on."""
    search = make_search()

    assert [OfferWork] == [type(i) for i in search.begin()]
    assert [FinishTask("it raised")] == search.handle(ReferenceRefused("it raised"))
    assert search.finished


def test_a_larger_budget_goes_on_where_the_run_ended() -> None:
    """A finished search that is restored with more budget begins the next attempt only."""
    runner = whole_run(budget=4)
    longer = make_search(budget=6)
    instructions = longer.restore(100.0, runner.nodes, [])

    assert [5] == sorted({i.attempt.number for i in instructions if isinstance(i, OfferWork)})


def test_two_seeds_draw_differently() -> None:
    """Over many attempts, runs with two seeds select different nodes."""
    parents = {
        seed: [parent for _, parent, *_ in whole_run(seed=seed, budget=30).nodes] for seed in (0, 1)
    }

    assert parents[0] != parents[1]
    assert parents[0] == [parent for _, parent, *_ in whole_run(seed=0, budget=30).nodes]


def test_measuring_begins_as_many_attempts_as_may_be_under_way() -> None:
    """With K = 3 three expansions of the root begin at once."""
    search = make_search(in_flight=3)
    search.begin()
    offers = [i for i in search.handle(ReferenceReady(100.0)) if isinstance(i, OfferWork)]

    assert [(1, 0), (2, 0), (3, 0)] == [(o.attempt.number, o.attempt.parent) for o in offers]


def test_the_best_node_at_the_end_is_confirmed() -> None:
    """The winner's score is a confirmation's, and no unconfirmed node has a better one."""
    runner = whole_run(budget=20)
    winner, score = min((one.score, number) for number, one in runner.confirmed.items())[::-1]
    others = [s for n, _, s, _ in runner.nodes if n not in runner.confirmed]

    assert runner.search.finished
    assert len(runner.confirmed) <= 3
    assert len(runner.confirmed) == 3 or all(score <= other for other in others)
    assert winner in runner.confirmed


def test_a_run_without_a_correct_candidate_confirms_nothing() -> None:
    """It ends without a confirmation."""
    search = make_search(budget=1)
    search.begin()
    search.handle(ReferenceReady(100.0))
    search.handle(StageEnded(1))
    search.handle(StageEnded(1))

    assert search.handle(AttemptEnded(1, float("inf"), "k")) == [FinishTask()]


def ended_at(*scores: float, confirm: Callable[[int, float], BestConfirmed]) -> InMemoryRun:
    """Run attempts with these scores to the end, confirmations included."""
    runner = InMemoryRun(make_search(budget=len(scores)))
    runner.outcome = lambda number: (scores[number - 1], f"k{number}")
    runner.confirm = confirm
    return to_its_end(runner)


def to_its_end(runner: InMemoryRun) -> InMemoryRun:
    runner.perform([] if runner.offers else runner.search.begin())
    while runner.offers:
        runner.step(min(runner.offers))
    return runner


def wide(number: int, score: float) -> BestConfirmed:
    """Return a confirmation with the same score and an interval that reaches down to 1."""
    return BestConfirmed(number, score, faster=False)


def test_a_best_node_that_is_not_confirmed_faster_lets_others_be_confirmed() -> None:
    """While no node is confirmed faster, the next one that seems faster is confirmed.

    There are at most three confirmations, and none of a node that is slower than the reference.
    """
    assert [3, 1, 2] == [*ended_at(60.0, 70.0, 50.0, 80.0, confirm=wide).confirmed]
    assert [2] == [*ended_at(120.0, 50.0, 110.0, confirm=wide).confirmed]
    assert [2] == [*ended_at(60.0, 50.0, confirm=lambda n, s: BestConfirmed(n, s, True)).confirmed]
    assert [1] == [*ended_at(120.0, 130.0, confirm=wide).confirmed]


@given(st.integers(0, 5), st.booleans())
def test_a_larger_budget_has_confirmations_of_its_own(seed: int, crashes: bool) -> None:
    """After three confirmations at the first budget's end, a later best node is confirmed, too."""
    runner = to_its_end(InMemoryRun(make_search(budget=6, seed=seed)))
    runner.outcome = lambda number: (5.0, f"k{number}")
    runner.crash(more=1)
    while runner.offers:
        runner.step(min(runner.offers))
        if crashes:
            runner.crash()

    assert 7 in runner.confirmed


def test_a_renamed_reference_is_not_confirmed() -> None:
    """It has the root's kernel, so that a lucky figure does not put it on the leaderboard."""
    runner = InMemoryRun(make_search(budget=2))
    itself = kernel_of(
        "x", Verdict(verdict=Outcome.CORRECT, profile={"labels": "renamed_reference"})
    )
    runner.outcome = lambda number: (40.0, itself) if number == 1 else (90.0, "k2")
    to_its_end(runner)

    assert [2] == [*runner.confirmed]


def test_the_best_speedup_is_that_of_the_fastest_node() -> None:
    """Candidates are compared with it while they are timed; the reference itself counts as 1."""
    runner = InMemoryRun(make_search(budget=12))
    runner.perform(runner.search.begin())
    assert runner.search.best_speedup == 0.0
    while runner.offers:
        runner.step(min(runner.offers))
        scores = [runner.search.score(number) for number, *_ in runner.nodes]
        assert runner.search.best_speedup == EAGER_US / min([EAGER_US, *scores])


def test_a_search_stagnates_when_its_last_nodes_are_no_better() -> None:
    """Three judged attempts without a new best; an improvement ends it, a failure does not."""
    search = make_search(budget=7)
    search.begin()
    search.handle(ReferenceReady(100.0))
    seen = []
    for number, score in enumerate((50.0, 60.0, float("inf"), 50.0, 40.0, 41.0), 1):
        while search.under_way[number].stage is not Stage.EVALUATE:
            search.handle(StageEnded(number))
        search.handle(AttemptEnded(number, score, f"k{number}"))
        seen.append(search.tree is not None and search.tree.is_stagnant)
    assert [False, False, False, True, False, False] == seen
