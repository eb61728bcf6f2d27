"""Candidates: the coder's and the debugger's code, taken out of a reply and checked as text.

Pure.  A candidate that passes is Python text that defines ModelNew and has no anchors.  Whether it
builds and is right, the evaluator finds out.
"""

from __future__ import annotations

from actors.agents.replies import python_source
from actors.agents.replies.anchors import without_anchors
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.replies.unanchored_edits import edits_outside_anchors
from protocol.values import Candidate, Plan

MAX_BYTES = 256 * 1024  # ten times the largest kernel seen; messages and run.db can hold it


def read_candidate(reply: Reply, plan: Plan) -> Candidate | ReplyProblem:
    """Return the candidate in `reply`, or what is missing."""
    code = reply.code("candidate", lambda text: not candidate_problem(without_anchors(text)))
    if code is None:
        return ReplyProblem(reason="the reply has no code under '## Candidate'")
    source = without_anchors(code)
    problem = candidate_problem(source)
    if problem:
        return ReplyProblem(reason=problem)
    return Candidate(source=source, outside=edits_outside_anchors(plan, source))


def candidate_problem(source: str) -> str:
    """Return why `source` can't be a candidate, in one line; "" when it can."""
    if len(source.encode(errors="replace")) > MAX_BYTES:
        return f"the code is longer than {MAX_BYTES // 1024} KiB"
    module = python_source.parse(source)
    if isinstance(module, str):
        return f"the code is no Python: {module}"
    if not python_source.defines_class(module, "ModelNew"):
        return "the code defines no class ModelNew"
    return ""
