"""Many tasks on one fleet: whose work is leased next, and to whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.coordinator.fleet import Fleet
from actors.coordinator.offers import MIXED
from actors.coordinator.waiting import Waiting, task_of
from protocol.messages import Beat, Hello
from protocol.values import Role


def evaluator(fleet: Fleet, name: str, credit: int = 1) -> None:
    hello = Hello(role=Role.EVALUATOR, slot=name, incarnation=name, pid=1, credit=credit)
    fleet.hello(hello, 0.0)


def offer(fleet: Fleet, *works: str, role: Role = Role.EVALUATOR) -> None:
    for work in works:
        fleet.offer(work, role)


def leased(fleet: Fleet) -> dict[str, str]:
    """Lease what can be leased; return work -> who got it."""
    return {grant.work: grant.incarnation for grant in fleet.grant(0.0)}


def settle_all(fleet: Fleet) -> None:
    for grant in list(fleet.grants.values()):
        fleet.settle(grant.lease, grant.incarnation)


def test_an_evaluator_stays_with_its_task() -> None:
    """Its reference is warm: a later task's older offer waits until nothing of its own does."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    evaluator(fleet, "e")
    offer(fleet, "a/0/measure", "b/0/measure")
    taken = []
    for following in ("a/1/evaluate", "a/2/evaluate", None):
        taken += leased(fleet)
        if following:
            offer(fleet, following)
        settle_all(fleet)
    taken += leased(fleet)

    assert ["a/0/measure", "a/1/evaluate", "a/2/evaluate", "b/0/measure"] == taken


def test_two_evaluators_take_two_tasks() -> None:
    """A task is warmed up once, not by every evaluator, as long as there are tasks enough."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    offer(fleet, "a/1/evaluate", "a/2/evaluate", "b/0/measure", "b/1/evaluate")
    for name in ("e", "f"):
        evaluator(fleet, name)
    seen: dict[str, set[str]] = {"e": set(), "f": set()}
    for _round in range(2):
        for work, name in leased(fleet).items():
            seen[name].add(task_of(work))
        settle_all(fleet)

    assert [{"a"}, {"b"}] == sorted(seen.values(), key=str)


def test_an_idle_evaluator_helps_where_there_is_work() -> None:
    """With one task left nobody stands by, though another is warm for it."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    offer(fleet, "a/1/evaluate", "a/2/evaluate")
    evaluator(fleet, "e")
    evaluator(fleet, "f")

    assert {"e", "f"} == set(leased(fleet).values())


def test_a_card_holds_much_of_one_task_and_little_of_several() -> None:
    """Builds run ahead within a task; of another one only the next piece is taken in."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    evaluator(fleet, "e", credit=5)
    offer(fleet, *(f"a/{number}/evaluate" for number in range(3)), "b/0/measure", "c/0/measure")

    assert {"a/0/evaluate", "a/1/evaluate", "a/2/evaluate"} == set(leased(fleet))
    for number in range(2):
        grant = fleet.grants[f"a/{number}/evaluate"]
        fleet.settle(grant.lease, "e")
    assert ["b/0/measure"] == list(leased(fleet))
    assert MIXED == len(fleet.peers["e"].leases)


def test_agents_serve_the_first_task_first() -> None:
    """A run of many tasks finishes one after the other: early results, little half done."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    offer(fleet, "a/0/measure", "b/0/measure")
    offer(fleet, "b/1/plan", "a/1/plan", "b/2/plan", "a/2/plan", role=Role.PLANNER)
    fleet.hello(Hello(role=Role.PLANNER, slot="p", incarnation="p", pid=1, credit=9), 0.0)

    assert ["a/1/plan", "a/2/plan", "b/1/plan", "b/2/plan"] == list(leased(fleet))


def test_a_peer_that_says_hello_again_keeps_its_task() -> None:
    """A reconnected evaluator has not gone cold."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    evaluator(fleet, "e")
    offer(fleet, "a/0/measure", "b/0/measure")
    leased(fleet)
    fleet.settle(fleet.grants["a/0/measure"].lease, "e")
    evaluator(fleet, "e")
    fleet.beat("e", Beat(credit=1), 1.0)
    offer(fleet, "a/1/evaluate")

    assert ["a/1/evaluate"] == list(leased(fleet))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30),
    st.lists(st.sampled_from("abc"), max_size=30),
)
def test_waiting_work_is_a_list_for_each_task(
    added: list[tuple[str, bool]], asked: list[str]
) -> None:
    """Against the obvious model: a list a task; nothing lost, nothing twice."""
    waiting, model = Waiting({}), {}
    for number, (task, first) in enumerate(added):
        work = f"{task}/{number}/evaluate"
        waiting.add(work, first=first)
        model.setdefault(task, [])
        model[task].insert(0 if first else len(model[task]), work)
    for task in asked:
        assert waiting.has(task) == bool(model.get(task))
        if model.get(task):
            assert model[task].pop(0) == waiting.take(task)
        assert sum(map(len, model.values())) == len(waiting)
        assert bool(len(waiting)) == bool(waiting)
        left = [task for task, works in model.items() if works]
        if left:
            assert left[0] == waiting.next_task()
            assert next((t for t in left if t != left[0]), left[0]) == waiting.next_task({left[0]})
