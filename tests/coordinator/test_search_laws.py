"""The search as a state machine: budget, determinism, and crashes at every point."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from search_runner import InMemoryRun, make_search

from actors.coordinator.search.scoring import kernel_of
from actors.coordinator.search.search import (
    AttemptEnded,
    BestConfirmed,
    FinishTask,
    OfferWork,
    ReferenceReady,
    ReferenceRefused,
    StageEnded,
)
from actors.coordinator.search.stages import Stage
from protocol.values import Outcome, Verdict


def whole_run(
    crash_at: frozenset[int] = frozenset(), *, seed: int = 0, budget: int = 12
) -> InMemoryRun:
    """Run with one expansion at a time, losing the process before the steps in `crash_at`."""
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
@settings(max_examples=150, deadline=None)
def test_crashes_anywhere_leave_the_same_tree(crash_at: frozenset[int], seed: int) -> None:
    """A coordinator killed before any steps grows the tree, and shows the windows, of no kill."""
    calm = whole_run(seed=seed)
    stormy = whole_run(crash_at, seed=seed)

    assert calm.nodes == stormy.nodes
    assert calm.shown == stormy.shown
    assert calm.confirmed == stormy.confirmed


def test_the_budget_is_met_exactly_and_the_task_finishes() -> None:
    """B attempts, numbered 1 to B, each once."""
    runner = whole_run(budget=12)

    assert [n for n, *_ in runner.nodes] == list(range(1, 13))
    assert runner.search.finished


@given(st.integers(2, 8), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_several_under_way_never_break_the_rules(in_flight: int, seed: int) -> None:
    """K at once: never more than K, the root's cap holds, nothing is debugged twice at a time."""
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
    """A node with a bug goes to the debug agent alone, any other to planner and coder."""
    runner = whole_run(budget=30)
    failed = {number for number, _, score, _ in runner.nodes if score == float("inf")}
    for number, parent, *_ in runner.nodes:
        stages = {stage for n, stage in runner.shown if n == number} - {Stage.CONFIRM}
        agents = {Stage.REPAIR} if parent in failed else {Stage.PLAN, Stage.WRITE}
        assert agents | {Stage.EVALUATE} == stages


def test_a_reference_that_cannot_be_measured_ends_the_task() -> None:
    """Nothing is attempted against a reference that does not run, and the reason is passed on."""
    search = make_search()

    assert [OfferWork] == [type(i) for i in search.begin()]
    assert [FinishTask("it raised")] == search.handle(ReferenceRefused("it raised"))
    assert search.finished


def test_a_larger_budget_goes_on_where_the_run_ended() -> None:
    """A finished search taken up with more budget begins the next attempt, and no old one again."""
    runner = whole_run(budget=4)
    longer = make_search(budget=6)
    instructions = longer.restore(100.0, runner.nodes, [])

    assert [5] == sorted({i.attempt.number for i in instructions if isinstance(i, OfferWork)})


def test_seeds_tell_runs_apart() -> None:
    """The seed decides the draws: over many attempts two seeds do not choose alike."""
    parents = {
        seed: [parent for _, parent, *_ in whole_run(seed=seed, budget=30).nodes] for seed in (0, 1)
    }

    assert parents[0] != parents[1]
    assert parents[0] == [parent for _, parent, *_ in whole_run(seed=0, budget=30).nodes]


def test_measuring_begins_as_many_attempts_as_may_be_under_way() -> None:
    """K = 3 puts three expansions on the root at once."""
    search = make_search(in_flight=3)
    search.begin()
    offers = [i for i in search.handle(ReferenceReady(100.0)) if isinstance(i, OfferWork)]

    assert [(1, 0), (2, 0), (3, 0)] == [(o.attempt.number, o.attempt.parent) for o in offers]


def test_the_best_at_the_end_was_judged_again() -> None:
    """The winner's figure is a second look's, and no unconfirmed node claims to beat it."""
    runner = whole_run(budget=20)
    winner, score = min((one.score, number) for number, one in runner.confirmed.items())[::-1]
    others = [s for n, _, s, _ in runner.nodes if n not in runner.confirmed]

    assert runner.search.finished
    assert len(runner.confirmed) <= 3
    assert len(runner.confirmed) == 3 or all(score <= other for other in others)
    assert winner in runner.confirmed


def test_nothing_correct_is_nothing_to_confirm() -> None:
    """A run without a correct candidate ends without a second look."""
    search = make_search(budget=1)
    search.begin()
    search.handle(ReferenceReady(100.0))
    search.handle(StageEnded(1))
    search.handle(StageEnded(1))

    assert search.handle(AttemptEnded(1, float("inf"), "k")) == [FinishTask()]


def ended_at(*scores: float, confirm: Callable[[int, float], BestConfirmed]) -> InMemoryRun:
    """Run attempts that come to these scores, and let them be judged again."""
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
    """Come to the same again, with an interval that reaches down to 1."""
    return BestConfirmed(number, score, faster=False)


def test_what_may_be_no_faster_does_not_keep_others_from_being_confirmed() -> None:
    """The best is no gain for sure: the next that seems to be one is judged again, three at most;
    what is slower anyway is not."""
    assert [3, 1, 2] == [*ended_at(60.0, 70.0, 50.0, 80.0, confirm=wide).confirmed]
    assert [2] == [*ended_at(120.0, 50.0, 110.0, confirm=wide).confirmed]
    assert [2] == [*ended_at(60.0, 50.0, confirm=lambda n, s: BestConfirmed(n, s, True)).confirmed]
    assert [1] == [*ended_at(120.0, 130.0, confirm=wide).confirmed]


@given(st.integers(0, 5), st.booleans())
def test_a_larger_budget_has_second_looks_of_its_own(seed: int, crashes: bool) -> None:
    """Three were judged again when the first budget had ended: a later best is, too."""
    runner = to_its_end(InMemoryRun(make_search(budget=6, seed=seed)))
    runner.outcome = lambda number: (5.0, f"k{number}")
    runner.crash(more=1)
    while runner.offers:
        runner.step(min(runner.offers))
        if crashes:
            runner.crash()

    assert 7 in runner.confirmed


def test_the_module_itself_is_not_judged_again() -> None:
    """The reference under another name is the root's own kernel: its lucky figure leads nothing."""
    runner = InMemoryRun(make_search(budget=2))
    itself = kernel_of(
        "x", Verdict(verdict=Outcome.CORRECT, profile={"labels": "renamed_reference"})
    )
    runner.outcome = lambda number: (40.0, itself) if number == 1 else (90.0, "k2")
    to_its_end(runner)

    assert [2] == [*runner.confirmed]
