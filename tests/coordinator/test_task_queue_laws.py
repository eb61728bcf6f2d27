"""Many tasks on one fleet: the order of their work, and its workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.work_queue import MAX_MIXED_LEASES, TaskQueues, task_of
from protocol.messages import Heartbeat, Hello
from protocol.values import Role


def evaluator(scheduler: Scheduler, name: str, credit: int = 1) -> None:
    hello = Hello(role=Role.EVALUATOR, slot=name, incarnation=name, pid=1, credit=credit)
    scheduler.connect_peer(hello, 0.0)


def offer(scheduler: Scheduler, *works: str, role: Role = Role.EVALUATOR) -> None:
    for work in works:
        scheduler.enqueue(work, role)


def leased(scheduler: Scheduler) -> dict[str, str]:
    """Lease what can be leased; return work -> incarnation."""
    return {grant.work: grant.incarnation for grant in scheduler.grant_leases(0.0)}


def settle_all(scheduler: Scheduler) -> None:
    for granted in list(scheduler.grants.values()):
        scheduler.settle_result(granted.lease, granted.incarnation)


def test_an_evaluator_stays_with_its_task() -> None:
    """Its reference is warm: another task's older work waits until its own task has none."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    evaluator(scheduler, "e")
    offer(scheduler, "a/0/measure", "b/0/measure")
    order = []
    for following in ("a/1/evaluate", "a/2/evaluate", None):
        order += leased(scheduler)
        if following:
            offer(scheduler, following)
        settle_all(scheduler)
    order += leased(scheduler)

    assert ["a/0/measure", "a/1/evaluate", "a/2/evaluate", "b/0/measure"] == order


def test_two_evaluators_take_two_tasks() -> None:
    """While there are enough tasks, each is warmed up by one evaluator only."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    offer(scheduler, "a/1/evaluate", "a/2/evaluate", "b/0/measure", "b/1/evaluate")
    for name in ("e", "f"):
        evaluator(scheduler, name)
    seen: dict[str, set[str]] = {"e": set(), "f": set()}
    for _round in range(2):
        for work, name in leased(scheduler).items():
            seen[name].add(task_of(work))
        settle_all(scheduler)

    assert [{"a"}, {"b"}] == sorted(seen.values(), key=str)


def test_an_idle_evaluator_helps_where_there_is_work() -> None:
    """With one task left, an evaluator that is not warm for it gets work, too."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    offer(scheduler, "a/1/evaluate", "a/2/evaluate")
    evaluator(scheduler, "e")
    evaluator(scheduler, "f")

    assert {"e", "f"} == set(leased(scheduler).values())


def test_an_evaluator_holds_more_leases_of_one_task_than_of_several() -> None:
    """Builds run ahead within a task; of another task only the next piece is leased."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    evaluator(scheduler, "e", credit=5)
    offer(scheduler, *(f"a/{number}/evaluate" for number in range(3)), "b/0/measure", "c/0/measure")

    assert {"a/0/evaluate", "a/1/evaluate", "a/2/evaluate"} == set(leased(scheduler))
    for number in range(2):
        granted = scheduler.grants[f"a/{number}/evaluate"]
        scheduler.settle_result(granted.lease, "e")
    assert ["b/0/measure"] == list(leased(scheduler))
    assert MAX_MIXED_LEASES == len(scheduler.peers["e"].leases)


def test_agents_serve_the_first_task_first() -> None:
    """A run of many tasks finishes one after the other, so that results come early."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    offer(scheduler, "a/0/measure", "b/0/measure")
    offer(scheduler, "b/1/plan", "a/1/plan", "b/2/plan", "a/2/plan", role=Role.PLANNER)
    scheduler.connect_peer(
        Hello(role=Role.PLANNER, slot="p", incarnation="p", pid=1, credit=9), 0.0
    )

    assert ["a/1/plan", "a/2/plan", "b/1/plan", "b/2/plan"] == list(leased(scheduler))


def test_a_peer_that_says_hello_again_keeps_its_task() -> None:
    """A reconnected evaluator is still warm for its task."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    evaluator(scheduler, "e")
    offer(scheduler, "a/0/measure", "b/0/measure")
    leased(scheduler)
    scheduler.settle_result(scheduler.grants["a/0/measure"].lease, "e")
    evaluator(scheduler, "e")
    scheduler.renew_leases("e", Heartbeat(credit=1), 1.0)
    offer(scheduler, "a/1/evaluate")

    assert ["a/1/evaluate"] == list(leased(scheduler))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30),
    st.lists(st.sampled_from("abc"), max_size=30),
)
def test_waiting_work_is_a_list_for_each_task(
    added: list[tuple[str, bool]], queried: list[str]
) -> None:
    """Compared with a simple model, a list a task: no work is lost or order twice."""
    queues, model = TaskQueues({}), {}
    for number, (task, first) in enumerate(added):
        work = f"{task}/{number}/evaluate"
        queues.add(work, first=first)
        model.setdefault(task, [])
        model[task].insert(0 if first else len(model[task]), work)
    for task in queried:
        assert queues.has_work(task) == bool(model.get(task))
        if model.get(task):
            assert model[task].pop(0) == queues.take(task)
        assert sum(map(len, model.values())) == len(queues)
        assert bool(len(queues)) == bool(queues)
        left = [task for task, works in model.items() if works]
        if left:
            assert left[0] == queues.next_task()
            assert next((t for t in left if t != left[0]), left[0]) == queues.next_task({left[0]})
