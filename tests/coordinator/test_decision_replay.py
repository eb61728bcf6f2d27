"""The replay of a stored run: the search makes the recorded decisions again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from search_runner import InMemoryRun, make_search

from actors.coordinator.replay.rebuild import DecisionReplay, Difference, RecordedNode
from actors.coordinator.search.attempt_stages import Stage
from actors.coordinator.search.strategy import STRATEGIES
from protocol.values import GiveUpScope

SCOPES: tuple[GiveUpScope, ...] = ("attempt", "node", "task")


def finished_run(
    strategy: str,
    *,
    seed: int = 0,
    in_flight: int = 1,
    crash_at: frozenset[int] = frozenset(),
    more: tuple[int, ...] = (),
    refusals: dict[int, GiveUpScope] | None = None,
) -> InMemoryRun:
    """Return a finished run with crashes, extended by the budgets in `more`."""
    names = {"strategy": strategy, "policy": "epsilon-greedy"}
    runner = InMemoryRun(make_search(seed=seed, in_flight=in_flight, budget=8, **names), **names)
    runner.refusals = refusals or {}
    rng = Random(seed)
    runner.perform(runner.search.begin())
    count = 0
    for extension in (*more, 0):
        while runner.offers:
            if count in crash_at and runner.search.tree is not None:
                runner.crash()
            count += 1
            runner.step(rng.choice(sorted(runner.offers)))
        if extension:
            runner.crash(extension)
    return runner


def rebuilt(runner: InMemoryRun, seed: int = 0) -> list[Difference]:
    search = runner.search
    nodes = [
        RecordedNode(
            number=n,
            parent=p,
            score=s,
            kernel=k,
            confirmation=runner.confirmed.get(n),
            gives_up_on=runner.refusals.get(n, "attempt"),
        )
        for n, p, s, k in runner.nodes
    ]
    return DecisionReplay(
        lambda: make_search(seed=seed, in_flight=search.settings.in_flight, **runner.names),
        100.0,
        list(runner.decisions.values()),
        nodes,
        runner.directives,
    ).run()


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(
    seed=st.integers(0, 20),
    in_flight=st.sampled_from([1, 3]),
    crash_at=st.frozensets(st.integers(0, 60), max_size=4),
    more=st.sampled_from([(), (4,), (1, 6)]),
)
@settings(max_examples=25)
def test_an_unchanged_run_has_no_differences(
    strategy: str, seed: int, in_flight: int, crash_at: frozenset[int], more: tuple[int, ...]
) -> None:
    """Also with crashes, confirmations, larger budgets and several attempts under way."""
    runner = finished_run(strategy, seed=seed, in_flight=in_flight, crash_at=crash_at, more=more)

    assert [] == rebuilt(runner, seed)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(
    seed=st.integers(0, 20),
    in_flight=st.sampled_from([1, 3]),
    crash_at=st.frozensets(st.integers(0, 30), max_size=3),
    refusals=st.dictionaries(st.integers(1, 9), st.sampled_from(SCOPES), max_size=4),
)
@settings(max_examples=25)
def test_a_run_whose_agents_gave_up_has_no_differences(
    strategy: str,
    seed: int,
    in_flight: int,
    crash_at: frozenset[int],
    refusals: dict[int, GiveUpScope],
) -> None:
    """Also where an agent gave up on a node or the task, at any attempt."""
    runner = finished_run(
        strategy, seed=seed, in_flight=in_flight, crash_at=crash_at, more=(3,), refusals=refusals
    )

    assert [] == rebuilt(runner, seed)


def test_a_changed_choice_is_the_only_reported_choice() -> None:
    """For an attempt moved to another node, both nodes are named, and no other attempt is."""
    runner = finished_run("stark", more=(12,))
    made = runner.decisions[4, Stage.PLAN if (4, Stage.PLAN) in runner.decisions else Stage.REPAIR]
    other = 0 if made.parent else 1
    for key, decision in runner.decisions.items():
        if key[0] == 4:
            runner.decisions[key] = replace(decision, parent=other)
    found = rebuilt(runner)

    assert found[0].description == f"grows node {other}, but the search chooses node {made.parent}"
    assert {4} == {difference.number for difference in found if "grows" in difference.description}


@pytest.mark.parametrize("field", ["window", "seed"])
def test_a_changed_window_or_seed_is_the_only_difference(field: str) -> None:
    """An agent's window does not decide about the tree, so no other decision differs."""
    runner = finished_run("stark")
    key = next(key for key in runner.decisions if key[1] is Stage.PLAN and key[0] > 2)
    wrong = {"window": (0, 7), "seed": 1}[field]
    runner.decisions[key] = replace(runner.decisions[key], **{field: wrong})
    (found,) = rebuilt(runner)

    assert (key[0], Stage.PLAN) == (found.number, found.stage)
    assert ("was shown" if field == "window" else "was given seed") in found.description


def test_a_changed_score_is_a_difference() -> None:
    """A score that decided a choice can't be changed unnoticed."""
    runner = finished_run("stark", more=(12,))
    number, parent, _, kernel = min(runner.nodes, key=lambda node: node[2])
    place = [node[0] for node in runner.nodes].index(number)
    runner.nodes[place] = (number, parent, float("inf"), kernel)

    assert rebuilt(runner)
