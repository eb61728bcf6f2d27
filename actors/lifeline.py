"""The lifeline of an actor, by which it ends with its supervisor, and its termination signals.

The lifeline is standard input: a pipe whose other end only the supervisor holds, so that its end of
file means that the supervisor is gone, also after a kill.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable


def hold_lifeline(before_exit: Callable[[], None]) -> None:
    """Watch standard input in a thread; at its end of file call `before_exit` and exit at once.

    Without a pipe as standard input, as in a terminal or a test, there is no lifeline.
    """
    if not _is_pipe(sys.stdin.fileno()):
        return

    def watch() -> None:
        descriptor = sys.stdin.fileno()
        while True:
            select.select([descriptor], [], [])
            if not os.read(descriptor, 1024):
                before_exit()
                # No other cleanup, which could hang: a resumed run cleans up.
                os._exit(0)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def on_terminate(action: Callable[[], None]) -> None:
    """Call `action` on SIGTERM and SIGUSR1 (a batch system's warning).

    SIGINT is ignored: Ctrl-C reaches the whole process group, and the supervisor handles it.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda _number, _frame: action())
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return (mode & 0o170000) == 0o010000
