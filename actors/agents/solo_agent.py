"""The solver: one agent that does all, for the strategies that have no team.

Works in the coder's process.  `Solve` asks for advice and code, or for a repair, in one answer;
`Reflect` for words on the last attempt first.  Promises the same candidate as the coder; its words
become the node's advice, with no anchors: nobody planned where it may change the source.
"""

from __future__ import annotations

from actors.agents.model_client import ModelClient
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.replies import Reply
from actors.agents.replies.reply_problem import ReplyProblem
from actors.agents.requests.prompting import reflect_request, solve_request
from actors.work_context import WorkContext
from protocol.messages import CallsBlocked, HandedBack, Reflect, Result, Solve, Written
from protocol.values import Candidate, Plan

MAX_TEXT_CHARS = 4_000  # characters: three reflections of this length still fit any model
HEADINGS = ("reflection", "advice", "diagnosis")


class SoloAgent:
    """Answers `Solve` and `Reflect` with `Written`."""

    def __init__(self, model_client: ModelClient, max_tokens: int) -> None:
        self._model_client = model_client
        self._max_tokens = max_tokens

    def work(
        self, request: Solve | Reflect, context: WorkContext
    ) -> Result | CallsBlocked | HandedBack:
        """Ask for words and code, and look them over."""
        ask = (
            solve_request(request, self._max_tokens)
            if isinstance(request, Solve)
            else reflect_request(request, self._max_tokens)
        )
        return self._model_client.ask(
            ask,
            context,
            read_solution,
            lambda found: Written(lease=request.lease, candidate=found[0], plan=found[1]),
        )


def read_solution(reply: Reply) -> tuple[Candidate, Plan] | ReplyProblem:
    """Return the candidate in `reply` and the words that go with it, which may be missing."""
    words = next((reply.text(name) for name in HEADINGS if reply.text(name)), "")
    plan = Plan(advice=words[:MAX_TEXT_CHARS], scaffold="")
    candidate = read_candidate(reply, plan)
    return candidate if isinstance(candidate, ReplyProblem) else (candidate, plan)
