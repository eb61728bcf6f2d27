"""Plain hosts: one job a host over ssh, or jobs on this machine (`local:FILE`, for a first try).

The ticket is sent over the connection's standard input, so it needs no shared disk and is in no
command line.  When the connection ends for any reason, the remote shell ends what it started.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from actors.launcher.backends import SavedState, SubmissionRefusedError
from actors.launcher.job_controller import JobPhase
from actors.launcher.options import LaunchOptions
from protocol import tickets

# The whole job in the remote shell: make a private folder, read the ticket from the first line,
# start the supervisor, and a reader that asks it to leave when the connection ends.
JOB_SCRIPT = """
umask 077
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
IFS= read -r ticket || exit 1
printf '%s' "$ticket" > "$place/ticket.json"
unset ticket
exec 3<&0
{setup}
cd {folder} || exit 1
{argv} --join "$place/ticket.json" --run-dir "$place/guest" < /dev/null 3<&- &
job=$!
(cat <&3 > /dev/null; kill -TERM $job 2> /dev/null) > /dev/null 2>&1 &
wait $job
"""


class SshBackend:
    """One process for each job: ssh, or a shell on this machine."""

    def __init__(self, options: LaunchOptions, ticket: Path, folder: Path) -> None:
        self._options = options
        self._ticket = ticket
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._host_of_job: dict[str, str] = {}
        self._number = 0

    def submit(self) -> str:
        in_use = set(self._host_of_job.values())
        host = next((host for host in self._options.hosts if host not in in_use), "")
        if self._options.hosts and not host:
            raise SubmissionRefusedError("every host has its job")
        self._number += 1
        name = f"{host or 'local'}-{self._number}"
        with (self._folder / f"{name.replace('/', '_')}.out").open("ab") as output:
            try:
                process = subprocess.Popen(
                    self._argv(host),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=not host,  # a local shell gets signals with its descendants
                )
            except OSError as error:
                raise SubmissionRefusedError(f"{self._options.ssh[0]}: {error.strerror}") from error
        self._running[name], self._host_of_job[name] = process, host or name
        try:
            if process.stdin is not None:
                process.stdin.write(
                    msgspec.json.encode(tickets.read(self._ticket)).replace(b"\n", b"") + b"\n"
                )
                process.stdin.flush()
        except (OSError, ValueError) as error:
            self._forget(name)
            raise SubmissionRefusedError(f"{host or 'this machine'}: {error}") from error
        return name

    def phases(self) -> dict[str, JobPhase]:
        found = {}
        for name, process in list(self._running.items()):
            if process.poll() is None:
                found[name] = JobPhase.RUNNING
            else:
                found[name] = JobPhase.ENDED
                self._forget(name)
        return found

    def cancel(self, jobs: Iterable[str]) -> None:
        for name in jobs:
            process = self._running.get(name)
            if process is not None and process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()

    def saved_state(self) -> SavedState:
        return {}  # these jobs end with the launcher

    def _forget(self, name: str) -> None:
        process = self._running.pop(name)
        del self._host_of_job[name]
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)

    def _argv(self, host: str) -> list[str]:
        options = self._options
        argv = [options.python, f"{options.project}/supervisor.py"]
        if options.evaluators is not None:
            argv += ["--evaluators", str(options.evaluators)]
        folder = options.folder or (options.project if host else str(self._folder))
        script = JOB_SCRIPT.format(
            setup=options.setup, folder=shlex.quote(folder), argv=shlex.join(argv)
        )
        return (
            [*options.ssh, host, f"sh -c {shlex.quote(script)}"] if host else ["sh", "-c", script]
        )
