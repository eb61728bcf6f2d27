"""The planner: one optimisation, and where in the node's source it goes.

Speaks with the coordinator through the actor's loop.  Promises a plan whose anchors were checked
against the source that was shown, or `ReplyUnusable` with the reason.
"""

from __future__ import annotations

from actors.agents.model_client import ModelClient
from actors.agents.replies.anchors import AnchorProblem
from actors.agents.replies.replies import Reply
from actors.agents.replies.reply_problem import ReplyProblem
from actors.agents.replies.scaffolds import Scaffold, check_scaffold
from actors.agents.requests.prompting import plan_request
from actors.agents.requests.request import shown_source
from actors.work_context import WorkContext
from protocol.messages import CallsBlocked, HandedBack, MakePlan, Planned, Result, Work
from protocol.values import Device, Plan, Role

MAX_ADVICE = 4_000


class Planner:
    """Answers `MakePlan` with `Planned`."""

    role = Role.PLANNER
    device: Device | None = None

    def __init__(self, model_client: ModelClient, max_tokens: int) -> None:
        self.credit = model_client.model.at_once
        self._model_client = model_client
        self._max_tokens = max_tokens

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Ask for a plan and check it."""
        if not isinstance(request, MakePlan):
            raise TypeError(f"a planner was given {type(request).__name__}")
        source = shown_source(request)
        return self._model_client.ask(
            plan_request(request, self._max_tokens),
            context,
            lambda reply: read_plan(reply, source),
            lambda plan: Planned(lease=request.lease, plan=plan),
        )

    def close(self) -> None:
        """Nothing outlives a planner."""


def read_plan(reply: Reply, source: str) -> Plan | ReplyProblem:
    """Return the plan in `reply` for `source`, or what is out of bounds."""
    advice = reply.text("advice")[:MAX_ADVICE]
    if not advice:
        return ReplyProblem(reason="the reply has no words under '## Advice'")
    code = reply.code("source", lambda text: isinstance(check_scaffold(text, source), Scaffold))
    if code is None:
        return ReplyProblem(reason="the reply has no code under '## Source'")
    checked = check_scaffold(code, source)
    if isinstance(checked, AnchorProblem):
        return ReplyProblem(reason=f"the anchors in '## Source' can't be used: {checked.reason}")
    return Plan(advice=advice, scaffold=checked.text, spans=checked.spans)
