"""A replay grows the nodes that the stored run grew, with any times of its own."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_runner import InMemoryRun, make_search, outcome

from actors.coordinator.replay.replay_strategy import ReplayStrategy, search_of_task
from actors.coordinator.search.policy import EpsilonGreedy
from actors.coordinator.search.strategy import STRATEGIES, make_strategy
from protocol.settings import SearchSettings, Settings


def runs(
    strategy: str, in_flight: int, seed: int, broken: int = 0, fewer: int = 0
) -> tuple[InMemoryRun, InMemoryRun]:
    """Return a run, and its replay with other times in another order.

    In the replay node `broken` fails, and `fewer` attempts less are under way at once.
    """
    names = {"strategy": strategy, "policy": "epsilon-greedy"}
    stored = InMemoryRun(make_search(budget=16, in_flight=in_flight, seed=seed, **names), **names)
    finish(stored, Random(seed))
    at_once = in_flight - fewer
    again = InMemoryRun(make_search(budget=16, in_flight=at_once, seed=seed, **names), **names)
    own = make_strategy(strategy, EpsilonGreedy(epsilon=0.3), SearchSettings())
    again.search._strategy = ReplayStrategy(own, stored.decisions.values())

    def noisy(number: int) -> tuple[float, str]:
        score, kernel = outcome(number)
        if number == broken:
            return math.inf, kernel
        return score * Random(f"{seed} {number}").uniform(0.3, 3.0), kernel

    again.outcome = noisy
    finish(again, Random(seed + 1))
    return stored, again


def finish(runner: InMemoryRun, rng: Random) -> None:
    runner.perform(runner.search.begin())
    while runner.offers:
        runner.step(rng.choice(sorted(runner.offers)))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(seed=st.integers(0, 100), in_flight=st.sampled_from([1, 3]))
@settings(max_examples=25)
def test_other_times_change_no_choice(strategy: str, seed: int, in_flight: int) -> None:
    """With other ranks and another order each attempt grows the same node.

    Each agent sees the same window, so that its stored reply still answers.
    """
    stored, again = runs(strategy, in_flight, seed)

    assert {n: p for n, p, *_ in stored.nodes} == {n: p for n, p, *_ in again.nodes}
    shown = [{k: w for k, w in run.shown.items() if k[1] != "confirm"} for run in (stored, again)]
    assert shown[0] == shown[1]


@given(seed=st.integers(0, 100), broken=st.integers(0, 16), fewer=st.integers(0, 2))
@settings(max_examples=40)
def test_the_replay_does_not_wait_for_impossible_nodes(seed: int, broken: int, fewer: int) -> None:
    """With another outcome, or fewer attempts under way, windows differ and the budget is used."""
    _, again = runs("stark", 3, seed, broken, fewer)

    assert 16 == len(again.nodes)
    assert again.search.finished


@given(seed=st.integers(0, 30), broken=st.integers(1, 16))
@settings(max_examples=40)
def test_a_node_that_fails_in_the_replay_is_not_improved(seed: int, broken: int) -> None:
    """Where the stored choice is impossible, the strategy's own rule selects a node.

    A node that fails in the replay goes to the debugger.
    """
    _, again = runs("stark", 1, seed, broken)
    failed = {n for n, _, score, _ in again.nodes if math.isinf(score)}

    assert len(again.nodes) == 16
    for number, parent, *_ in again.nodes:
        assert ((number, "repair") in again.shown) == (parent in failed)


def test_without_a_stored_run_the_strategy_selects_for_itself(tmp_path: Path) -> None:
    """Also when only one role replays: the stored choices are of all roles."""
    for more in ({"model": f"replay:{tmp_path}"}, {"model": "recipes", "coder_model": "replay:x"}):
        search = search_of_task("t", Settings(**more))
        assert not isinstance(search._strategy, ReplayStrategy)
