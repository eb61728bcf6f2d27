"""How a planner, coder or debugger gets a usable answer, through crashes and failed calls.

A reply comes from the coordinator's store if it is there, else from the spool, else from a person
(`--ask-person`), else from a new call.  A new reply is written to the spool and stored by the
coordinator before it is read.  An answer out of bounds gets one more try with the problem stated;
both calls are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from actors import failpoints
from actors.agents.models.model import (
    STOP_TOO_LONG,
    STOP_TOO_SLOW,
    Model,
    ModelDeniedError,
    ReplyBounds,
    RequestTooLongError,
)
from actors.agents.person import Person
from actors.agents.replies.replies import (
    REFUSALS,
    Reply,
    ReplyProblem,
    is_open_ended,
    parse_reply,
)
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.prompting import problem_prompt
from actors.agents.requests.request import Request
from actors.agents.requests.request_version import request_version
from actors.agents.retry import RetryingCaller, WorkCancelledError
from actors.work_context import WorkContext
from protocol.messages import CallsBlocked, HandedBack, ReplyUnusable, Result
from protocol.values import Call

T = TypeVar("T")
MAX_REPLY = ReplyBounds().characters
# Characters of an unusable reply that its model is shown again: about 16,000 tokens.
MAX_REPLY_SHOWN_AGAIN = 60_000
# Characters of an unusable reply in `ReplyUnusable`: the stored call has the whole of it.
MAX_REPLY_IN_PROBLEM = 20_000
WINDOW_FULL = "model_context_window_exceeded"


class ModelClient:
    """A model, the caller that retries it, and the spool; shared by an agent's threads."""

    def __init__(
        self,
        model: Model,
        spool: ReplySpool,
        caller: RetryingCaller | None = None,
        *,
        person: Person | None = None,
        effort: str = "",
        temperature: float | None = None,
    ) -> None:
        self.model = model
        self._effort = effort
        self._temperature = temperature  # replaces the temperature of `docs/method.md`
        self._person = person  # asked before the model
        self._spool = spool
        self._caller = caller or RetryingCaller()

    def ask(
        self,
        request: Request,
        context: WorkContext,
        read: Callable[[Reply], T | ReplyProblem],
        result: Callable[[T], Result],
    ) -> Result | CallsBlocked | HandedBack:
        """Return `result` of what `read` finds in the answer, or why there is no answer."""
        lease = request.work.lease
        request = self._with_preferences(request)
        try:
            request, call = self._complete(request, context)
            found = _read_reply(call, read)
            second = (
                _retry_request(request, call, found) if isinstance(found, ReplyProblem) else None
            )
            if isinstance(found, ReplyProblem):
                context.log_step(
                    "reply can't be used", reason=found.reason, asked_again=second is not None
                )
            if second is not None:
                _, call = self._complete(second, context)
                found = _read_reply(call, read)
        except ModelDeniedError as denied:
            return CallsBlocked(lease=lease, reason=str(denied))
        except RequestTooLongError as error:
            return ReplyUnusable(lease=lease, reason=f"the request does not fit the model: {error}")
        except WorkCancelledError:
            return HandedBack(lease=lease, reason="stopped before the model was asked")
        if isinstance(found, ReplyProblem):
            return ReplyUnusable(
                lease=lease,
                reason=found.reason,
                reply=call.reply[:MAX_REPLY_IN_PROBLEM],
                gives_up_on=found.gives_up_on,
            )
        return result(found)

    def _with_preferences(self, request: Request) -> Request:
        """Return the request with the effort and temperature from this role's settings."""
        temperature = request.temperature if self._temperature is None else self._temperature
        return msgspec.structs.replace(request, effort=self._effort, temperature=temperature)

    def _complete(self, request: Request, context: WorkContext) -> tuple[Request, Call]:
        """Return the request as it was asked in the end, and the stored answer."""
        while True:
            try:
                return request, self._call_once(request, context)
            except RequestTooLongError:
                smaller = request.without_largest_attempt()
                if smaller is None:
                    raise
                request = smaller

    def _call_once(self, request: Request, context: WorkContext) -> Call:
        work, text = request.work.lease.work, request.render()
        for call in request.work.completed_calls:
            if call.request == text:
                context.log_step("reply taken from the store")
                self._spool.remove(work, text)
                return call
        spooled = self._spool.find(work, text)
        if spooled is not None:
            context.log_step("reply taken from the spool")
        else:
            failpoints.hit("before-call")
            answered = self._person.ask(request, context) if self._person else None
            spooled = answered or self._caller.call(self.model, request, context)
            spooled = msgspec.structs.replace(spooled, request_version=request_version())
            failpoints.hit("after-call")
            _log_call(spooled, context)
            try:
                self._spool.store(work, spooled)
            except OSError as error:
                # A full disk must not lose a paid reply: the coordinator may still store it.
                context.set_activity(f"no spool ({error.strerror}): handing the reply over at once")
        failpoints.hit("after-spool")
        context.call_completed(spooled)
        failpoints.hit("after-stored")
        if not context.is_revoked():  # otherwise the coordinator has not confirmed that it stored
            self._spool.remove(work, text)
        failpoints.hit("after-drop")
        return spooled


def _log_call(call: Call, context: WorkContext) -> None:
    context.log_step(
        "call ended",
        model=call.model,
        stop=call.stop,
        seconds=round(call.seconds, 3),
        input_tokens=call.input_tokens,
        cached_tokens=call.cached_tokens,
        output_tokens=call.output_tokens,
        usd=call.usd,
    )


def _retry_request(request: Request, call: Call, found: ReplyProblem) -> Request | None:
    """Return the second request after an answer that can't be used; None where none would help.

    A reply that was cut off is shown to the model, which is asked for a shorter one: two joined
    halves would break in the middle of a fence.  Where the context was too small, less is shown.
    """
    if found.is_final:
        return None
    if call.stop == WINDOW_FULL:
        return request.shrunk_by_quarter()
    reply = call.reply
    if len(reply) > MAX_REPLY_SHOWN_AGAIN:
        half = MAX_REPLY_SHOWN_AGAIN // 2
        reply = f"{reply[:half]}\n[…]\n{reply[-half:]}"
    return request.with_problem(reply, problem_prompt(request.role, found.reason, request.form))


def _read_reply(call: Call, read: Callable[[Reply], T | ReplyProblem]) -> T | ReplyProblem:
    """Return what `read` finds in the reply, or why the reply can't be used."""
    if call.stop == "refusal":
        return ReplyProblem(reason="the model refused to answer", is_final=True)
    if call.stop == STOP_TOO_SLOW:
        return ReplyProblem(
            reason=f"the model took over {call.seconds:.0f} s to answer", is_final=True
        )
    cut = call.stop in ("max_tokens", WINDOW_FULL)
    if not call.reply.strip():
        when = f" before it was cut off after {call.output_tokens} tokens" if cut else ""
        return ReplyProblem(reason=f"the model answered with no words{when}")
    if call.stop == STOP_TOO_LONG or len(call.reply) > MAX_REPLY:
        return ReplyProblem(
            reason=f"the reply is over {MAX_REPLY:,} characters long", is_final=True
        )
    reply = parse_reply(call.reply)
    for heading, scope in REFUSALS.items():
        cannot = reply.text(heading)
        if cannot:
            return ReplyProblem(reason=" ".join(cannot.split()), is_final=True, gives_up_on=scope)
    found = read(reply)
    if cut and (isinstance(found, ReplyProblem) or is_open_ended(reply)):
        return ReplyProblem(reason=f"the reply was cut off after {call.output_tokens} tokens")
    return found
