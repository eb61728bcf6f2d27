"""A streamed reply, read to its end within bounds on characters, bytes and time.

A server may send anything for any time.  `BoundedByteStream` bounds the bytes and the seconds,
`read_stream` the characters of the text.  A reply that exceeds a bound ends there, with a stop
reason of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx2
from msgspec.structs import replace

from actors.agents.models.model import STOP_TOO_LONG, STOP_TOO_SLOW, ModelBusyError, ReplyBounds
from protocol.prices import TokenCounts
from protocol.values import STOP_LOST, Value

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import RawMessageStreamEvent

MAX_TOKENS = 10**9  # of one kind, in one call
USAGE_FIELDS = (
    *("input_tokens", "output_tokens"),
    *("cache_creation_input_tokens", "cache_read_input_tokens"),
)
HOUR_CACHE_FIELD = "ephemeral_1h_input_tokens"
# Answers in a row that are not a Messages stream: the address is probably wrong.
MALFORMED_REPLY_TRIES = 5


class StreamedReply(Value, frozen=True, kw_only=True):
    """A model's text, its stop reason and the tokens that the server counted."""

    text: str
    stop: str
    tokens: TokenCounts


class ReplyBoundsError(Exception):
    """The reply is longer or slower than the bounds allow."""

    def __init__(self, stop: str) -> None:
        super().__init__(stop)
        self.stop = stop


class BoundedByteStream(httpx2.SyncByteStream):
    """The bytes of one response, up to the bounds."""

    def __init__(self, stream: httpx2.SyncByteStream, bounds: ReplyBounds) -> None:
        self._stream = stream
        self._bounds = bounds

    def __iter__(self) -> Iterator[bytes]:
        until = time.monotonic() + self._bounds.seconds
        left = self._bounds.wire_bytes
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise ReplyBoundsError(STOP_TOO_LONG)
            yield chunk
            if time.monotonic() > until:  # after the yield: what has come is read
                raise ReplyBoundsError(STOP_TOO_SLOW)

    def close(self) -> None:
        self._stream.close()


@dataclass
class StreamState:
    """The part of a reply that has come so far.

    Events are read one by one, not by the SDK's snapshot: the snapshot needs a usage in each event,
    and a compatible server may leave one out.
    """

    pieces: list[str] = field(default_factory=list)  # of the text
    text_chars: int = 0
    stop: str = ""
    is_whole: bool = False
    first: TokenCounts | None = None  # the counts at the reply's beginning; None: not begun
    counts: dict[str, int] = field(default_factory=dict)  # the last count of each kind
    has_final_count: bool = False  # the output tokens were counted at the end

    def add_event(self, event: RawMessageStreamEvent) -> None:
        """Add one event; an event of another type changes nothing."""
        if event.type == "message_start":
            self._count(getattr(event.message, "usage", None))
            self.first = self.first or self.tokens
        elif event.type == "content_block_start" and event.content_block.type == "text":
            self._add_text(event.content_block.text)
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            self._add_text(event.delta.text)
        elif event.type == "message_delta":
            self.stop = str(event.delta.stop_reason or self.stop)
            usage = getattr(event, "usage", None)
            self._count(usage)
            self.has_final_count = isinstance(getattr(usage, "output_tokens", None), int)
        elif event.type == "message_stop":
            self.is_whole = True

    @property
    def tokens(self) -> TokenCounts:
        """The tokens so far; the server's count of cache writes includes those for an hour."""
        written = self.counts.get("cache_creation_input_tokens", 0)
        hour = min(self.counts.get(HOUR_CACHE_FIELD, 0), written)
        return TokenCounts(
            read=self.counts.get("input_tokens", 0),
            cache_write=written - hour,
            cache_write_hour=hour,
            cache_read=self.counts.get("cache_read_input_tokens", 0),
            output=self.counts.get("output_tokens", 0),
        )

    def _add_text(self, text: str) -> None:
        self.text_chars += len(text)
        self.pieces.append(text)

    def _count(self, usage: object) -> None:
        for kind in USAGE_FIELDS:
            self._set_count(kind, getattr(usage, kind, None))
        self._set_count(
            HOUR_CACHE_FIELD,
            getattr(getattr(usage, "cache_creation", None), HOUR_CACHE_FIELD, None),
        )

    def _set_count(self, kind: str, count: object) -> None:
        # The SDK checks no types: the field may hold anything.
        if isinstance(count, int):
            self.counts[kind] = min(max(count, 0), MAX_TOKENS)


def read_stream(
    stream: anthropic.Stream[RawMessageStreamEvent],
    bounds: ReplyBounds,
    max_tokens: int,
    on_first_event: Callable[[TokenCounts], None],
) -> StreamedReply:
    """Read a reply; call `on_first_event` at its first event, with the server's counts until then.

    Raises `ModelBusyError` for a stream that ends early and for an answer that is not a stream.
    """
    state = StreamState()
    try:
        _read(stream, bounds, state, on_first_event)
    except ReplyBoundsError as past:
        state.stop = past.stop
    except (ValueError, AssertionError, RuntimeError, TypeError, LookupError, AttributeError) as e:
        # The SDK does not check what it reads: an answer of another form raises one of these.
        raise not_a_stream(paid=state.first is not None) from e
    if state.first is None:
        # A server without streams has answered all the same, and charges for it.
        kind = stream.response.headers.get("content-type", "")
        raise not_a_stream(paid="json" in kind)
    # A whole message without a stop reason counts: compatible servers leave the reason out.
    stop = state.stop or ("end_turn" if state.is_whole else "")
    if not stop:
        raise ModelBusyError("the reply was cut off before its end", may_be_paid=True)
    tokens = _counted(state.first, state.tokens)
    if not state.has_final_count:
        # The server's last count was not sent, or not read: charge the most.
        tokens = _at_most(tokens, max_tokens)
    text = _joined_surrogates("".join(state.pieces))
    return StreamedReply(text=text[: bounds.characters + 1], stop=stop, tokens=tokens)


def cost_of_broken_call(first: TokenCounts, max_tokens: int) -> StreamedReply | None:
    """Return the most that a call which broke off after it began can have cost.

    The prompt counts as the server counted it, the output as `max_tokens`: a server goes on for a
    while after the connection is lost.  None where the server counted no prompt (some proxies count
    at the end only): then nothing is known.
    """
    if not first.prompt:
        return None
    return StreamedReply(text="", stop=STOP_LOST, tokens=_at_most(first, max_tokens))


def _read(
    stream: anthropic.Stream[RawMessageStreamEvent],
    bounds: ReplyBounds,
    state: StreamState,
    begun: Callable[[TokenCounts], None],
) -> None:
    """Read the stream to its end, or to the bound on its characters."""
    for event in stream:
        had_begun = state.first is not None
        state.add_event(event)
        if not had_begun and state.first is not None:
            begun(state.first)
        if state.text_chars > bounds.characters:
            raise ReplyBoundsError(STOP_TOO_LONG)


def _counted(first: TokenCounts, last: TokenCounts) -> TokenCounts:
    """Return the tokens of a whole reply: counts only grow through a stream.

    Some servers end with zeros for a prompt that they had counted.
    """
    if last.prompt >= first.prompt:
        return last
    return replace(first, output=max(first.output, last.output))


def _at_most(tokens: TokenCounts, max_tokens: int) -> TokenCounts:
    return replace(tokens, output=max(tokens.output, max_tokens))


def _joined_surrogates(text: str) -> str:
    """Return text that UTF-8 can hold: surrogate pairs are joined, lone surrogates replaced.

    JSON may cut a character in two surrogates, and some servers send these in two events.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def not_a_stream(*, paid: bool) -> ModelBusyError:
    """Return the error for an answer that is not a Messages stream."""
    return ModelBusyError(
        "the server's answer is not a Messages stream: is --base-url right?",
        tries=MALFORMED_REPLY_TRIES,
        may_be_paid=paid,
    )
