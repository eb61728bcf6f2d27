"""One supervised process: started with a lifeline, watched by pidfd, killed with its descendants.

The supervisor is the subreaper of everything that its children start.  So the descendants of a dead
child, also a grandchild that escaped with setsid, become our own children; `reap_orphans` kills and
reaps them.  Nothing here waits without a limit.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from actors import procfs
from actors.prctl import PR_SET_CHILD_SUBREAPER, prctl
from actors.supervisor.processes.child_specs import ChildSpec

REAP_ORPHANS_S = 5.0
POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class ChildProcess:
    """A running (or just ended, not yet reaped) process in a supervised slot."""

    spec: ChildSpec
    incarnation: str
    process: subprocess.Popen[bytes]
    pidfd: int  # readable when the process has ended
    lifeline: int  # our end of the pipe that is the child's standard input
    started: float  # monotonic

    @property
    def pid(self) -> int:
        return self.process.pid


def become_subreaper() -> None:
    """Let the kernel make orphans among our descendants children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def output_file(run_dir: Path, slot: str) -> Path:
    """Return the file for the output of a child."""
    return run_dir / "logs" / f"{slot}.out"


def start_child(spec: ChildSpec, run_dir: Path) -> ChildProcess:
    """Start one process in a session of its own, in the run folder."""
    incarnation = secrets.token_hex(8)
    child_end, lifeline = os.pipe()
    try:
        with output_file(run_dir, spec.name).open("ab") as output:
            process = subprocess.Popen(
                spec.command(incarnation),
                stdin=child_end,
                stdout=output,
                stderr=output,
                cwd=run_dir,
                env=dict(spec.environment),
                start_new_session=True,
            )
    except OSError:
        os.close(lifeline)
        raise
    finally:
        os.close(child_end)
    return ChildProcess(
        spec=spec,
        incarnation=incarnation,
        process=process,
        pidfd=os.pidfd_open(process.pid),
        lifeline=lifeline,
        started=time.monotonic(),
    )


def terminate_child(child: ChildProcess) -> None:
    """Ask a child to drain."""
    _signal(child, signal.SIGTERM)


def kill_child(child: ChildProcess) -> None:
    """Kill a child; `reap` and `reap_orphans` end what it started once it is dead."""
    _signal(child, signal.SIGKILL)


def _signal(child: ChildProcess, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(child.pidfd, number)


def reap(child: ChildProcess) -> tuple[int, str]:
    """Reap a dead child and kill its process group; return its status and a description of it."""
    # Before reaping: until then the kernel gives this pid, and this group, to no other process.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    status = child.process.wait()
    os.close(child.pidfd)
    os.close(child.lifeline)
    return status, describe_status(status)


def describe_status(status: int) -> str:
    """Describe how a process ended: `exit status 1`, `signal 9 (SIGKILL)`."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


def reap_orphans(own: Collection[int], limit_s: float = REAP_ORPHANS_S) -> int:
    """Kill and reap every child of ours that is not in `own`; return how many there were.

    A killed process leaves its children to us, so the loop repeats until none is left or the time
    is over.  A process that is stuck in a driver dies later; the next call reaps it.
    """
    seen: set[int] = set()
    give_up = time.monotonic() + limit_s
    while orphans := procfs.children_of(os.getpid()) - set(own):
        seen |= orphans
        for pid in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > give_up:
            break
        time.sleep(POLL_S)
    return len(seen)
