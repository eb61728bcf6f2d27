"""The coder: a plan made into a whole candidate; where one agent does all, that agent, too.

Speaks with the coordinator through the actor's loop.  Promises Python text that defines ModelNew,
without anchors, and a record of what changed outside them; or `Unusable` with the reason.
"""

from __future__ import annotations

from actors.agents.candidates import read_candidate
from actors.agents.desk import Desk
from actors.agents.prompting import write_request
from actors.agents.solver import Solver
from actors.port import Port
from protocol.messages import Blocked, Reflect, Result, Returned, Solve, Work, Write, Written
from protocol.values import Device, Role


class Coder:
    """Answers `Write`, `Solve` and `Reflect` with `Written`."""

    role = Role.CODER
    device: Device | None = None

    def __init__(self, desk: Desk, max_tokens: int) -> None:
        self.credit = desk.model.at_once
        self._desk = desk
        self._max_tokens = max_tokens
        self._solver = Solver(desk, max_tokens)

    def work(self, request: Work, port: Port) -> Result | Blocked | Returned:
        """Ask for the code and look it over."""
        if isinstance(request, Solve | Reflect):
            return self._solver.work(request, port)
        if not isinstance(request, Write):
            raise TypeError(f"a coder was given {type(request).__name__}")
        return self._desk.consult(
            write_request(request, self._max_tokens),
            port,
            lambda reply: read_candidate(reply, request.plan),
            lambda candidate: Written(lease=request.lease, candidate=candidate),
        )

    def close(self) -> None:
        """Nothing outlives a coder."""
