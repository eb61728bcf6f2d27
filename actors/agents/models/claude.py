"""Claude, or any server that speaks the Messages API, through the anthropic SDK.

Promises:
- Every call is streamed to its end; a stream that ends early is not an answer.
- The SDK never retries by itself: `retry` does, in one place.
- A parameter that a server may refuse (temperature, effort, cache marks) is optional.  The first
  400 that names it drops it for good.
- The first of several calls that share a prefix goes alone (`prompt_cache`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

# The Claude models that take a temperature, with thinking off; the others answer 400.
TAKES_TEMPERATURE = ("claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5")
# Parameter -> the words by which a server's error names it.
OPTIONAL_PARAMETERS = {
    "temperature": ("temperature",),
    "effort": ("effort", "output_config"),
    "cache_control": ("cache_control",),
}
CONNECT_S = 10.0
SILENCE_S = 300.0  # between two events: a local server may need this long to read a prompt


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
        # A model other than Claude, behind base_url, may know plain text only: no cache marks.
        self._rejected_parameters = set() if self._is_claude else {"cache_control"}
        if self._is_claude and not name.startswith(TAKES_TEMPERATURE):
            self._rejected_parameters.add("temperature")

    def max_cost_usd(self, request: Request) -> float | None:
        """Return the most that a call can cost, cached or not; None: no price is known."""
        if self._price is None:
            return None
        return self._price.max_cost_usd(len(request.render().encode()), request.max_tokens)

    def reply(self, request: Request) -> Call:
        """Return the final message of one streamed call."""
        import anthropic

        while True:
            options = _optional_parameters(request) - self._rejected_parameters
            try:
                return self._call(request, options)
            except (anthropic.BadRequestError, anthropic.UnprocessableEntityError) as error:
                failure = classify(error, self.name, begun=False)
                text = error_text(error).lower()
                named = {
                    option
                    for option in options
                    if any(word in text for word in OPTIONAL_PARAMETERS[option])
                }
                if not named and not (self._may_retry_without_options(failure) and options):
                    raise failure from error
                self._rejected_parameters |= named or options

    def _may_retry_without_options(self, failure: Exception) -> bool:
        """Whether the server may accept plain text only, and words its error in its own way."""
        return not self._is_claude and isinstance(failure, ModelDeniedError)

    def _call(self, request: Request, options: set[str]) -> Call:
        started = time.monotonic()
        begun: list[TokenCounts] = []
        try:
            reply = self._stream_reply(request, options, begun)
        except ModelBusyError as busy:
            known = (
                cost_of_broken_call(begun[0], request.max_tokens)
                if busy.may_be_paid and begun
                else None
            )
            if known is not None:
                busy.reply = self._bill(request, options, known, time.monotonic() - started)
            raise
        return self._bill(request, options, reply, time.monotonic() - started)

    def _bill(
        self, request: Request, options: set[str], reply: StreamedReply, seconds: float
    ) -> Call:
        """Return a call as it is stored; a call that broke off does not answer its request."""
        tokens = reply.tokens
        return Call(
            model=self.name,
            request="" if reply.stop == STOP_LOST else request.render(),
            reply=reply.text,
            stop=reply.stop,
            temperature=request.temperature if "temperature" in options else None,
            effort=request.effort if "effort" in options else "",
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
        if not tokens.prompt:  # the server counts none: a token for each byte, as was reserved
            return self._price.max_cost_usd(len(request.render().encode()), tokens.output)
        return self._price.cost_usd(tokens)

    def _stream_reply(
        self, request: Request, options: set[str], begun: list[TokenCounts]
    ) -> StreamedReply:
        """Read one reply; the server's counts at its beginning go into `begun`."""
        client = self._connected_client()
        caching = "cache_control" in options
        turn: AbstractContextManager[Callable[[bool], None]] = nullcontext(lambda cached: None)
        if caching:  # otherwise no call gains by waiting
            turn = self._cache_gate.wait_turn(f"{request.system}\0{request.stable_text}")

        def on_begun(tokens: TokenCounts) -> None:
            begun.append(tokens)
            reply_begun(bool(tokens.cache_written or tokens.cache_read))

        with (
            self._failures(begun),
            turn as reply_begun,
            client.messages.create(
                stream=True,
                model=self.name,
                max_tokens=request.max_tokens,
                system=request.system,
                messages=_messages(request, caching),
                # The SDK's signature has no temperature any more; the API still has one.  A
                # parameter that was refused must be absent.
                extra_body=_body(request, options) or None,
            ) as stream,
        ):
            return read_stream(stream, self._bounds, request.max_tokens, on_begun)

    @contextmanager
    def _failures(self, begun: list[TokenCounts]) -> Iterator[None]:
        """Raise a call's failures as a model's; `begun`: not empty once the reply has begun.

        A refused parameter is raised as it is: the error's text names it.
        """
        import anthropic

        try:
            yield
        except httpx2.TimeoutException as error:
            raise ModelBusyError(
                f"no word from the server for {SILENCE_S:.0f} s", may_be_paid=True
            ) from error
        except httpx2.TransportError as error:
            raise ModelBusyError(
                "the connection was cut in the middle of a reply", may_be_paid=True
            ) from error
        except (httpx2.DecodingError, ReplyBoundsError) as error:
            # The body is not what its header says, or has no end.
            raise not_a_stream(paid=bool(begun)) from error
        except (anthropic.BadRequestError, anthropic.UnprocessableEntityError):
            raise
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
                    api_key=self._api_key or "none",  # a local server may want no key
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
    """Return the optional parameters that this request has beyond plain text."""
    options = {"cache_control"}
    if request.temperature is not None:
        options.add("temperature")
    if request.effort:
        options.add("effort")
    return options


def _body(request: Request, options: set[str]) -> dict[str, object]:
    body: dict[str, object] = {}
    if "temperature" in options:
        body["temperature"] = request.temperature
    if "effort" in options:
        body["output_config"] = {"effort": request.effort}
    return body


def _messages(request: Request, caching: bool) -> list[MessageParam]:
    """Return the conversation; with `caching`, a mark ends the part that a whole task shares."""
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
