"""The debugger: a candidate that failed, made to work under the same plan.

Promises the same as the coder.  Its changes are compared with the anchors of the plan that the
node inherited.
"""

from __future__ import annotations

from actors.agents.agent_worker import AgentWorker
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.requests.prompting import repair_request
from actors.agents.requests.request import Request
from protocol.messages import Lease, Repair, Repaired
from protocol.values import Candidate, Role


class Debugger(AgentWorker[Repair, Candidate]):
    """Answers `Repair` with `Repaired`."""

    role = Role.DEBUGGER
    accepts = (Repair,)

    def make_request(self, work: Repair, max_tokens: int) -> Request:
        return repair_request(work, max_tokens)

    def read(self, reply: Reply, work: Repair) -> Candidate | ReplyProblem:
        return read_candidate(reply, work.plan)

    def result(self, lease: Lease, answer: Candidate) -> Repaired:
        return Repaired(lease=lease, candidate=answer)
