"""Work that waits for a free peer: by role and by task.  Pure.

Tasks go in the order in which they were first heard of, so that a run of many finishes one after
the other; what an evaluator took last goes before that: a task's reference is warm there, and
to warm up another takes seconds and, for some, gigabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container


def task_of(work: str) -> str:
    """Return the task of a work id, TASK/ATTEMPT/STAGE."""
    return work.rsplit("/", 2)[0]


class TaskQueues:
    """The queues of one role."""

    def __init__(self, order: dict[str, int]) -> None:
        self._order = order  # task -> its place; shared by the roles
        self._queues: dict[str, deque[str]] = {}  # only of tasks that have work here

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, work: str, *, first: bool) -> None:
        """Queue work behind its task's other work, or before it."""
        task = task_of(work)
        self._order.setdefault(task, len(self._order))
        queue = self._queues.setdefault(task, deque())
        queue.appendleft(work) if first else queue.append(work)

    def has_work(self, task: str, fits: Callable[[str], bool] | None = None) -> bool:
        """Whether work of this task waits, and the first piece of it `fits`."""
        queue = self._queues.get(task)
        return queue is not None and (fits is None or fits(queue[0]))

    def next_task(
        self, taken: Container[str] = (), fits: Callable[[str], bool] | None = None
    ) -> str | None:
        """Return the task whose turn it is: the first that nobody has `taken`, else the first.

        Only of those whose first piece of work `fits`; None where there is none.
        """
        tasks = sorted(self._queues, key=self._order.__getitem__)
        if fits is not None:
            tasks = [task for task in tasks if fits(self._queues[task][0])]
        return next((task for task in tasks if task not in taken), tasks[0] if tasks else None)

    def take(self, task: str) -> str:
        """Take the first piece of a task's work."""
        queue = self._queues[task]
        work = queue.popleft()
        if not queue:
            del self._queues[task]
        return work
