"""The exit statuses of the command, of every actor and of every script.

The one exception is the end by a signal, with 128 and the signal's number as in a shell:
`actors/startup_signals.py` must not pay for importing `enum`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """What a process tells the process that started it; scripts and users rely on the numbers."""

    # A run: every task has a confirmed winner, or --until-idle leaves nothing to do.  The judge:
    # every candidate is correct.  An actor or a guest: it left when it was asked to.
    DONE = 0
    # The work is done and its answer is no: no confirmed winner, or a candidate is not correct.
    NEGATIVE = 1
    # What the user asked for can't be done; one line on stderr says why.
    USAGE = 2
    # The process ended before its work was done; a run can be resumed.
    STOPPED = 3
    # The process could not do its work; for a run, restarts did not help.
    FAULT = 4
    # The coordinator refused this worker.
    REFUSED = 5
