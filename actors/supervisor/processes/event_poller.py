"""Waits for whatever comes first: a child's end, a signal, a word from the coordinator, the clock.

Children are watched by pidfd, signals through a wakeup pipe, so nothing is polled and nothing
runs inside a signal handler.
"""

from __future__ import annotations

import selectors
import signal
import socket
from types import FrameType

from actors.supervisor.processes.child_process import ChildProcess

# SIGUSR1 is a batch system's warning that the time is nearly up.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD)

PollerEvent = ChildProcess | signal.Signals  # that child has ended; that signal came


class EventPoller:
    """One selector over everything the supervisor waits for; one per process (it owns signals)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup, theirs = socket.socketpair()
        self._wakeup.setblocking(False)
        theirs.setblocking(False)
        self._theirs = theirs
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        # A full pipe means that a wakeup waits already: losing one more byte is harmless.
        self._old_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _ignore_signal) for number in SIGNALS}

    def add_child(self, child: ChildProcess) -> None:
        """Report the end of `child`, once, by returning it from `wait`."""
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)

    def add_descriptor(self, descriptor: int) -> None:
        """Wake up when `descriptor` becomes readable; its owner looks by itself."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def remove_descriptor(self, descriptor: int) -> None:
        """Wait for `descriptor` no more; before it is closed, since its number is used again."""
        self._selector.unregister(descriptor)

    def wait(self, limit_s: float) -> list[PollerEvent]:
        """Return what happened, after `limit_s` seconds at most; signals first."""
        ended: list[PollerEvent] = []
        signals: list[PollerEvent] = []
        for key, _ in self._selector.select(max(0.0, limit_s)):
            if isinstance(key.data, ChildProcess):
                self._selector.unregister(key.fd)
                ended.append(key.data)
            elif key.fileobj is self._wakeup:
                signals.extend(signal.Signals(number) for number in self._wakeup.recv(4096))
        return signals + ended

    def close(self) -> None:
        """Give the signals back to whoever had them."""
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._selector.close()
        self._wakeup.close()
        self._theirs.close()


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter has already written the number to the wakeup pipe."""
