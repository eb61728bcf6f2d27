"""The planner: one optimisation, and where in the node's source it goes.

Promises a plan whose anchors were checked against the source that was shown, or `ReplyUnusable`
with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.agents.agent_worker import AgentWorker
from actors.agents.replies.anchors import AnchorProblem
from actors.agents.replies.folds import Fold
from actors.agents.replies.placed_anchors import placed_scaffold
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.replies.scaffolds import Scaffold, check_scaffold
from actors.agents.requests.folded import shown_folds
from actors.agents.requests.request import shown_source
from protocol.messages import Lease, MakePlan, Planned
from protocol.values import Plan, Role

MAX_ADVICE = 4_000  # characters


class Planner(AgentWorker[MakePlan, Plan]):
    """Answers `MakePlan` with `Planned`."""

    role = Role.PLANNER
    accepts = (MakePlan,)

    def read(self, reply: Reply, work: MakePlan) -> Plan | ReplyProblem:
        folds = shown_folds(work) if self._reads_edits else ()
        return read_plan(reply, shown_source(work), named=self._reads_edits, folds=folds)

    def result(self, lease: Lease, answer: Plan) -> Planned:
        return Planned(lease=lease, plan=answer)


def read_plan(
    reply: Reply, source: str, *, named: bool = True, folds: Sequence[Fold] = ()
) -> Plan | ReplyProblem:
    """Return the plan in `reply` for `source`, or what is out of bounds.

    `named`: whether its places may be named; otherwise it has a marked copy of the source.
    `folds`: what of the source was not shown.
    """
    advice = reply.text("advice")[:MAX_ADVICE]
    if not advice:
        return ReplyProblem(reason="the reply has no words under '## Advice'")
    if named and any(section.name == "anchors" for section in reply.sections):
        placed = placed_scaffold(reply, source, folds)
        if isinstance(placed, AnchorProblem):
            return ReplyProblem(reason=f"'## Anchors' can't be used: {placed.reason}")
        return Plan(advice=advice, scaffold=placed.text, spans=placed.spans)
    code = reply.code("source", lambda text: isinstance(check_scaffold(text, source), Scaffold))
    if code is None:
        return ReplyProblem(reason="the reply has no code under '## Source'")
    checked = check_scaffold(code, source)
    if isinstance(checked, AnchorProblem):
        return ReplyProblem(reason=f"the anchors in '## Source' can't be used: {checked.reason}")
    return Plan(advice=advice, scaffold=checked.text, spans=checked.spans)
