"""The debugger: a candidate that failed, made to work under the same plan.

Speaks with the coordinator through the actor's loop.  Promises the same as the coder; what it
changed is measured against the anchors of the plan that the node inherited.
"""

from __future__ import annotations

from actors.agents.model_client import ModelClient
from actors.agents.replies.candidates import read_candidate
from actors.agents.requests.prompting import repair_request
from actors.work_context import WorkContext
from protocol.messages import CallsBlocked, HandedBack, Repair, Repaired, Result, Work
from protocol.values import Device, Role


class Debugger:
    """Answers `Repair` with `Repaired`."""

    role = Role.DEBUGGER
    device: Device | None = None

    def __init__(self, model_client: ModelClient, max_tokens: int) -> None:
        self.credit = model_client.model.at_once
        self._model_client = model_client
        self._max_tokens = max_tokens

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Ask for the repaired code and look it over."""
        if not isinstance(request, Repair):
            raise TypeError(f"a debugger was given {type(request).__name__}")
        return self._model_client.ask(
            repair_request(request, self._max_tokens),
            context,
            lambda reply: read_candidate(reply, request.plan),
            lambda candidate: Repaired(lease=request.lease, candidate=candidate),
        )

    def close(self) -> None:
        """Nothing outlives a debugger."""
