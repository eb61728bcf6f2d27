"""The facts of one task: what its referee found out, beside the device's rates.

The facts of the last task are kept, because they are the same for all of its candidates.
"""

from __future__ import annotations

from actors.evaluator.devices.device_info import DeviceInfo
from actors.evaluator.facts.judge_rules import rule_lines
from actors.evaluator.facts.task_floor import rates_that_allow, task_floor
from actors.evaluator.ipc.layout_checks import Layout, tensor_leaves
from actors.evaluator.ipc.referee_orders import TaskDescribed
from actors.evaluator.reference.fixture import ReferenceFixture
from protocol.facts import ReferenceFacts, TaskCost
from protocol.settings import JudgeRules
from protocol.values import Task


class TaskFacts:
    """Makes the facts of tasks for one device."""

    def __init__(self, device_info: DeviceInfo, rules: JudgeRules) -> None:
        self._device_info = device_info
        self._rules = rules
        self._task: Task | None = None
        self._facts: ReferenceFacts | None = None

    def facts_of(self, fixture: ReferenceFixture, eager_us: float) -> ReferenceFacts | None:
        """Return the facts of a fixture's task; None where its referee can't find them out.

        `eager_us`: the time of the task's own module, which no floor of its own work is above.
        A referee that fails here is not asked again: the error of the first time is the machine's,
        and the next turn begins with everything fresh.
        """
        if self._task != fixture.task:
            self._task, self._facts = fixture.task, None
            described = fixture.referee.describe_task()
            if described is not None:
                self._facts = self._make(fixture, described, eager_us)
        return self._facts

    def _make(
        self, fixture: ReferenceFixture, described: TaskDescribed, eager_us: float
    ) -> ReferenceFacts:
        parts = fixture.facts
        cost = TaskCost(
            input_bytes=_bytes_of(parts.inputs),
            state_bytes=_bytes_of(parts.state),
            output_bytes=_bytes_of(parts.outputs),
            flops=described.flops or {},
            uncounted=described.uncounted,
        )
        rates = rates_that_allow(eager_us, cost, self._device_info.rates)
        return ReferenceFacts(
            rates=rates,
            cost=cost,
            floor=task_floor(cost, rates),
            operations=described.operations,
            more_operations=described.more_operations,
            device_us=described.device_us,
            launches=described.launches,
            rule_lines=rule_lines(
                described,
                self._device_info.device.kind,
                fixture.input_kinds,
                fixture.task.checks,
                self._rules,
                parts.updated.keys,
                parts.carried.keys if parts.carried is not None else (),
            ),
        )


def _bytes_of(layout: Layout) -> int:
    return sum(leaf.nbytes for leaf in tensor_leaves(layout))
