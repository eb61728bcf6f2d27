"""The desk: how a planner, coder or debugger gets a usable answer, whatever happens.

Order: a reply that the coordinator already has, else one in the spool, else a call; then the
spool, then the coordinator, and only then is it read.  An answer out of bounds gets one more try
with the problem stated.  Both calls are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from actors import failpoints
from actors.agents.models.model import TOO_LONG, TOO_SLOW, Bounds, Denied, Model, TooLong
from actors.agents.patience import Patience, Withdrawn
from actors.agents.problem import Problem
from actors.agents.prompting import say_again
from actors.agents.replies import REFUSALS, Reply, parse
from actors.agents.request import Request
from actors.agents.spool import Spool
from actors.port import Port
from protocol.messages import Blocked, Result, Returned, Unusable
from protocol.values import Call

T = TypeVar("T")
MAX_REPLY = Bounds().characters
MAX_SHOWN_AGAIN = 60_000  # of a reply that is asked for anew: what 16,000 tokens come to
WINDOW_FULL = "model_context_window_exceeded"
MAX_SHOWN = 20_000  # of a reply that could not be used: the whole of it is in the stored call


class Desk:
    """A model, the patience to wait for it, and the spool; shared by an agent's threads."""

    def __init__(
        self,
        model: Model,
        spool: Spool,
        patience: Patience | None = None,
        *,
        effort: str = "",
        temperature: float | None = None,
    ) -> None:
        self.model = model
        self._effort = effort
        self._temperature = temperature  # instead of the method's
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
        request = self._wished(request)
        try:
            request, call = self._ask(request, port)
            found = _judge(call, read)
            second = _second_try(request, call, found) if isinstance(found, Problem) else None
            if second is not None:
                _, call = self._ask(second, port)
                found = _judge(call, read)
        except Denied as denied:
            return Blocked(lease=lease, reason=str(denied))
        except TooLong as error:
            return Unusable(lease=lease, reason=f"the request does not fit the model: {error}")
        except Withdrawn:
            return Returned(lease=lease, reason="stopped before the model was asked")
        if isinstance(found, Problem):
            return Unusable(
                lease=lease,
                reason=found.reason,
                reply=call.reply[:MAX_SHOWN],
                gives_up_on=found.gives_up_on,
            )
        return result(found)

    def _wished(self, request: Request) -> Request:
        """Return the request with what a person wants of this role's model."""
        temperature = request.temperature if self._temperature is None else self._temperature
        return msgspec.structs.replace(request, effort=self._effort, temperature=temperature)

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
            failpoints.reach("before-call")
            spooled = self._patience.reply(self.model, request, port)
            failpoints.reach("after-call")
            try:
                self._spool.keep(work, spooled)
            except OSError as error:
                # A full disk must not lose what was paid for: the coordinator may still store it.
                port.doing(f"no spool ({error.strerror}): handing the reply over at once")
        failpoints.reach("after-spool")
        port.answered(spooled)
        failpoints.reach("after-stored")
        if not port.revoked():  # otherwise nobody has said that it is stored
            self._spool.drop(work, text)
        failpoints.reach("after-drop")
        return spooled


def _second_try(request: Request, call: Call, found: Problem) -> Request | None:
    """Return what to ask about an answer that can't be used, if anything.

    A reply that was cut off is shown and asked for anew, shorter: halves that are joined break in
    the middle of a fence.  Where the context was too small, less is shown instead.
    """
    if found.final:
        return None
    if call.stop == WINDOW_FULL:
        return request.well_shrunk()
    reply = call.reply
    if len(reply) > MAX_SHOWN_AGAIN:
        half = MAX_SHOWN_AGAIN // 2
        reply = f"{reply[:half]}\n[…]\n{reply[-half:]}"
    return request.again(reply, say_again(request.role, found.reason))


def _judge(call: Call, read: Callable[[Reply], T | Problem]) -> T | Problem:
    """Return what is in the reply, or the problem that its end and its text make."""
    if call.stop == "refusal":
        return Problem(reason="the model refused to answer", final=True)
    if call.stop == TOO_SLOW:
        return Problem(reason=f"the model took over {call.seconds:.0f} s to answer", final=True)
    cut = call.stop in ("max_tokens", WINDOW_FULL)
    if not call.reply.strip():
        when = f" before it was cut off after {call.output_tokens} tokens" if cut else ""
        return Problem(reason=f"the model answered with no words{when}")
    if call.stop == TOO_LONG or len(call.reply) > MAX_REPLY:
        return Problem(reason=f"the reply is over {MAX_REPLY:,} characters long", final=True)
    reply = parse(call.reply)
    for heading, scope in REFUSALS.items():
        cannot = reply.text(heading)
        if cannot:
            return Problem(reason=" ".join(cannot.split()), final=True, gives_up_on=scope)
    found = read(reply)
    if isinstance(found, Problem) and cut:
        return Problem(reason=f"the reply was cut off after {call.output_tokens} tokens")
    return found
