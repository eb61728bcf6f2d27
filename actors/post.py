"""Where an actor stands: address, slot, incarnation, run directory, and its lifeline.

The supervisor writes these on the command line.  The lifeline is standard input: a pipe whose
other end only the supervisor holds, so that its end of file means that the supervisor is gone,
however it went.
"""

from __future__ import annotations

import argparse
import os
import secrets
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from setproctitle import setproctitle

from protocol import tickets
from protocol.tickets import Credential
from protocol.values import Role, Value


class Post(Value, frozen=True, kw_only=True):
    """One actor's place in a run."""

    address: str  # of the coordinator
    slot: str
    incarnation: str
    run_dir: Path
    ticket: Path | None = None  # where the key lies, on a machine that has joined


def add_post_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every actor takes."""
    parser.add_argument("--connect", required=True, metavar="ADDR", help="the coordinator")
    parser.add_argument("--slot", required=True, help="the supervised place, such as coder-0")
    parser.add_argument("--incarnation", default="", help="fresh for every process")
    parser.add_argument("--run-dir", type=Path, default=Path(), help="the run directory")
    parser.add_argument("--ticket", type=Path, metavar="FILE", help="with this role's key")


def post_from(arguments: argparse.Namespace) -> Post:
    """Return the post that parsed arguments name."""
    return Post(
        address=arguments.connect,
        slot=arguments.slot,
        incarnation=arguments.incarnation or secrets.token_hex(8),
        run_dir=arguments.run_dir,
        ticket=arguments.ticket,
    )


def credential_of(post: Post, role: Role) -> Credential | None:
    """Return the key for `role`; None on the run's own machine, which needs none.

    Raises ValueError with one line when the ticket can't be used.
    """
    if post.ticket is None:
        return None
    credential = tickets.read(post.ticket).credential(role)
    if credential is None:
        raise ValueError(f"the ticket {post.ticket} has no key for {role}s")
    return credential


def name_process(slot: str) -> None:
    """Make `ps` and `top` say which actor this is."""
    setproctitle(f"stark {slot}")


def hold_lifeline(farewell: Callable[[], None]) -> None:
    """Watch standard input in a thread; at its end call `farewell` and leave at once.

    Nothing is watched where standard input is no pipe: by hand in a terminal, or in a test.
    """
    if not _is_pipe(sys.stdin.fileno()):
        return

    def watch() -> None:
        descriptor = sys.stdin.fileno()
        while True:
            select.select([descriptor], [], [])
            if not os.read(descriptor, 1024):
                farewell()
                # No cleaning up that could hang: whoever resumes cleans what is left.
                os._exit(0)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def on_terminate(action: Callable[[], None]) -> None:
    """Call `action` on SIGTERM and SIGUSR1 (a batch system's warning).

    SIGINT is the supervisor's: Ctrl-C reaches the whole group.
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
