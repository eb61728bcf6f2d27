"""The coder: a plan made into a whole candidate.

Its process also holds the solo agent, which answers the work of strategies without a team.
Promises Python text that defines ModelNew, without anchors, and a record of what changed outside
of the plan's anchors; or `ReplyUnusable` with the reason.
"""

from __future__ import annotations

from actors.agents.agent_worker import AgentWorker
from actors.agents.model_client import ModelClient
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.placed_anchors import marked_spans
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.requests.folded import editable_folds
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.request import editable_source
from actors.agents.solo_agent import SoloAgent
from actors.work_context import WorkContext
from protocol.messages import (
    CallsBlocked,
    HandedBack,
    Lease,
    Reflect,
    Result,
    Solve,
    Work,
    Write,
    Written,
)
from protocol.settings import PromptStyle
from protocol.values import Candidate, Role


class Coder(AgentWorker[Write, Candidate]):
    """Answers `Write` with `Written`, and hands `Solve` and `Reflect` to the solo agent."""

    role = Role.CODER
    accepts = (Write,)

    def __init__(
        self,
        model_client: ModelClient,
        max_tokens: int,
        style: PromptStyle = "paper",
        knowledge: RequestKnowledge | None = None,
    ) -> None:
        super().__init__(model_client, max_tokens, style, knowledge)
        self._solo_agent = SoloAgent(model_client, max_tokens, style, knowledge)

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Ask the model and check its reply."""
        if isinstance(request, Solve | Reflect):
            return self._solo_agent.work(request, context)
        return super().work(request, context)

    def read(self, reply: Reply, work: Write) -> Candidate | ReplyProblem:
        source = editable_source(work)
        spans = marked_spans(work.plan, source) if work.failed is None else ()
        shown = ShownLines(source, spans, editable_folds(work))
        return read_candidate(reply, work.plan, shown if self._reads_edits else None)

    def result(self, lease: Lease, answer: Candidate) -> Written:
        return Written(lease=lease, candidate=answer)
