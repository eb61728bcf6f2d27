"""What an agent gives up on is not tried again; the run ends early and says why."""

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
    """The same refusal is not bought again with the rest of the budget."""
    runner = run({1: "task"}, strategy=strategy)

    assert [1] == [number for number, *_ in runner.nodes]
    assert runner.search.finished


def test_what_was_found_before_a_task_is_given_up_is_judged_again() -> None:
    """The winner so far gets its second look, as it does when the budget is gone."""
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
@settings(max_examples=40, deadline=None)
def test_a_node_that_is_given_up_grows_no_more(
    policy: str, refusals: dict[int, GiveUpScope], seed: int, in_flight: int
) -> None:
    """Neither it nor the empty child is chosen again, and the search always comes to an end."""
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
@settings(max_examples=80, deadline=None)
def test_crashes_forget_nothing_that_was_given_up(
    crash_at: frozenset[int], refusals: dict[int, GiveUpScope], seed: int
) -> None:
    """A coordinator that begins again grows the tree of one that was never killed."""
    calm, stormy = run(refusals, seed=seed), run(refusals, seed=seed, crash_at=crash_at)

    assert calm.nodes == stormy.nodes
    assert calm.shown == stormy.shown
    assert calm.search.finished
    assert stormy.search.finished


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
def test_not_everybody_has_the_last_word(
    model: str, ticket: str, coders: int, scope: GiveUpScope
) -> None:
    """A language model that says "never" is asked again; so is another agent where a guest said
    it, as long as there is one of ours."""
    said = ReplyUnusable(lease=Lease(work="t/1/write", epoch=1), reason="never", gives_up_on="task")
    heard = with_limited_refusal(
        said, PeerIdentity(ticket=ticket), Settings(model=model, coders=coders), Role.CODER
    )
    assert isinstance(heard, ReplyUnusable)
    assert (scope, "never") == (heard.gives_up_on, heard.reason)
