"""The solver: one agent that does all, for the strategies that have no team.

Works in the coder's process.  `Solve` asks for advice and code, or for a repair, in one answer;
`Reflect` for words on the last attempt first.  Promises the same candidate as the coder; its words
become the node's advice, with no anchors: nobody planned where it may change the source.
"""

from __future__ import annotations

from actors.agents.candidates import read_candidate
from actors.agents.desk import Desk
from actors.agents.problem import Problem
from actors.agents.prompting import reflect_request, solve_request
from actors.agents.replies import Reply
from actors.port import Port
from protocol.messages import Blocked, Reflect, Result, Returned, Solve, Written
from protocol.values import Candidate, Plan

MAX_WORDS = 4_000  # characters: three reflections of this length still fit any model
HEADINGS = ("reflection", "advice", "diagnosis")


class Solver:
    """Answers `Solve` and `Reflect` with `Written`."""

    def __init__(self, desk: Desk, max_tokens: int) -> None:
        self._desk = desk
        self._max_tokens = max_tokens

    def work(self, request: Solve | Reflect, port: Port) -> Result | Blocked | Returned:
        """Ask for words and code, and look them over."""
        ask = (
            solve_request(request, self._max_tokens)
            if isinstance(request, Solve)
            else reflect_request(request, self._max_tokens)
        )
        return self._desk.consult(
            ask,
            port,
            read_solution,
            lambda found: Written(lease=request.lease, candidate=found[0], plan=found[1]),
        )


def read_solution(reply: Reply) -> tuple[Candidate, Plan] | Problem:
    """Return the candidate in `reply` and the words that go with it, which may be missing."""
    words = next((reply.text(name) for name in HEADINGS if reply.text(name)), "")
    plan = Plan(advice=words[:MAX_WORDS], scaffold="")
    candidate = read_candidate(reply, plan)
    return candidate if isinstance(candidate, Problem) else (candidate, plan)
