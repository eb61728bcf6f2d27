"""A streamed reply, read to its end and no further: bounded in words, bytes and time.

Whatever a server sends, an agent's memory and patience have an end: `Bounded` counts what comes
off the wire, `listen` the words.  A reply that goes past a bound is kept as far as it came, with
a stop reason of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx2
from msgspec.structs import replace

from actors.agents.models.model import TOO_LONG, TOO_SLOW, Bounds, Busy
from protocol.prices import Tokens
from protocol.values import LOST, Value

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import Usage
    from anthropic.types.parsed_message import ParsedMessage

MOST_TOKENS = 10**9  # of one kind, in one call
GARBLED_TRIES = 5  # answers in a row that are no Messages stream: probably a wrong address


class Heard(Value, frozen=True, kw_only=True):
    """What a model said, and what it counted."""

    text: str
    stop: str
    tokens: Tokens


class PastBounds(Exception):
    """The server says more, or says it more slowly, than anyone will read."""

    def __init__(self, stop: str) -> None:
        super().__init__(stop)
        self.stop = stop


class Bounded(httpx2.SyncByteStream):
    """The bytes of one response, up to the bounds."""

    def __init__(self, stream: httpx2.SyncByteStream, bounds: Bounds) -> None:
        self._stream = stream
        self._bounds = bounds

    def __iter__(self) -> Iterator[bytes]:
        until = time.monotonic() + self._bounds.seconds
        left = self._bounds.wire_bytes
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise PastBounds(TOO_LONG)
            yield chunk
            if time.monotonic() > until:  # what has come was read
                raise PastBounds(TOO_SLOW)

    def close(self) -> None:
        self._stream.close()


def listen(
    stream: anthropic.MessageStream[None],
    bounds: Bounds,
    max_tokens: int,
    begun: Callable[[Tokens], None],
) -> Heard:
    """Read a reply; say `begun` with its first event, and what the server counted by then.

    Raises `Busy` for a stream that ends early or is none.
    """
    first: Tokens | None = None

    def on_start(tokens: Tokens) -> None:
        nonlocal first
        first = tokens
        begun(tokens)

    try:
        stop = _read(stream, bounds, on_start)
    except PastBounds as past:
        stop = past.stop
    except (ValueError, AssertionError, RuntimeError, TypeError, LookupError, AttributeError) as e:
        # The SDK trusts what it reads: a server that answers something else shows up as these.
        raise garbled(paid=first is not None) from e
    if first is None:
        raise garbled(paid=False)
    if not stop:
        raise Busy("the reply was cut off before its end", paid=True)
    return _heard(stream.current_message_snapshot, stop, bounds, max_tokens, first)


def broken(first: Tokens, max_tokens: int) -> Heard | None:
    """Return what a call that broke off after it began is known to have come to, at its most.

    Its prompt as the server counted it, and all the words that it may have had: a server goes on
    for a while when nobody listens any more.  None where it counted no prompt (some proxies do
    that at the end only): then nothing is known.
    """
    if not first.prompt:
        return None
    return Heard(text="", stop=LOST, tokens=_at_most(first, max_tokens))


def _read(
    stream: anthropic.MessageStream[None], bounds: Bounds, on_start: Callable[[Tokens], None]
) -> str:
    """Read the stream to its end; return its stop reason, "" for one that was cut off."""
    said, whole = 0, False
    for event in stream:
        if event.type == "message_start":
            on_start(_tokens(stream.current_message_snapshot.usage))
        elif event.type == "text":
            said += len(event.text)
            if said > bounds.characters:
                raise PastBounds(TOO_LONG)
        elif event.type == "message_stop":
            whole = True
    # A whole message without a reason is still one: compatible servers leave it out.
    return stream.current_message_snapshot.stop_reason or ("end_turn" if whole else "")


def _heard(
    message: ParsedMessage[None], stop: str, bounds: Bounds, max_tokens: int, first: Tokens
) -> Heard:
    text = _whole("".join(block.text for block in message.content if block.type == "text"))
    tokens = _tokens(message.usage)
    if tokens.prompt < first.prompt:
        # Counts only grow through a stream: some servers end with noughts for what they said.
        tokens = replace(first, output=max(first.output, tokens.output))
    if stop in (TOO_LONG, TOO_SLOW):
        # Its end, which says how many tokens there were, was never read.
        tokens = _at_most(tokens, max_tokens)
    return Heard(text=text[: bounds.characters + 1], stop=str(stop), tokens=tokens)


def _at_most(tokens: Tokens, max_tokens: int) -> Tokens:
    return replace(tokens, output=max(tokens.output, max_tokens))


def _whole(text: str) -> str:
    """Return the text as UTF-8 can hold it: halves of a character joined, lone ones replaced.

    JSON may cut a character in two; some servers do so between two events.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def garbled(*, paid: bool) -> Busy:
    """Return what to raise of an answer that is none."""
    return Busy(
        "what the server answers is no Messages stream: is --base-url right?",
        tries=GARBLED_TRIES,
        paid=paid,
    )


def _tokens(usage: Usage) -> Tokens:
    """Return the tokens of a reply; an hour's cache writes are part of all that are said."""
    written = _count(usage.cache_creation_input_tokens)
    made = usage.cache_creation
    hour = min(_count(made.ephemeral_1h_input_tokens if made else 0), written)
    return Tokens(
        read=_count(usage.input_tokens),
        cache_write=written - hour,
        cache_write_hour=hour,
        cache_read=_count(usage.cache_read_input_tokens),
        output=_count(usage.output_tokens),
    )


def _count(said: object) -> int:
    """Return a number of tokens, whatever stands there: the SDK checks no types."""
    return min(max(said, 0), MOST_TOKENS) if isinstance(said, int) else 0
