"""One supervised process: started with a lifeline, watched by pidfd, killed with all below it.

The supervisor is the subreaper of everything that its children start, so what a dead child leaves
behind, also a grandchild that escaped with setsid, becomes our own child: `reap_orphans` kills and
reaps it.  Nothing here waits without a limit.
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

SWEEP_S = 5.0
POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class ChildProcess:
    """A running (or just ended, not yet reaped) process at a supervised place."""

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
    """Make this process the one to whom the orphans of its descendants fall."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def output_file(run_dir: Path, slot: str) -> Path:
    """Return the file that gets what a child prints."""
    return run_dir / "logs" / f"{slot}.out"


def start_child(spec: ChildSpec, run_dir: Path) -> ChildProcess:
    """Start one process in a session of its own, standing in the run directory."""
    incarnation = secrets.token_hex(8)
    ours, lifeline = os.pipe()
    try:
        with output_file(run_dir, spec.name).open("ab") as output:
            process = subprocess.Popen(
                spec.command(incarnation),
                stdin=ours,
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
        os.close(ours)
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
    """Kill a child; all that it started falls to `reap` and `reap_orphans` once it is dead."""
    _signal(child, signal.SIGKILL)


def _signal(child: ChildProcess, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(child.pidfd, number)


def reap(child: ChildProcess) -> tuple[int, str]:
    """Reap an ended child with its whole session; return its status, also in words."""
    # Before reaping: until then no stranger can be given this pid, nor this group.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    status = child.process.wait()
    os.close(child.pidfd)
    os.close(child.lifeline)
    return status, describe_status(status)


def describe_status(status: int) -> str:
    """Say in words how a process ended: `exit status 1`, `signal 9 (SIGKILL)`."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


def reap_orphans(own: Collection[int], limit_s: float = SWEEP_S) -> int:
    """Kill and reap every child of ours that is not in `own`; return how many there were.

    Killing one hands us its children, so this goes on until nothing is left or the time is up
    (a process stuck in a driver dies later; the next sweep reaps it).
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
