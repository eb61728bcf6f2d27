"""What a signal does before a run has its own way to stop: one line, and the shell's status for it.

Imported before everything else and therefore costs next to nothing: an exception in the midst of
an import would end in a traceback of Python's own machinery.
"""

from __future__ import annotations

# `signal` itself is 30 ms of enumerations: long enough to be hit in.
import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False  # as in typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

EXIT_SIGNAL = 128  # and the signal's number, as shells have it
SIGNAL_NAMES = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "SIGHUP",
    signal.SIGUSR1: "SIGUSR1",
}


class SignalReceivedError(BaseException):
    """A signal came before anything was begun; what was half made is taken back on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status that says so."""
        return EXIT_SIGNAL + self.number

    def __str__(self) -> str:
        return f"stopped by {SIGNAL_NAMES.get(self.number, self.number)}"


def end_when_interrupted() -> None:
    """From here on a signal ends this process with one line, also in the midst of an import.

    Nothing is made yet that would have to be taken back.
    """
    _handle(_end)


def unwind_when_interrupted() -> None:
    """From here on a signal raises `SignalReceivedError`, so that what is half made is taken
    back.
    """
    _handle(_unwind)


def ignore_interrupts() -> None:
    """From here on no signal raises: a run has its own way to stop, or has come to its end.

    Handlers that are not of this file stay.
    """
    for number in SIGNAL_NAMES:
        if signal.getsignal(number) is _unwind:
            signal.signal(number, signal.SIG_IGN)


def _handle(act: Callable[[int, FrameType | None], None]) -> None:
    for number in SIGNAL_NAMES:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, act)


def _end(number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, f"{SignalReceivedError(number)} before anything was begun\n".encode())
    finally:
        os._exit(EXIT_SIGNAL + number)


def _unwind(number: int, _frame: FrameType | None) -> None:
    raise SignalReceivedError(number)
