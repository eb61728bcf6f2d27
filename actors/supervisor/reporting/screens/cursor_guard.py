"""Shows the terminal's cursor again when a signal ends or stops this process.

The live view hides the cursor.  Its own end and the signals that a run handles show it again; this
is for Ctrl-\\ (SIGQUIT) and Ctrl-Z (SIGTSTP), which the system would act on at once.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

from rich.console import Console

SIGNALS = (signal.SIGQUIT, signal.SIGTSTP)


class CursorGuard:
    """The handlers of these signals while the cursor is hidden."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._former: dict[signal.Signals, Any] = {}

    def begin(self) -> None:
        """Take over the signals; only for the main thread."""
        for number in SIGNALS:
            self._former.setdefault(number, signal.signal(number, self._act))

    def end(self) -> None:
        """Give the signals back."""
        while self._former:
            signal.signal(*self._former.popitem())

    def _act(self, number: int, _frame: FrameType | None) -> None:
        self._console.show_cursor(True)
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # returns when the shell continues the process
            self._console.show_cursor(False)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
