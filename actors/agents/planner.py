"""The planner: one optimisation, and where in the node's source it goes.

Speaks with the coordinator through the actor's loop.  Promises a plan whose anchors were checked
against the source that was shown, or `Unusable` with the reason.
"""

from __future__ import annotations

from actors.agents.anchors import Misplaced
from actors.agents.desk import Desk
from actors.agents.problem import Problem
from actors.agents.prompting import plan_request
from actors.agents.replies import Reply
from actors.agents.request import shown_source
from actors.agents.scaffolds import Scaffold, check
from actors.port import Port
from protocol.messages import Blocked, MakePlan, Planned, Result, Returned, Work
from protocol.values import Device, Plan, Role

MAX_ADVICE = 4_000


class Planner:
    """Answers `MakePlan` with `Planned`."""

    role = Role.PLANNER
    device: Device | None = None

    def __init__(self, desk: Desk, max_tokens: int) -> None:
        self.credit = desk.model.at_once
        self._desk = desk
        self._max_tokens = max_tokens

    def work(self, request: Work, port: Port) -> Result | Blocked | Returned:
        """Ask for a plan and check it."""
        if not isinstance(request, MakePlan):
            raise TypeError(f"a planner was given {type(request).__name__}")
        source = shown_source(request)
        return self._desk.consult(
            plan_request(request, self._max_tokens),
            port,
            lambda reply: read_plan(reply, source),
            lambda plan: Planned(lease=request.lease, plan=plan),
        )

    def close(self) -> None:
        """Nothing outlives a planner."""


def read_plan(reply: Reply, source: str) -> Plan | Problem:
    """Return the plan in `reply` for `source`, or what is out of bounds."""
    advice = reply.text("advice")[:MAX_ADVICE]
    if not advice:
        return Problem(reason="the reply has no words under '## Advice'")
    code = reply.code("source", lambda text: isinstance(check(text, source), Scaffold))
    if code is None:
        return Problem(reason="the reply has no code under '## Source'")
    checked = check(code, source)
    if isinstance(checked, Misplaced):
        return Problem(reason=f"the anchors in '## Source' can't be used: {checked.reason}")
    return Plan(advice=advice, scaffold=checked.text, spans=checked.spans)
