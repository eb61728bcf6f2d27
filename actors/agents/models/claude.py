"""Claude, or any server that speaks the Messages API, through the anthropic SDK.

Promises: every call is streamed and its final message taken; a stream that ends early is no
answer; the SDK never retries by itself (`patience` does, in one place); what a server may refuse
(a temperature, an effort, cache marks) is a wish, dropped for good on the first 400 that names it;
of calls that share their beginning the first goes ahead alone (`warmth`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import httpx2

from actors.agents.models.errors import classify, error_text
from actors.agents.models.model import ModelBusyError, ModelDeniedError, ReplyBounds
from actors.agents.models.prompt_cache import PromptCacheGate
from actors.agents.models.stream import (
    BoundedByteStream,
    ReplyBoundsError,
    StreamedReply,
    cost_of_broken_call,
    not_a_stream,
    read_stream,
)
from actors.agents.requests.request import Request
from protocol.prices import Price, TokenCounts
from protocol.values import STOP_LOST, Call

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam, TextBlockParam

# Of the Claude models only these take a temperature, with thinking off; the others answer 400.
TAKES_TEMPERATURE = ("claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5")
# How a server's sentence names what it refuses.
OPTIONAL_PARAMETERS = {
    "temperature": ("temperature",),
    "effort": ("effort", "output_config"),
    "cache_control": ("cache_control",),
}
CONNECT_S = 10.0
SILENCE_S = 300.0  # between two events; a local server may read a long prompt that long


class ClaudeModel:
    """One model behind one address; safe to use from several threads."""

    def __init__(
        self,
        name: str,
        *,
        api_key: str,
        base_url: str = "",
        price: Price | None = None,
        at_once: int = 4,
        bounds: ReplyBounds | None = None,
        cache_gate: PromptCacheGate | None = None,
    ) -> None:
        self.name = name
        self.at_once = at_once
        self._api_key = api_key
        self._base_url = base_url
        self._price = price
        self._bounds = bounds or ReplyBounds()
        self._cache_gate = cache_gate or PromptCacheGate()
        self._client: anthropic.Anthropic | None = None
        self._lock = threading.Lock()
        self._is_claude = name.startswith("claude")
        # A model that is no Claude, behind base_url, may know plain text only: no cache marks.
        self._rejected_parameters = set() if self._is_claude else {"cache_control"}
        if self._is_claude and not name.startswith(TAKES_TEMPERATURE):
            self._rejected_parameters.add("temperature")

    def max_cost_usd(self, request: Request) -> float | None:
        """Return what a call can cost at most, cached or not; None: no price is known."""
        if self._price is None:
            return None
        return self._price.max_cost_usd(len(request.render().encode()), request.max_tokens)

    def reply(self, request: Request) -> Call:
        """Return the final message of one streamed call."""
        import anthropic

        while True:
            wishes = _optional_parameters(request) - self._rejected_parameters
            try:
                return self._call(request, wishes)
            except (anthropic.BadRequestError, anthropic.UnprocessableEntityError) as error:
                failure = classify(error, self.name, begun=False)
                said = error_text(error).lower()
                named = {
                    wish
                    for wish in wishes
                    if any(sign in said for sign in OPTIONAL_PARAMETERS[wish])
                }
                if not named and not (self._may_retry_without_options(failure) and wishes):
                    raise failure from error
                self._rejected_parameters |= named or wishes

    def _may_retry_without_options(self, failure: Exception) -> bool:
        """Whether the server may know nothing but text, and says so in words of its own."""
        return not self._is_claude and isinstance(failure, ModelDeniedError)

    def _call(self, request: Request, wishes: set[str]) -> Call:
        started = time.monotonic()
        begun: list[TokenCounts] = []
        try:
            reply = self._stream_reply(request, wishes, begun)
        except ModelBusyError as busy:
            known = (
                cost_of_broken_call(begun[0], request.max_tokens)
                if busy.may_be_paid and begun
                else None
            )
            if known is not None:
                busy.reply = self._bill(request, wishes, known, time.monotonic() - started)
            raise
        return self._bill(request, wishes, reply, time.monotonic() - started)

    def _bill(
        self, request: Request, wishes: set[str], reply: StreamedReply, seconds: float
    ) -> Call:
        """Return a call as it is stored; one that broke off is no answer to its request."""
        tokens = reply.tokens
        return Call(
            model=self.name,
            request="" if reply.stop == STOP_LOST else request.render(),
            reply=reply.text,
            stop=reply.stop,
            temperature=request.temperature if "temperature" in wishes else None,
            effort=request.effort if "effort" in wishes else "",
            input_tokens=tokens.prompt,
            cached_tokens=tokens.cache_read,
            cache_write_tokens=tokens.cache_written,
            output_tokens=tokens.output,
            usd=self._usd(request, tokens),
            seconds=seconds,
        )

    def _usd(self, request: Request, tokens: TokenCounts) -> float | None:
        if self._price is None:
            return None
        if not tokens.prompt:  # a server that counts none: every byte a token, as was kept for it
            return self._price.max_cost_usd(len(request.render().encode()), tokens.output)
        return self._price.cost_usd(tokens)

    def _stream_reply(
        self, request: Request, wishes: set[str], begun: list[TokenCounts]
    ) -> StreamedReply:
        """Read one reply; what the server counts when it begins goes into `begun`."""
        import anthropic

        client = self._connected_client()
        caching = "cache_control" in wishes
        turn: AbstractContextManager[Callable[[bool], None]] = nullcontext(lambda cached: None)
        if caching:  # otherwise nobody gains by going second
            turn = self._cache_gate.wait_turn(f"{request.system}\0{request.stable_text}")

        def on_begun(tokens: TokenCounts) -> None:
            begun.append(tokens)
            say(bool(tokens.cache_written or tokens.cache_read))

        try:
            with (
                turn as say,
                client.messages.create(
                    stream=True,
                    model=self.name,
                    max_tokens=request.max_tokens,
                    system=request.system,
                    messages=_messages(request, caching),
                    # The SDK's own signature has no temperature any more; the wire still does, and
                    # a wish that was refused must not be there at all.
                    extra_body=_body(request, wishes) or None,
                ) as stream,
            ):
                return read_stream(stream, self._bounds, request.max_tokens, on_begun)
        except httpx2.TimeoutException as error:
            raise ModelBusyError(
                f"no word from the server for {SILENCE_S:.0f} s", may_be_paid=True
            ) from error
        except httpx2.TransportError as error:
            raise ModelBusyError(
                "the connection was cut in the middle of a reply", may_be_paid=True
            ) from error
        except (httpx2.DecodingError, ReplyBoundsError) as error:
            # Not what it says that it is, or without end.
            raise not_a_stream(paid=bool(begun)) from error
        except (anthropic.BadRequestError, anthropic.UnprocessableEntityError):
            raise  # it may name a wish
        except anthropic.APIError as error:
            raise classify(error, self.name, begun=bool(begun)) from error

    def _connected_client(self) -> anthropic.Anthropic:
        import anthropic

        with self._lock:
            if not self._api_key and not self._base_url:
                raise ModelDeniedError(
                    "ANTHROPIC_API_KEY is not set: set it and resume, or choose --model recipes"
                )
            if self._client is None:
                http = anthropic.DefaultHttpxClient(
                    event_hooks={"response": [partial(_bounded_response, self._bounds)]}
                )
                weakref.finalize(self, http.close)
                self._client = anthropic.Anthropic(
                    api_key=self._api_key or "none",  # a server of one's own may want no key
                    base_url=self._base_url or None,
                    max_retries=0,
                    timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
                    http_client=http,
                )
            return self._client


def _bounded_response(bounds: ReplyBounds, response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = BoundedByteStream(response.stream, bounds)


def _optional_parameters(request: Request) -> set[str]:
    """Return what this request would have beyond plain text."""
    wanted = {"cache_control"}
    if request.temperature is not None:
        wanted.add("temperature")
    if request.effort:
        wanted.add("effort")
    return wanted


def _body(request: Request, wishes: set[str]) -> dict[str, object]:
    body: dict[str, object] = {}
    if "temperature" in wishes:
        body["temperature"] = request.temperature
    if "effort" in wishes:
        body["output_config"] = {"effort": request.effort}
    return body


def _messages(request: Request, caching: bool) -> list[MessageParam]:
    """Return the conversation; with `caching`, a mark ends what is the same all task long."""
    first: MessageParam = {
        "role": "user",
        "content": f"{request.stable_text}\n\n{request.varying_text}",
    }
    if caching:
        stable: TextBlockParam = {
            "type": "text",
            "text": request.stable_text,
            "cache_control": {"type": "ephemeral"},
        }
        first = {
            "role": "user",
            "content": [stable, {"type": "text", "text": request.varying_text}],
        }
    messages = [first]
    for turn in request.turns:
        messages.append({"role": "assistant", "content": turn.reply})
        messages.append({"role": "user", "content": turn.problem})
    return messages
