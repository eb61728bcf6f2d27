"""A streamed reply, read to its end and no further: bounded in words, bytes and time.

Whatever a server sends, an agent's memory and patience have an end: `BoundedByteStream` counts what
comes off the wire, `read_stream` the words.  A reply that goes past a bound is kept as far as it
came, with a stop reason of ours.
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
MALFORMED_REPLY_TRIES = 5  # answers in a row that are no Messages stream: probably a wrong address


class StreamedReply(Value, frozen=True, kw_only=True):
    """What a model said, and what it counted."""

    text: str
    stop: str
    tokens: TokenCounts


class ReplyBoundsError(Exception):
    """The server says more, or says it more slowly, than anyone will read."""

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
            if time.monotonic() > until:  # what has come was read
                raise ReplyBoundsError(STOP_TOO_SLOW)

    def close(self) -> None:
        self._stream.close()


@dataclass
class StreamState:
    """What has come of a reply so far.

    The events are taken one by one and by hand: the SDK's own snapshot wants a usage in each, and
    a server that speaks the API well enough to be understood may leave one out.
    """

    words: list[str] = field(default_factory=list)
    said: int = 0  # characters
    stop: str = ""
    whole: bool = False
    first: TokenCounts | None = None  # as counted when it began; None: it has not begun
    counts: dict[str, int] = field(default_factory=dict)  # the last said of each kind
    ended: bool = False  # its words were counted at their end

    def add_event(self, event: RawMessageStreamEvent) -> None:
        """Take in one event; what none of ours is says nothing."""
        if event.type == "message_start":
            self._count(getattr(event.message, "usage", None))
            self.first = self.first or self.tokens
        elif event.type == "content_block_start" and event.content_block.type == "text":
            self._say(event.content_block.text)
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            self._say(event.delta.text)
        elif event.type == "message_delta":
            self.stop = str(event.delta.stop_reason or self.stop)
            usage = getattr(event, "usage", None)
            self._count(usage)
            self.ended = isinstance(getattr(usage, "output_tokens", None), int)
        elif event.type == "message_stop":
            self.whole = True

    @property
    def tokens(self) -> TokenCounts:
        """The tokens by now; an hour's cache writes are part of all that are said."""
        written = self.counts.get("cache_creation_input_tokens", 0)
        hour = min(self.counts.get(HOUR_CACHE_FIELD, 0), written)
        return TokenCounts(
            read=self.counts.get("input_tokens", 0),
            cache_write=written - hour,
            cache_write_hour=hour,
            cache_read=self.counts.get("cache_read_input_tokens", 0),
            output=self.counts.get("output_tokens", 0),
        )

    def _say(self, text: str) -> None:
        self.said += len(text)
        self.words.append(text)

    def _count(self, usage: object) -> None:
        for kind in USAGE_FIELDS:
            self._note(kind, getattr(usage, kind, None))
        self._note(
            HOUR_CACHE_FIELD,
            getattr(getattr(usage, "cache_creation", None), HOUR_CACHE_FIELD, None),
        )

    def _note(self, kind: str, said: object) -> None:
        # Whatever stands there: the SDK checks no types.
        if isinstance(said, int):
            self.counts[kind] = min(max(said, 0), MAX_TOKENS)


def read_stream(
    stream: anthropic.Stream[RawMessageStreamEvent],
    bounds: ReplyBounds,
    max_tokens: int,
    on_first_event: Callable[[TokenCounts], None],
) -> StreamedReply:
    """Read a reply; say `on_first_event` with its first event, and what the server counted by then.

    Raises `ModelBusyError` for a stream that ends early or is none.
    """
    state = StreamState()
    try:
        _read(stream, bounds, state, on_first_event)
    except ReplyBoundsError as past:
        state.stop = past.stop
    except (ValueError, AssertionError, RuntimeError, TypeError, LookupError, AttributeError) as e:
        # The SDK trusts what it reads: a server that answers something else shows up as these.
        raise not_a_stream(paid=state.first is not None) from e
    if state.first is None:
        # A server that knows no streams has answered all the same, and wants its money.
        kind = stream.response.headers.get("content-type", "")
        raise not_a_stream(paid="json" in kind)
    # A whole message without a reason is still one: compatible servers leave it out.
    stop = state.stop or ("end_turn" if state.whole else "")
    if not stop:
        raise ModelBusyError("the reply was cut off before its end", may_be_paid=True)
    tokens = _counted(state.first, state.tokens)
    if not state.ended:
        # What says how many tokens there were was never said, or never read.
        tokens = _at_most(tokens, max_tokens)
    text = _whole("".join(state.words))
    return StreamedReply(text=text[: bounds.characters + 1], stop=stop, tokens=tokens)


def cost_of_broken_call(first: TokenCounts, max_tokens: int) -> StreamedReply | None:
    """Return what a call that broke off after it began is known to have come to, at its most.

    Its prompt as the server counted it, and all the words that it may have had: a server goes on
    for a while when nobody listens any more.  None where it counted no prompt (some proxies do
    that at the end only): then nothing is known.
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
    """Read the stream to its end, or to the bound on its words."""
    for event in stream:
        early = state.first is None
        state.add_event(event)
        if early and state.first is not None:
            begun(state.first)
        if state.said > bounds.characters:
            raise ReplyBoundsError(STOP_TOO_LONG)


def _counted(first: TokenCounts, last: TokenCounts) -> TokenCounts:
    """Return the tokens of a whole reply: counts only grow through a stream.

    Some servers end with noughts for a prompt that they had counted.
    """
    if last.prompt >= first.prompt:
        return last
    return replace(first, output=max(first.output, last.output))


def _at_most(tokens: TokenCounts, max_tokens: int) -> TokenCounts:
    return replace(tokens, output=max(tokens.output, max_tokens))


def _whole(text: str) -> str:
    """Return the text as UTF-8 can hold it: halves of a character joined, lone ones replaced.

    JSON may cut a character in two; some servers do so between two events.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def not_a_stream(*, paid: bool) -> ModelBusyError:
    """Return what to raise of an answer that is none."""
    return ModelBusyError(
        "what the server answers is no Messages stream: is --base-url right?",
        tries=MALFORMED_REPLY_TRIES,
        may_be_paid=paid,
    )
