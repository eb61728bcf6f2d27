"""Laws of the device's queue: work of the loaded task first, and no caller waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.device_queue import MAX_PASSED, DeviceQueue, Waiter, next_place
from actors.evaluator.sandbox.child_client import EvaluationCancelledError


def turns_of(waiting: list[Waiter], loaded: str, arrivals: list[str]) -> list[Waiter]:
    """Return the waiters in the order of their turns; one caller arrives after each turn."""
    turns = []
    waiting, arriving = list(waiting), iter(arrivals)
    while waiting:
        place = next_place(waiting, loaded)
        for earlier in waiting[:place]:
            earlier.passed += 1
        turns.append(waiting.pop(place))
        loaded = turns[-1].task or loaded
        waiting += [Waiter(task, 0) for task in [next(arriving, None)] if task is not None]
    return turns


@given(st.lists(st.sampled_from("ab"), max_size=MAX_PASSED), st.sampled_from(["", "a", "b"]))
def test_the_leases_of_two_tasks_load_each_reference_once(tasks: list[str], loaded: str) -> None:
    """Whatever their order: at most one load of each, none of the task that is loaded."""
    turns = [one.task for one in turns_of([Waiter(task, 0) for task in tasks], loaded, [])]
    loads = sum(now != before for before, now in zip([loaded, *turns], turns, strict=False))
    assert sorted(turns) == sorted(tasks)
    assert loads == len({*tasks} - {loaded})


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=MAX_PASSED),
    st.lists(st.sampled_from("abc"), max_size=60),
)
def test_a_caller_of_another_task_is_passed_a_bounded_number_of_times(
    tasks: list[str], arrivals: list[str]
) -> None:
    """However many candidates of the loaded task arrive, each caller has its turn."""
    turns = turns_of([Waiter(task, 0) for task in tasks], "a", arrivals)
    assert len(turns) == len(tasks) + len(arrivals)
    assert all(one.passed <= MAX_PASSED for one in turns)


def test_callers_of_one_task_go_by_the_order_of_their_calls() -> None:
    """A caller that is cancelled leaves the queue; the next caller in order has the device."""
    queue, order = DeviceQueue(), list[str]()
    cancelled = threading.Event()

    def raise_if_cancelled() -> None:
        if cancelled.is_set():
            raise EvaluationCancelledError

    def take_turn(name: str, while_waiting: Callable[[], None]) -> None:
        try:
            with queue.turn("task", while_waiting):
                order.append(name)
        except EvaluationCancelledError:
            order.append(f"{name} cancelled")

    threads = []
    with queue.turn("task", lambda: None):
        for number, name in enumerate(("first", "second", "third"), start=1):
            while_waiting = raise_if_cancelled if name == "second" else lambda: None
            threads.append(threading.Thread(target=take_turn, args=(name, while_waiting)))
            threads[-1].start()
            while queue.waiting < number:
                time.sleep(0.01)
        cancelled.set()
        threads[1].join()
    for thread in threads:
        thread.join()
    assert ["second cancelled", "first", "third"] == order


def test_the_turns_inside_of_a_turn_are_part_of_it() -> None:
    """A race and the judging in full have the device once: no other candidate comes between."""
    queue, order = DeviceQueue(), list[str]()

    def other() -> None:
        with queue.turn("loaded", lambda: None):
            order.append("other")

    thread = threading.Thread(target=other)
    with queue.turn("loaded", lambda: None):
        thread.start()
        while not queue.waiting:
            time.sleep(0.01)
        for number in range(3):
            with queue.turn("loaded", lambda: None):
                order.append(f"trial {number}")
    thread.join()
    assert ["trial 0", "trial 1", "trial 2", "other"] == order
