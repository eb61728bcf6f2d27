"""The styles of requests: the paper's own, and the compact one of new runs.  Pure."""

from __future__ import annotations

from msgspec.structs import replace

from actors.agents.requests import prompting
from actors.agents.requests.amendment import amending_request
from actors.agents.requests.compact import compact_request
from actors.agents.requests.folded import editable_folds
from actors.agents.requests.knowledge import RequestKnowledge, known_verdict
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
    `knowledge` is of the compact requests alone; None: all of it.  Work on a candidate that failed
    goes on with the conversation that it came from.
    """
    knowledge = knowledge or RequestKnowledge()
    request = _opening_request(work, max_tokens, style, knowledge)
    failed = work.failed
    if failed is None:
        return request
    told = replace(failed, verdict=known_verdict(failed.verdict, knowledge))
    return amending_request(request, told, editable_folds(work) if style == "compact" else ())


def _opening_request(
    work: AgentWork, max_tokens: int, style: PromptStyle, knowledge: RequestKnowledge
) -> Request:
    if style == "compact" and not isinstance(work, Reflect):
        return compact_request(work, max_tokens, knowledge)
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
