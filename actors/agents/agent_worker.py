"""The body that planner, coder, debugger and solo agent share: one lease in, one result out.

The actor's loop calls `work` in a thread of its own.  A role adds how it reads the reply, and the
message that carries the answer; `ModelClient.ask` does everything in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from actors.agents.model_client import ModelClient
from actors.agents.replies.replies import Reply, ReplyProblem
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.styles import make_request
from actors.work_context import WorkContext
from protocol.messages import AgentWork, CallsBlocked, HandedBack, Lease, Result, Work
from protocol.settings import PromptStyle
from protocol.values import Device, Role

W = TypeVar("W", bound=AgentWork)
Answer = TypeVar("Answer")


class AgentWorker(ABC, Generic[W, Answer]):
    """Answers one kind of work `W`; `Answer` is what the role reads out of a reply."""

    role: Role
    device: Device | None = None
    accepts: tuple[type[W], ...]  # the message types of `W`

    def __init__(
        self,
        model_client: ModelClient,
        max_tokens: int,
        style: PromptStyle = "paper",
        knowledge: RequestKnowledge | None = None,
    ) -> None:
        self.credit = model_client.model.at_once
        self._model_client = model_client
        self._max_tokens = max_tokens
        self._style = style
        self._knowledge = knowledge
        self._reads_edits = style == "compact"  # the paper's requests ask for whole files

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Ask the model and check its reply."""
        if not isinstance(request, self.accepts):
            raise TypeError(f"a {self.role} was given {type(request).__name__}")
        return self._model_client.ask(
            make_request(request, self._max_tokens, self._style, self._knowledge),
            context,
            lambda reply: self.read(reply, request),
            lambda answer: self.result(request.lease, answer),
        )

    @abstractmethod
    def read(self, reply: Reply, work: W) -> Answer | ReplyProblem:
        """Return the answer in a reply, or why the reply can't be used."""

    @abstractmethod
    def result(self, lease: Lease, answer: Answer) -> Result:
        """Return the message that carries the answer to the coordinator."""

    def close(self) -> None:
        """An agent holds nothing that outlives it."""
