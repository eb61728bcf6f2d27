"""What the agents' tests share: a context that records, a model with recorded replies, work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from actors.agents.replies.anchors import BEGIN, END
from actors.agents.replies.replies import fenced
from actors.agents.requests.request import Request
from protocol.messages import Lease, MakePlan, Reflect, Repair, Solve, Write
from protocol.values import AttemptView, Call, Device, Outcome, Plan, Reference, Task, Verdict

TASK_SOURCE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Adds and halves."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = x + 1.0
        return y / 2.0


def get_inputs():
    return [torch.randn(8)]


def get_init_inputs():
    return []
'''

CANDIDATE = '''import torch
import torch.nn as nn

source = r"""
extern "C" void half(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i) {
        y[i] = (x[i] + 1.0f) * 0.5f;
    }
}
"""


class ModelNew(nn.Module):
    def forward(self, x):
        return (x + 1.0) * 0.5
'''

# A planner's answer for `TASK_SOURCE`: anchors around the first line of `forward`.
SCAFFOLD = TASK_SOURCE.replace(
    "        y = x", f"        # {BEGIN}\n        # fuse\n        y = x"
).replace("        return y", f"        # {END}\n        return y")
GOOD_PLAN = f"## Advice\n\nFuse both lines.\n\n## Source\n\n{fenced(SCAFFOLD)}\n"

TASK = Task(name="half", source=TASK_SOURCE)
ROOT = AttemptView(
    node=0, source=TASK_SOURCE, verdict=Verdict(verdict=Outcome.CORRECT), score_us=40.0
)
REFERENCE = Reference(
    eager_us=40.0,
    inputs="float32[8]",
    outputs="float32[8]",
    device=Device(name="a CPU, 2 cores", facts={"L2": "2 MiB"}),
)


class Clock:
    """A clock that moves only when something sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeContext:
    """A context that records what an agent reports; `stop` revokes the lease."""

    def __init__(self) -> None:
        self.activities: list[str] = []
        self.steps: list[tuple[str, dict[str, object]]] = []
        self.calls: list[Call] = []
        self.reserved: list[float | None] = []
        self.lost = 0
        self.lost_calls: list[Call | None] = []
        self.stop: Callable[[], bool] = lambda: False
        self.on_answered: Callable[[Call], None] = lambda call: None

    def set_activity(self, text: str) -> None:
        self.activities.append(text)

    def log_step(self, event: str, **fields: object) -> None:
        self.steps.append((event, fields))

    def candidate_running(self) -> None:
        raise AssertionError("agents run no candidate")

    def call_completed(self, call: Call) -> None:
        self.on_answered(call)
        self.calls.append(call)

    def reserve_budget(self, model: str, request: str, usd: float | None) -> bool:
        self.reserved.append(usd)
        return not self.stop()

    def call_lost(self, partial: Call | None = None) -> None:
        self.lost += 1
        self.lost_calls.append(partial)

    def is_revoked(self) -> bool:
        return self.stop()


class RecordedModel:
    """A model that returns the next of its replies, or raises it."""

    name = "recorded"
    at_once = 1

    def __init__(self, *replies: str | Exception, stop: str = "end_turn") -> None:
        self._replies: Sequence[str | Exception] = replies
        self._stop = stop
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Call:
        reply = self._replies[len(self.requests)]
        self.requests.append(request)
        if isinstance(reply, Exception):
            raise reply
        return Call(model=self.name, request=request.render(), reply=reply, stop=self._stop)


def lease(stage: str, attempt: int = 1) -> Lease:
    return Lease(work=f"half/{attempt}/{stage}", epoch=1)


def work_fields(stage: str, attempt: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that all work of an agent has; `fields` replace them."""
    return {
        "lease": lease(stage, attempt),
        "task": TASK,
        "attempt": attempt,
        "node": ROOT,
        "root": ROOT,
        "reference": REFERENCE,
        **fields,
    }


def make_plan(attempt: int = 1, **fields: Any) -> MakePlan:
    return MakePlan(**work_fields("plan", attempt, fields))


def write(plan: Plan, attempt: int = 1, **fields: Any) -> Write:
    return Write(**work_fields("write", attempt, fields), plan=plan)


def solve(attempt: int = 1, **fields: Any) -> Solve:
    return Solve(**work_fields("solve", attempt, fields))


def reflect(*reflections: str, attempt: int = 2, **fields: Any) -> Reflect:
    return Reflect(**work_fields("reflect", attempt, fields), reflections=reflections)


def repair(plan: Plan, attempt: int = 2, **fields: Any) -> Repair:
    failed = AttemptView(
        node=1,
        parent=0,
        source=CANDIDATE,
        verdict=Verdict(
            verdict=Outcome.COMPILE_FAILED,
            stage="build",
            reason="no build",
            log="error: no such thing",
        ),
    )
    return Repair(**work_fields("repair", attempt, {"node": failed, **fields}), plan=plan)
