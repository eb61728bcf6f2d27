"""Each strategy: parents, agents and windows of its attempts, also after crashes."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_runner import InMemoryRun, make_search

from actors.coordinator.search.attempt_stages import Stage
from actors.coordinator.search.policy import POLICIES
from actors.coordinator.search.strategy import STRATEGIES, make_strategy
from actors.coordinator.search.tree import ROOT
from protocol import settings as settings_file
from protocol.settings import TREE_SEARCH_STRATEGIES, SearchSettings, Settings

PAIRS = [
    *((strategy, policy) for strategy in TREE_SEARCH_STRATEGIES for policy in sorted(POLICIES)),
    *((strategy, "greedy") for strategy in sorted(set(STRATEGIES) - set(TREE_SEARCH_STRATEGIES))),
]


def finished_run(
    strategy: str,
    *,
    policy: str = "epsilon-greedy",
    crash_at: frozenset[int] = frozenset(),
    seed: int = 0,
    budget: int = 12,
    in_flight: int = 1,
) -> InMemoryRun:
    """Run a whole search; several attempts under way end in a random order."""
    names = {"strategy": strategy, "policy": policy}
    search = make_search(seed=seed, budget=budget, in_flight=in_flight, **names)
    runner = InMemoryRun(search, **names)
    rng = Random(seed)
    runner.perform(runner.search.begin())
    count = 0
    while runner.offers:
        if count in crash_at and runner.search.tree is not None:
            runner.crash()
        count += 1
        runner.step(rng.choice(sorted(runner.offers)))
    return runner


def parents(runner: InMemoryRun) -> dict[int, int]:
    return {number: parent for number, parent, *_ in runner.nodes}


def failed(runner: InMemoryRun) -> set[int]:
    return {number for number, _, score, _ in runner.nodes if math.isinf(score)}


def stages(runner: InMemoryRun, number: int) -> list[Stage]:
    """Return the agents' stages of an attempt, in order."""
    shown = [stage for n, stage in runner.shown if n == number]
    return [stage for stage in shown if stage not in (Stage.EVALUATE, Stage.CONFIRM)]


@pytest.mark.parametrize(("strategy", "policy"), PAIRS)
@given(
    crash_at=st.frozensets(st.integers(0, 45), max_size=8),
    seed=st.integers(0, 5),
    in_flight=st.sampled_from([1, 3]),
)
@settings(max_examples=25)
def test_a_crash_at_any_point_leaves_the_same_tree(
    strategy: str, policy: str, crash_at: frozenset[int], seed: int, in_flight: int
) -> None:
    """For every strategy and policy, also with several expansions under way.

    A restored search makes the same offers with the same windows, so that stored replies still
    answer them.
    """
    more = {"policy": policy, "seed": seed, "in_flight": in_flight}
    undisturbed = finished_run(strategy, **more)
    crashed = finished_run(strategy, crash_at=crash_at, **more)

    assert undisturbed.nodes == crashed.nodes
    assert undisturbed.confirmed == crashed.confirmed
    assert undisturbed.shown == crashed.shown


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize(("strategy", "policy"), PAIRS)
def test_every_strategy_uses_its_budget_exactly(strategy: str, policy: str, in_flight: int) -> None:
    """After B attempts, each made once, the task is over, and no attempt waits for ever."""
    runner = finished_run(strategy, policy=policy, budget=20, in_flight=in_flight)

    assert sorted(parents(runner)) == list(range(1, 21))
    assert runner.search.finished


def test_search_grows_the_teams_nodes_with_one_agent_and_no_windows() -> None:
    """The policy selects as for STARK; an attempt is one call with W(i) = {i, root}."""
    stark, alone = finished_run("stark", budget=30), finished_run("search", budget=30)

    assert parents(stark) == parents(alone)
    for number, parent in parents(alone).items():
        assert [Stage.SOLVE] == stages(alone, number)
        assert {parent, ROOT} == set(alone.shown[number, Stage.SOLVE])


def test_the_team_samples_from_the_root_and_repairs_failed_samples() -> None:
    """Samples are planned and written at the root; a failed one is repaired once, and next."""
    runner = finished_run("team", budget=30)
    above, bad = parents(runner), failed(runner)
    samples = {n for n in above if above[n] == ROOT}

    assert {n for n in above if n not in samples} == {n + 1 for n in samples & bad if n < 30}
    for number in above:
        planned = [Stage.PLAN, Stage.WRITE] if number in samples else [Stage.REPAIR]
        assert planned == stages(runner, number)
        assert all({above[number], ROOT} == set(runner.shown[number, stage]) for stage in planned)


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 3))
@settings(max_examples=60)
def test_no_sample_of_the_team_is_repaired_too_often(
    seed: int, in_flight: int, repairs: int
) -> None:
    """There are at most `repairs` in a row; correct nodes are not repaired, and none twice."""
    names = {"strategy": "team", "policy": "greedy"}
    search = make_search(seed=seed, budget=24, in_flight=in_flight, **names)
    search._strategy = make_strategy("team", None, SearchSettings(repairs=repairs))  # type: ignore[arg-type]
    runner, rng = InMemoryRun(search, **names), Random(seed)
    runner.perform(runner.search.begin())
    while runner.offers:
        runner.step(rng.choice(sorted(runner.offers)))
    above, bad = parents(runner), failed(runner)
    repaired = [parent for parent in above.values() if parent != ROOT]

    assert len(set(repaired)) == len(repaired)
    assert set(repaired) <= bad
    for number in above:
        depth, at = 0, number
        while at != ROOT:
            depth, at = depth + 1, above[at]
        assert depth <= repairs + 1


def test_samples_are_independent() -> None:
    """Every attempt is the same request to the same agent, at the root."""
    runner = finished_run("sampling", budget=20, in_flight=4)

    assert {ROOT} == set(parents(runner).values())
    assert all([Stage.SOLVE] == stages(runner, number) for number in parents(runner))
    assert {(ROOT,)} == {runner.shown[number, Stage.SOLVE] for number in parents(runner)}


@pytest.mark.parametrize("in_flight", [1, 4])
def test_reflexion_is_one_chain_with_a_short_memory(in_flight: int) -> None:
    """Each attempt begins with the last one, failed or not, and sees three reflections."""
    runner = finished_run("reflexion", budget=10, in_flight=in_flight)

    assert {n: n - 1 for n in range(1, 11)} == parents(runner)
    assert [Stage.SOLVE] == stages(runner, 1)
    assert all([Stage.REFLECT] == stages(runner, n) for n in range(2, 11))
    assert {1, ROOT} == set(runner.shown[2, Stage.REFLECT])
    assert (8, ROOT, 7, 6) == runner.shown[9, Stage.REFLECT]


def test_the_command_takes_every_strategy() -> None:
    """`--strategy` takes the names of the classes in `strategy.py`, and no other name."""
    assert set(STRATEGIES) == set(settings_file.STRATEGIES)
    with pytest.raises(
        ValueError, match="there are one-answer, reflexion, sampling, search, stark, team"
    ):
        make_strategy("clever", None, SearchSettings())  # type: ignore[arg-type]


def test_a_strategy_without_a_policy_reports_none() -> None:
    """The policy in result.json is the one that selected the nodes."""
    assert Settings(strategy="search", policy="mcts").requested_policy == "mcts"
    assert Settings(strategy="sampling", policy="mcts").requested_policy is None


def test_one_answer_is_stark_with_one_call_less() -> None:
    """The policy selects as for STARK; a correct node gets one call with the plan window, and a
    failed one the debug agent."""
    stark, one = finished_run("stark", budget=30), finished_run("one-answer", budget=30)

    assert parents(stark) == parents(one)
    for number, parent in parents(one).items():
        if parent in failed(one):
            assert [Stage.REPAIR] == stages(one, number)
            assert set(stark.shown[number, Stage.REPAIR]) == set(one.shown[number, Stage.REPAIR])
        else:
            assert [Stage.SOLVE] == stages(one, number)
    most = max(len(shown) for (_, stage), shown in one.shown.items() if stage is Stage.SOLVE)
    assert most > 2
