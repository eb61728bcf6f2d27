"""The machines of a chaos run: its own supervisor, and guests that join through a faulty network.

All are on loopback, each with a folder and a process tree of its own.  A machine that ends by
itself before the run's end is a finding; a machine that was killed is started again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from scripts.faults.tcp_proxy import FaultyProxy

ROOT = Path(__file__).resolve().parents[2]
TICKET = "ticket.json"
END_S = 60.0
PROC = Path("/proc")


def command(*, cheap: bool) -> list[str]:
    """Return the command line of the supervisor."""
    script = ROOT / ("scripts/faults/cheap_supervisor.py" if cheap else "supervisor.py")
    return [sys.executable, str(script)]


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


class SupervisedMachine:
    """One supervisor with its process tree."""

    def __init__(self, name: str, argv: list[str], folder: Path, run_dir: Path) -> None:
        self.name = name
        self.run_dir = run_dir
        self.starts = 0
        self._argv = argv
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the supervisor, in a session of its own; its output goes into a file."""
        self.starts += 1
        with (self._folder / f"{self.name}.out").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._argv, *more],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def status(self) -> int | None:
        """Return the exit status; None while it lives."""
        return self._process.poll() if self._process else None

    def last_line(self) -> str:
        """Return the last line of the output."""
        text = (self._folder / f"{self.name}.out").read_text(encoding="utf-8", errors="replace")
        return (text.strip().splitlines() or [""])[-1]

    def kill(self) -> None:
        """Kill -9 the supervisor alone: its children have to notice by themselves."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Ask the supervisor to leave; kill it after END_S."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def environment_mark(self) -> str:
        """Return the value of STARK_RUN in the environment of all its processes."""
        try:
            return (self.run_dir / "lock").read_text(encoding="utf-8").partition("\n")[0]
        except OSError:
            return ""

    def actors(self) -> dict[str, int]:
        """Return slot -> pid of its living actors."""
        pids = {}
        for pid, title in processes(self.environment_mark()):
            if title.startswith("stark ") and title.count(" ") == 1:
                pids[title.removeprefix("stark ")] = pid
        return pids


class ChaosGuest(SupervisedMachine):
    """A machine that joins a run through a proxy of its own."""

    def __init__(self, name: str, folder: Path, ticket: Path, port: int, *, cheap: bool) -> None:
        self.proxy = FaultyProxy(("127.0.0.1", port))
        own_ticket = folder / f"{name}.ticket"
        contents = json.loads(ticket.read_text(encoding="utf-8"))
        contents["addresses"] = [self.proxy.endpoint]
        own_ticket.touch(mode=0o600)
        own_ticket.write_text(json.dumps(contents), encoding="utf-8")
        argv = [*command(cheap=cheap), "--join", own_ticket.name, "--evaluators", "1"]
        super().__init__(name, [*argv, "--run-dir", name], folder, folder / name)


def processes(mark: str) -> Iterator[tuple[int, str]]:
    """Yield (pid, title) of every living process with a machine's mark in its environment."""
    if not mark:
        return
    variable = f"STARK_RUN={mark}".encode()
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if variable not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            title = (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
        except OSError:
            continue  # it has just ended, or belongs to another user
        if title:
            yield int(entry.name), title.decode(errors="replace").strip()


def orphans(marks: list[str], timeout_s: float = 5.0) -> dict[int, str]:
    """Return the processes that machines have left, after `timeout_s` at most to end."""
    until = time.monotonic() + timeout_s
    while True:
        remaining = {pid: title for mark in marks for pid, title in processes(mark)}
        remaining.pop(os.getpid(), None)
        if not remaining or time.monotonic() > until:
            return remaining
        time.sleep(0.1)
