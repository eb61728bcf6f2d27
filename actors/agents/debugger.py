"""The debugger: a candidate that failed, made to work under the same plan.

Promises the same as the coder.  Its changes are compared with the anchors of the plan that the
node inherited.
"""

from __future__ import annotations

from actors.agents.agent_worker import AgentWorker
from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.requests.folded import editable_folds
from actors.agents.requests.request import editable_source
from protocol.messages import Lease, Repair, Repaired
from protocol.values import Candidate, Role


class Debugger(AgentWorker[Repair, Candidate]):
    """Answers `Repair` with `Repaired`."""

    role = Role.DEBUGGER
    accepts = (Repair,)

    def read(self, reply: Reply, work: Repair) -> Candidate | ReplyProblem:
        folds = editable_folds(work)
        shown = ShownLines(editable_source(work), (), folds) if self._reads_edits else None
        return read_candidate(reply, work.plan, shown)

    def result(self, lease: Lease, answer: Candidate) -> Repaired:
        return Repaired(lease=lease, candidate=answer)
