"""The debugger: a candidate that failed, made to work under the same plan.

Speaks with the coordinator through the actor's loop.  Promises the same as the coder; what it
changed is measured against the anchors of the plan that the node inherited.
"""

from __future__ import annotations

from actors.agents.candidates import read_candidate
from actors.agents.desk import Desk
from actors.agents.prompting import repair_request
from actors.port import Port
from protocol.messages import Blocked, Repair, Repaired, Result, Returned, Work
from protocol.values import Device, Role


class Debugger:
    """Answers `Repair` with `Repaired`."""

    role = Role.DEBUGGER
    device: Device | None = None

    def __init__(self, desk: Desk, max_tokens: int) -> None:
        self.credit = desk.model.at_once
        self._desk = desk
        self._max_tokens = max_tokens

    def work(self, request: Work, port: Port) -> Result | Blocked | Returned:
        """Ask for the repaired code and look it over."""
        if not isinstance(request, Repair):
            raise TypeError(f"a debugger was given {type(request).__name__}")
        return self._desk.consult(
            repair_request(request, self._max_tokens),
            port,
            lambda reply: read_candidate(reply, request.plan),
            lambda candidate: Repaired(lease=request.lease, candidate=candidate),
        )

    def close(self) -> None:
        """Nothing outlives a debugger."""
