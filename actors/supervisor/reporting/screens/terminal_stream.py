"""The stream of a terminal that may be closed while the run goes on (SIGHUP, a lost connection)."""

from __future__ import annotations

from contextlib import suppress
from typing import IO, Any


class TerminalStream:
    """A text stream that drops what its terminal does not take; all else is the stream's own."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`, or drop it."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, where the terminal is still there."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
