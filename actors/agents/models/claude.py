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

from actors.agents.models.failures import meaning, words_of
from actors.agents.models.listening import Bounded, Heard, PastBounds, broken, garbled, listen
from actors.agents.models.model import Bounds, Busy, Denied
from actors.agents.models.warmth import Warmth
from actors.agents.request import Request
from protocol.prices import Price, Tokens
from protocol.values import LOST, Call

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam, TextBlockParam

# Of the Claude models only these take a temperature, with thinking off; the others answer 400.
TAKES_TEMPERATURE = ("claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5")
# How a server's sentence names what it refuses.
WISHES = {
    "temperature": ("temperature",),
    "effort": ("effort", "output_config"),
    "cache_control": ("cache_control",),
}
CONNECT_S = 10.0
SILENCE_S = 300.0  # between two events; a local server may read a long prompt that long


class Claude:
    """One model behind one address; safe to use from several threads."""

    def __init__(
        self,
        name: str,
        *,
        api_key: str,
        base_url: str = "",
        price: Price | None = None,
        at_once: int = 4,
        bounds: Bounds | None = None,
        warmth: Warmth | None = None,
    ) -> None:
        self.name = name
        self.at_once = at_once
        self._api_key = api_key
        self._base_url = base_url
        self._price = price
        self._bounds = bounds or Bounds()
        self._warmth = warmth or Warmth()
        self._client: anthropic.Anthropic | None = None
        self._lock = threading.Lock()
        self._is_claude = name.startswith("claude")
        # A model that is no Claude, behind base_url, may know plain text only: no cache marks.
        self._refused = set() if self._is_claude else {"cache_control"}
        if self._is_claude and not name.startswith(TAKES_TEMPERATURE):
            self._refused.add("temperature")

    def most_usd(self, request: Request) -> float | None:
        """Return what a call can cost at most, cached or not; None: no price is known."""
        if self._price is None:
            return None
        return self._price.most_usd(len(request.render().encode()), request.max_tokens)

    def reply(self, request: Request) -> Call:
        """Return the final message of one streamed call."""
        import anthropic

        while True:
            wishes = _wishes(request) - self._refused
            try:
                return self._call(request, wishes)
            except (anthropic.BadRequestError, anthropic.UnprocessableEntityError) as error:
                failure = meaning(error, self.name, begun=False)
                said = words_of(error).lower()
                named = {wish for wish in wishes if any(sign in said for sign in WISHES[wish])}
                if not named and not (self._may_be_plain(failure) and wishes):
                    raise failure from error
                self._refused |= named or wishes

    def _may_be_plain(self, failure: Exception) -> bool:
        """Whether the server may know nothing but text, and says so in words of its own."""
        return not self._is_claude and isinstance(failure, Denied)

    def _call(self, request: Request, wishes: set[str]) -> Call:
        started = time.monotonic()
        begun: list[Tokens] = []
        try:
            heard = self._listen(request, wishes, begun)
        except Busy as busy:
            known = broken(begun[0], request.max_tokens) if busy.paid and begun else None
            if known is not None:
                busy.heard = self._bill(request, wishes, known, time.monotonic() - started)
            raise
        return self._bill(request, wishes, heard, time.monotonic() - started)

    def _bill(self, request: Request, wishes: set[str], heard: Heard, seconds: float) -> Call:
        """Return a call as it is stored; one that broke off is no answer to its request."""
        tokens = heard.tokens
        return Call(
            model=self.name,
            request="" if heard.stop == LOST else request.render(),
            reply=heard.text,
            stop=heard.stop,
            temperature=request.temperature if "temperature" in wishes else None,
            effort=request.effort if "effort" in wishes else "",
            input_tokens=tokens.prompt,
            cached_tokens=tokens.cache_read,
            cache_write_tokens=tokens.cache_written,
            output_tokens=tokens.output,
            usd=self._usd(request, tokens),
            seconds=seconds,
        )

    def _usd(self, request: Request, tokens: Tokens) -> float | None:
        if self._price is None:
            return None
        if not tokens.prompt:  # a server that counts none: every byte a token, as was kept for it
            return self._price.most_usd(len(request.render().encode()), tokens.output)
        return self._price.usd(tokens)

    def _listen(self, request: Request, wishes: set[str], begun: list[Tokens]) -> Heard:
        """Read one reply; what the server counts when it begins goes into `begun`."""
        import anthropic

        client = self._open()
        caching = "cache_control" in wishes
        turn: AbstractContextManager[Callable[[bool], None]] = nullcontext(lambda cached: None)
        if caching:  # otherwise nobody gains by going second
            turn = self._warmth.turn(f"{request.system}\0{request.stable}")

        def on_begun(tokens: Tokens) -> None:
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
                return listen(stream, self._bounds, request.max_tokens, on_begun)
        except httpx2.TimeoutException as error:
            raise Busy(f"no word from the server for {SILENCE_S:.0f} s", paid=True) from error
        except httpx2.TransportError as error:
            raise Busy("the connection was cut in the middle of a reply", paid=True) from error
        except (httpx2.DecodingError, PastBounds) as error:
            # Not what it says that it is, or without end.
            raise garbled(paid=bool(begun)) from error
        except (anthropic.BadRequestError, anthropic.UnprocessableEntityError):
            raise  # it may name a wish
        except anthropic.APIError as error:
            raise meaning(error, self.name, begun=bool(begun)) from error

    def _open(self) -> anthropic.Anthropic:
        import anthropic

        with self._lock:
            if not self._api_key and not self._base_url:
                raise Denied(
                    "ANTHROPIC_API_KEY is not set: set it and resume, or choose --model recipes"
                )
            if self._client is None:
                http = anthropic.DefaultHttpxClient(
                    event_hooks={"response": [partial(_bound, self._bounds)]}
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


def _bound(bounds: Bounds, response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = Bounded(response.stream, bounds)


def _wishes(request: Request) -> set[str]:
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
    first: MessageParam = {"role": "user", "content": f"{request.stable}\n\n{request.varying}"}
    if caching:
        stable: TextBlockParam = {
            "type": "text",
            "text": request.stable,
            "cache_control": {"type": "ephemeral"},
        }
        first = {
            "role": "user",
            "content": [stable, {"type": "text", "text": request.varying}],
        }
    messages = [first]
    for turn in request.turns:
        messages.append({"role": "assistant", "content": turn.reply})
        messages.append({"role": "user", "content": turn.problem})
    return messages
