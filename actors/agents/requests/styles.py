"""The styles of requests: the paper's own, and the compact one of new runs.  Pure."""

from __future__ import annotations

from actors.agents.requests import prompting
from actors.agents.requests.compact import compact_request
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.request import Request
from protocol.messages import AgentWork, MakePlan, Reflect, Repair, Solve, Write
from protocol.settings import PromptStyle


def make_request(
    work: AgentWork,
    max_tokens: int,
    style: PromptStyle,
    knowledge: RequestKnowledge | None = None,
) -> Request:
    """Return the request for one piece of work.

    A reflection is a baseline of the paper's: it has the paper's request in both styles.
    `knowledge` is of the compact requests alone; None: all of it.
    """
    if style == "compact" and not isinstance(work, Reflect):
        return compact_request(work, max_tokens, knowledge or RequestKnowledge())
    match work:
        case MakePlan():
            return prompting.plan_request(work, max_tokens)
        case Write():
            return prompting.write_request(work, max_tokens)
        case Repair():
            return prompting.repair_request(work, max_tokens)
        case Solve():
            return prompting.solve_request(work, max_tokens)
        case Reflect():
            return prompting.reflect_request(work, max_tokens)
