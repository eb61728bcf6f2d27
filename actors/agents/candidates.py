"""Candidates: the coder's and the debugger's code, taken out of a reply and looked over.

Pure.  What passes is Python text that defines ModelNew and has no anchors; whether it builds and
is right is the evaluator's to say.
"""

from __future__ import annotations

from actors.agents import python_source
from actors.agents.anchors import without_anchors
from actors.agents.outside import outside
from actors.agents.problem import Problem
from actors.agents.replies import Reply
from protocol.values import Candidate, Plan

MAX_BYTES = 256 * 1024  # ten times what any kernel has needed; the wire and the tree bear it


def read_candidate(reply: Reply, plan: Plan) -> Candidate | Problem:
    """Return the candidate in `reply`, or what is missing."""
    code = reply.code("candidate", lambda text: not fault_of(without_anchors(text)))
    if code is None:
        return Problem(reason="the reply has no code under '## Candidate'")
    source = without_anchors(code)
    fault = fault_of(source)
    if fault:
        return Problem(reason=fault)
    return Candidate(source=source, outside=outside(plan, source))


def fault_of(source: str) -> str:
    """Return why `source` can't be a candidate, in one line; "" when it can."""
    if len(source.encode(errors="replace")) > MAX_BYTES:
        return f"the code is longer than {MAX_BYTES // 1024} KiB"
    module = python_source.parse(source)
    if isinstance(module, str):
        return f"the code is no Python: {module}"
    if not python_source.defines_class(module, "ModelNew"):
        return "the code defines no class ModelNew"
    return ""
