"""The exit statuses of the command, of every actor and of every script.

The one exception is the end by a signal, with 128 and the signal's number as in a shell:
`actors/early_signals.py` must not pay for importing `enum`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """What a process tells the process that started it."""

    DONE = 0  # a run: every task has a confirmed winner, or --until-idle has nothing more to do;
    # the judge: every candidate is correct; an actor or a guest: it was told to leave
    NEGATIVE = 1  # done, and the answer is no: no confirmed winner, or a candidate is not correct
    USAGE = 2  # what the user asked for can't be done; one line on stderr says why
    STOPPED = 3  # before the end; a run can be resumed
    FAULT = 4  # the process could not do its work; for a run, even restarts did not help
    REFUSED = 5  # a worker that the coordinator does not let in
