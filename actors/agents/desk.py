"""The desk: how a planner, coder or debugger gets a usable answer, whatever happens.

Order: a reply that the coordinator already has, else one in the spool, else a call; then the
spool, then the coordinator, and only then is it read.  An answer out of bounds gets one more try
with the problem stated.  Both calls are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from actors.actor import Port
from actors.agents.models.model import Denied, Model, TooLong
from actors.agents.patience import Patience, Withdrawn
from actors.agents.problem import Problem
from actors.agents.prompting import say_again
from actors.agents.replies import Reply, parse
from actors.agents.request import Request
from actors.agents.spool import Spool
from protocol.messages import Blocked, Result, Returned, Unusable
from protocol.values import Call

T = TypeVar("T")
MAX_REPLY = 512 * 1024  # characters; what is longer holds no candidate, and nobody wants to read it
MAX_SHOWN = 20_000  # of a reply that could not be used: the whole of it is in the stored call


class Desk:
    """A model, the patience to wait for it, and the spool; shared by an agent's threads."""

    def __init__(self, model: Model, spool: Spool, patience: Patience | None = None) -> None:
        self.model = model
        self._spool = spool
        self._patience = patience or Patience()

    def consult(
        self,
        request: Request,
        port: Port,
        read: Callable[[Reply], T | Problem],
        result: Callable[[T], Result],
    ) -> Result | Blocked | Returned:
        """Return `result` of what `read` finds in the answer, or why there is none."""
        lease = request.work.lease
        try:
            request, call = self._ask(request, port)
            found = _judge(call, read)
            if isinstance(found, Problem) and not found.final:
                words = say_again(request.role, found.reason)
                _, call = self._ask(request.again(call.reply, words), port)
                found = _judge(call, read)
        except Denied as denied:
            return Blocked(lease=lease, reason=str(denied))
        except TooLong as error:
            return Unusable(lease=lease, reason=f"the request does not fit the model: {error}")
        except Withdrawn:
            return Returned(lease=lease, reason="stopped before the model was asked")
        if isinstance(found, Problem):
            return Unusable(lease=lease, reason=found.reason, reply=call.reply[:MAX_SHOWN])
        return result(found)

    def _ask(self, request: Request, port: Port) -> tuple[Request, Call]:
        """Return the stored answer, and the request as it was really asked."""
        while True:
            try:
                return request, self._buy_once(request, port)
            except TooLong:
                smaller = request.shrunk()
                if smaller is None:
                    raise
                request = smaller

    def _buy_once(self, request: Request, port: Port) -> Call:
        work, text = request.work.lease.work, request.render()
        for call in request.work.answered:
            if call.request == text:
                self._spool.drop(work, text)
                return call
        spooled = self._spool.find(work, text)
        if spooled is None:
            spooled = self._patience.reply(self.model, request, port)
            try:
                self._spool.keep(work, spooled)
            except OSError as error:
                # A full disk must not lose what was paid for: the coordinator may still store it.
                port.doing(f"no spool ({error.strerror}): handing the reply over at once")
        port.answered(spooled)
        if not port.revoked():  # otherwise nobody has said that it is stored
            self._spool.drop(work, text)
        return spooled


def _judge(call: Call, read: Callable[[Reply], T | Problem]) -> T | Problem:
    """Return what is in the reply, or the problem that its end and its text make."""
    if call.stop == "refusal":
        return Problem(reason="the model refused to answer", final=True)
    if not call.reply.strip():
        return Problem(reason="the model answered with no words")
    if len(call.reply) > MAX_REPLY:
        return Problem(reason=f"the reply is {len(call.reply):,} characters long", final=True)
    reply = parse(call.reply)
    cannot = reply.text("cannot")
    if cannot:
        return Problem(reason=" ".join(cannot.split()), final=True)
    found = read(reply)
    if isinstance(found, Problem) and call.stop in ("max_tokens", "model_context_window_exceeded"):
        return Problem(reason=f"the reply was cut off after {call.output_tokens} tokens")
    return found
