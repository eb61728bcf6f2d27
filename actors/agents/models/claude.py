"""Claude, or any server that speaks the Messages API, through the anthropic SDK.

Promises: every call is streamed and its final message taken; a stream that ends early is no
answer; the SDK never retries by itself (`patience` does, in one place); what a server may refuse
(a temperature, cache marks) is a wish, dropped for good on the first 400 that names it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from actors.agents.models.model import Busy, Denied, TooLong
from actors.agents.models.pricing import Prices, Tokens, price_of
from actors.agents.request import Request
from protocol.values import Call

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam, TextBlockParam
    from anthropic.types.parsed_message import ParsedMessage

# Of the Claude models only these take a temperature, with thinking off; the others answer 400.
TAKES_TEMPERATURE = ("claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5")
GARBLED_TRIES = 5  # answers in a row that are no Messages stream: probably a wrong address
CONNECT_S = 10.0
SILENCE_S = 300.0  # between two events; a local server may read a long prompt that long
SPENT = ("credit balance", "spend limit", "billing")


class Claude:
    """One model behind one address; safe to use from several threads."""

    at_once = 4

    def __init__(
        self, name: str, *, api_key: str, base_url: str = "", prices: Prices | None = None
    ) -> None:
        self.name = name
        self._api_key = api_key
        self._base_url = base_url
        self._price = price_of(name, prices or {})
        self._client: anthropic.Anthropic | None = None
        self._lock = threading.Lock()
        # A model that is no Claude, behind base_url, may know plain text only: no cache marks.
        self._refused = set() if name.startswith("claude") else {"cache_control"}
        if name.startswith("claude") and not name.startswith(TAKES_TEMPERATURE):
            self._refused.add("temperature")

    def reply(self, request: Request) -> Call:
        """Return the final message of one streamed call."""
        import anthropic

        while True:
            wishes = {"temperature", "cache_control"} - self._refused
            try:
                return self._call(request, wishes)
            except anthropic.BadRequestError as error:
                words = _words(error)
                named = {wish for wish in wishes if wish in words}
                if not named:
                    raise _failure(error, self.name) from error
                self._refused |= named
            except anthropic.APIError as error:
                raise _failure(error, self.name) from error

    def _call(self, request: Request, wishes: set[str]) -> Call:
        import httpx2

        started = time.monotonic()
        temperature = request.temperature if "temperature" in wishes else None
        body = {} if temperature is None else {"temperature": temperature}
        caching = "cache_control" in wishes
        try:
            with self._open().messages.stream(
                model=self.name,
                max_tokens=request.max_tokens,
                system=request.system,
                messages=_messages(request, caching),
                # The SDK's own signature has no temperature any more; the wire still does.
                extra_body=body or None,
            ) as stream:
                message = _final(stream)
        except httpx2.TimeoutException as error:
            raise Busy(f"no word from the server for {SILENCE_S:.0f} s") from error
        except httpx2.TransportError as error:
            raise Busy("the connection was cut in the middle of a reply") from error
        tokens = _tokens(message)
        return Call(
            model=self.name,
            request=request.render(),
            reply="".join(block.text for block in message.content if block.type == "text"),
            stop=message.stop_reason or "",
            temperature=temperature,
            input_tokens=tokens.prompt,
            cached_tokens=tokens.cache_read,
            output_tokens=tokens.output,
            usd=None if self._price is None else self._price.usd(tokens),
            seconds=time.monotonic() - started,
        )

    def _open(self) -> anthropic.Anthropic:
        import anthropic
        import httpx2

        with self._lock:
            if not self._api_key and not self._base_url:
                raise Denied(
                    "ANTHROPIC_API_KEY is not set: set it and resume, or choose --model recipes"
                )
            if self._client is None:
                self._client = anthropic.Anthropic(
                    api_key=self._api_key or "none",  # a server of one's own may want no key
                    base_url=self._base_url or None,
                    max_retries=0,
                    timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
                )
            return self._client


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


def _final(stream: anthropic.MessageStream[None]) -> ParsedMessage[None]:
    """Read the stream to its end; an end without a stop reason is a cut one."""
    try:
        message = stream.get_final_message()
        cut = message.stop_reason is None
    except (ValueError, AssertionError, RuntimeError, TypeError, LookupError, AttributeError) as e:
        # The SDK trusts what it reads: a server that answers something else shows up as these.
        raise Busy(
            "what the server answers is no Messages stream: is --base-url right?",
            tries=GARBLED_TRIES,
        ) from e
    if cut:
        raise Busy("the reply was cut off before its end")
    return message


def _tokens(message: ParsedMessage[None]) -> Tokens:
    usage = message.usage
    return Tokens(
        read=usage.input_tokens or 0,
        cache_write=usage.cache_creation_input_tokens or 0,
        cache_read=usage.cache_read_input_tokens or 0,
        output=usage.output_tokens or 0,
    )


def _words(error: anthropic.APIError) -> str:
    """Return the server's own sentence, in one line."""
    said = getattr(error, "api_message", None) or error.message
    return " ".join(str(said).split())[:300]


def _failure(error: anthropic.APIError, model: str) -> Busy | Denied | TooLong:
    """Return what an SDK error means to us."""
    import anthropic

    words = _words(error)
    if not isinstance(error, anthropic.APIStatusError):
        slow = isinstance(error, anthropic.APITimeoutError)
        return Busy("the server did not answer in time" if slow else "no connection to the server")
    status, kind = error.status_code, error.type or ""
    if status in (401, 403) or kind in ("authentication_error", "permission_error"):
        return Denied(
            f"the key was refused ({status}: {words}): set ANTHROPIC_API_KEY to a key that may "
            f"use {model}, then resume"
        )
    spent = any(word in words.lower() for word in SPENT) or "spend" in (error.error_code or "")
    if status == 402 or kind == "billing_error" or spent:
        return Denied(f"the account has no credit left ({status}: {words}): add some, then resume")
    if status == 404:
        return Denied(f"the server knows no {model} (404: {words}): choose another --model")
    if status == 413 or (status == 400 and _is_too_long(words)):
        return TooLong(f"{status}: {words}")
    if status in (408, 409, 429) or status >= 500 or status < 400:
        # Below 400: an error event in the middle of a stream that had begun well.
        return Busy(f"{status if status >= 400 else kind or 'error'}", after_s=_retry_after(error))
    return Denied(f"the server refuses our request ({status}: {words})")


def _is_too_long(words: str) -> bool:
    low = words.lower()
    return "too long" in low or "context window" in low or "context length" in low


def _retry_after(error: anthropic.APIStatusError) -> float:
    try:
        return max(0.0, float(error.response.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0  # it may also be a date; our own waiting is long enough
