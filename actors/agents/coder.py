"""The coder: a plan made into a whole candidate; where one agent does all, that agent, too.

Speaks with the coordinator through the actor's loop.  Promises Python text that defines ModelNew,
without anchors, and a record of what changed outside them; or `ReplyUnusable` with the reason.
"""

from __future__ import annotations

from actors.agents.model_client import ModelClient
from actors.agents.replies.candidates import read_candidate
from actors.agents.requests.prompting import write_request
from actors.agents.solo_agent import SoloAgent
from actors.work_context import WorkContext
from protocol.messages import CallsBlocked, HandedBack, Reflect, Result, Solve, Work, Write, Written
from protocol.values import Device, Role


class Coder:
    """Answers `Write`, `Solve` and `Reflect` with `Written`."""

    role = Role.CODER
    device: Device | None = None

    def __init__(self, model_client: ModelClient, max_tokens: int) -> None:
        self.credit = model_client.model.at_once
        self._model_client = model_client
        self._max_tokens = max_tokens
        self._solo_agent = SoloAgent(model_client, max_tokens)

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Ask for the code and look it over."""
        if isinstance(request, Solve | Reflect):
            return self._solo_agent.work(request, context)
        if not isinstance(request, Write):
            raise TypeError(f"a coder was given {type(request).__name__}")
        return self._model_client.ask(
            write_request(request, self._max_tokens),
            context,
            lambda reply: read_candidate(reply, request.plan),
            lambda candidate: Written(lease=request.lease, candidate=candidate),
        )

    def close(self) -> None:
        """Nothing outlives a coder."""
