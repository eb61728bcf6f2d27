"""Waits for the first event: a child's end, a signal, a message of the coordinator, or a timeout.

Children are watched by pidfd, signals through a wakeup pipe.  So nothing is polled, and nothing
runs inside a signal handler.
"""

from __future__ import annotations

import selectors
import signal
import socket
from types import FrameType

from actors.supervisor.processes.child_process import ChildProcess

# SIGUSR1 is a batch system's warning that the job's time is nearly over.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD)

PollerEvent = ChildProcess | signal.Signals  # that child has ended; that signal came


class EventPoller:
    """One selector over all that a supervisor waits for; one per process: it owns signals."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup, signal_end = socket.socketpair()
        self._wakeup.setblocking(False)
        signal_end.setblocking(False)
        self._signal_end = signal_end
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        # A full pipe means that a wakeup is pending already: one more lost byte is harmless.
        self._old_wakeup_fd = signal.set_wakeup_fd(signal_end.fileno(), warn_on_full_buffer=False)
        self._old_handlers = {number: signal.signal(number, _ignore_signal) for number in SIGNALS}

    def add_child(self, child: ChildProcess) -> None:
        """Report the end of `child`, once, by returning it from `wait`."""
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)

    def add_descriptor(self, descriptor: int) -> None:
        """Wake up when `descriptor` becomes readable; its owner reads it."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def remove_descriptor(self, descriptor: int) -> None:
        """Stop watching `descriptor`, before it is closed: its number will be used again."""
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
        """Restore the signal handlers of before."""
        signal.set_wakeup_fd(self._old_wakeup_fd)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._selector.close()
        self._wakeup.close()
        self._signal_end.close()


def signal_name(number: signal.Signals) -> str:
    """Return a stop signal as a user knows it."""
    return "Ctrl-C" if number is signal.SIGINT else number.name


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter has already written the number to the wakeup pipe."""
