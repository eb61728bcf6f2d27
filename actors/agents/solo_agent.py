"""The solo agent: one agent that does all, for the strategies without a team.

Works in the coder's process.  `Solve` asks for advice and code, or for a repair, in one answer;
`Reflect` asks for a reflection on the last attempt first.  Promises the same candidate as the
coder.  The text beside the code becomes the node's advice; it has no anchors, because no planner
chose a place in the source.
"""

from __future__ import annotations

from actors.agents.agent_worker import AgentWorker
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.requests.folded import editable_folds
from actors.agents.requests.request import editable_source
from protocol.messages import Lease, Reflect, Solve, Written
from protocol.values import Candidate, Plan, Role

MAX_TEXT_CHARS = 4_000  # three reflections of this length still fit any model
HEADINGS = ("reflection", "advice", "diagnosis")


class SoloAgent(AgentWorker[Solve | Reflect, tuple[Candidate, Plan]]):
    """Answers `Solve` and `Reflect` with `Written`."""

    role = Role.CODER
    accepts = (Solve, Reflect)

    def read(self, reply: Reply, work: Solve | Reflect) -> tuple[Candidate, Plan] | ReplyProblem:
        folds = editable_folds(work)
        shown = ShownLines(editable_source(work), (), folds) if self._reads_edits else None
        return read_solution(reply, shown)

    def result(self, lease: Lease, answer: tuple[Candidate, Plan]) -> Written:
        candidate, plan = answer
        return Written(lease=lease, candidate=candidate, plan=plan)


def read_solution(
    reply: Reply, shown: ShownLines | None = None
) -> tuple[Candidate, Plan] | ReplyProblem:
    """Return the candidate in `reply` and the text that goes with it, which may be missing.

    `shown`: the source that its edits belong to.
    """
    text = next((reply.text(name) for name in HEADINGS if reply.text(name)), "")
    plan = Plan(advice=text[:MAX_TEXT_CHARS], scaffold="")
    candidate = read_candidate(reply, plan, shown)
    return candidate if isinstance(candidate, ReplyProblem) else (candidate, plan)
