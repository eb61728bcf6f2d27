"""Signal handling before a run can stop itself: one line, and the shell's exit status for signals.

The module is imported before all others, so its import must be fast: an exception during an import
would print a traceback of the import system.
"""

from __future__ import annotations

# `signal` makes enumerations for 30 ms, in which a signal may arrive.
import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False  # as in typing, which takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

EXIT_SIGNAL = 128  # plus the signal's number, as in shells
SIGNAL_NAMES = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "SIGHUP",
    signal.SIGUSR1: "SIGUSR1",
}


class SignalReceivedError(BaseException):
    """A signal arrived before the run began; its handlers undo what is half made."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status for the signal."""
        return EXIT_SIGNAL + self.number

    def __str__(self) -> str:
        return f"stopped by {SIGNAL_NAMES.get(self.number, self.number)}"


def end_when_interrupted() -> None:
    """Make signals end this process with one line, also during an import.

    For the time in which this process has made nothing that would have to be undone.
    """
    _handle(_end)


def unwind_when_interrupted() -> None:
    """Make signals raise `SignalReceivedError`, so that half-made files are removed."""
    _handle(_unwind)


def ignore_interrupts() -> None:
    """Ignore signals that would raise: a run handles its own, or it has ended.

    Handlers from other modules stay.
    """
    for number in SIGNAL_NAMES:
        if signal.getsignal(number) is _unwind:
            signal.signal(number, signal.SIG_IGN)


def _handle(act: Callable[[int, FrameType | None], None]) -> None:
    for number in SIGNAL_NAMES:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, act)


def _end(number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, f"{SignalReceivedError(number)} before anything was begun\n".encode())
    finally:
        os._exit(EXIT_SIGNAL + number)


def _unwind(number: int, _frame: FrameType | None) -> None:
    raise SignalReceivedError(number)
