"""One connection of the server: closed when no request arrives on it.

uvicorn waits for ever for a request's first bytes and for the rest of its headers, so that silent
connections could use up the number that is allowed.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_S = 5.0  # twice that at most, without a whole request


class TimedConnection(H11Protocol):
    """HTTP/1.1 with a limit on the time between requests, and on the time that one's head takes."""

    _was_idle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and look from time to time whether there is a request."""
        super().connection_made(transport)
        self.loop.call_later(IDLE_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.transport.is_closing():
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._was_idle:
            self.transport.close()
            return
        self._was_idle = is_idle
        self.loop.call_later(IDLE_S, self._close_if_idle)
