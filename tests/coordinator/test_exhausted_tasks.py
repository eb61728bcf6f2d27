"""Nodes and tasks that an agent gave up on are not tried again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_runner import InMemoryRun, make_search

from actors.coordinator.gateway.authorization import with_limited_refusal
from actors.coordinator.scheduling.workers import PeerIdentity
from actors.coordinator.search.strategy import STRATEGIES
from protocol.messages import Lease, ReplyUnusable
from protocol.settings import Settings
from protocol.values import GiveUpScope, Role


def run(
    refusals: dict[int, GiveUpScope],
    *,
    strategy: str = "stark",
    policy: str = "epsilon-greedy",
    in_flight: int = 1,
    seed: int = 0,
    crash_at: frozenset[int] = frozenset(),
) -> InMemoryRun:
    names = {"strategy": strategy, "policy": policy}
    runner = InMemoryRun(make_search(in_flight=in_flight, seed=seed, **names), **names)
    runner.refusals = refusals
    runner.perform(runner.search.begin())
    rng = Random(seed)
    step = 0
    while runner.offers:
        if step in crash_at and step > 0:
            runner.crash()
        runner.step(rng.choice(sorted(runner.offers)))
        step += 1
    return runner


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_task_that_is_given_up_takes_one_attempt(strategy: str) -> None:
    """The rest of the budget is not spent on the same refusal."""
    runner = run({1: "task"}, strategy=strategy)

    assert [1] == [number for number, *_ in runner.nodes]
    assert runner.search.finished


def test_the_best_node_is_confirmed_when_a_task_is_given_up() -> None:
    """It is confirmed as it is at the end of the budget."""
    runner = run({9: "task"})

    assert 9 == len(runner.nodes)
    assert runner.confirmed
    assert runner.search.finished


@pytest.mark.parametrize("policy", ["epsilon-greedy", "greedy", "mcts", "evolutionary"])
@given(
    refusals=st.dictionaries(st.integers(1, 12), st.just("node"), max_size=6),
    seed=st.integers(0, 50),
    in_flight=st.sampled_from([1, 3]),
)
@settings(max_examples=40)
def test_a_node_that_is_given_up_does_not_grow(
    policy: str, refusals: dict[int, GiveUpScope], seed: int, in_flight: int
) -> None:
    """Neither the node nor its empty child is selected again, and the search always ends."""
    runner = run(refusals, policy=policy, seed=seed, in_flight=in_flight)
    order = [number for number, *_ in runner.nodes]
    decided = {d.number: d.recorded for d in reversed(runner.decisions.values())}
    parents = {number: parent for number, parent, *_ in runner.nodes}
    for refused in set(order) & set(refusals):
        later = [
            n for n in order if n not in runner.confirmed and decided[n] > order.index(refused)
        ]
        assert not {parents[n] for n in later} & {refused, parents[refused]}
    assert runner.search.finished


@given(
    st.frozensets(st.integers(1, 40), max_size=8),
    st.dictionaries(st.integers(1, 12), st.sampled_from(["node", "task"]), max_size=4),
    st.integers(0, 5),
)
@settings(max_examples=80)
def test_a_restored_search_knows_what_was_given_up(
    crash_at: frozenset[int], refusals: dict[int, GiveUpScope], seed: int
) -> None:
    """A restarted coordinator grows the tree of one that was never killed."""
    undisturbed, crashed = run(refusals, seed=seed), run(refusals, seed=seed, crash_at=crash_at)

    assert undisturbed.nodes == crashed.nodes
    assert undisturbed.shown == crashed.shown
    assert undisturbed.search.finished
    assert crashed.search.finished


@pytest.mark.parametrize(
    ("model", "ticket", "coders", "scope"),
    [
        ("recipes", "", 1, "task"),
        ("replay:runs/x", "", 1, "task"),
        ("claude-sonnet-4-6", "", 1, "attempt"),
        ("recipes", "5c2e1a", 1, "attempt"),
        ("recipes", "5c2e1a", 0, "task"),
    ],
)
def test_only_a_computed_models_refusal_on_this_machine_is_final(
    model: str, ticket: str, coders: int, scope: GiveUpScope
) -> None:
    """A language model is asked again.

    After a guest's refusal a local agent is asked, if the run has one.
    """
    lease = Lease(work="t/1/write", epoch=1)
    refusal = ReplyUnusable(lease=lease, reason="never", gives_up_on="task")
    limited = with_limited_refusal(
        refusal, PeerIdentity(ticket=ticket), Settings(model=model, coders=coders), Role.CODER
    )
    assert isinstance(limited, ReplyUnusable)
    assert (scope, "never") == (limited.gives_up_on, limited.reason)
