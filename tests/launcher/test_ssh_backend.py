"""Hosts: only the connection carries the ticket; the end of the connection ends the job."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.launcher.backends import SubmissionRefusedError
from actors.launcher.job_controller import JobPhase
from actors.launcher.options import LaunchOptions
from actors.launcher.ssh_backend import SshBackend
from protocol import tickets
from protocol.tickets import CurveKeyPair, Ticket
from protocol.values import Role

SECRET = "s" * 40

# Instead of the supervisor: records its arguments and environment, and leaves on SIGTERM.
GUEST = """
import json, os, signal, sys, time
ticket = sys.argv[sys.argv.index("--join") + 1]
note = {"argv": sys.argv, "mode": os.stat(ticket).st_mode, "ticket": open(ticket).read(),
        "environment": dict(os.environ), "stdin": os.readlink("/proc/self/fd/0"), "path": ticket}
signal.signal(signal.SIGTERM, lambda *_: (open("left", "w").close(), sys.exit(0)))
open("note.new", "w").write(json.dumps(note))
os.rename("note.new", "note")
time.sleep(60)
"""

# Instead of ssh: a shell runs the last argument, as sshd does.
SSH = """#!/bin/sh
for last; do :; done
printf '%s\\n' "$@" >> "$(dirname "$0")/asked"
exec sh -c "$last"
"""


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError("it does not happen")
        time.sleep(0.01)


@pytest.fixture
def ticket(tmp_path: Path) -> Path:
    path = tmp_path / "launch.ticket.json"
    pair = CurveKeyPair(public="p" * 40, secret=SECRET)
    tickets.write(
        path,
        Ticket(
            run="r",
            name="n",
            addresses=("tcp://127.0.0.1:1",),
            server="x" * 40,
            keys={Role.EVALUATOR: pair},
            expires=time.time() + 60,
        ),
    )
    return path


def options(folder: Path, **more: object) -> LaunchOptions:
    (folder / "supervisor.py").write_text(GUEST)
    program = folder / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    return LaunchOptions(project=str(folder), ssh=(str(program), "-q"), evaluators=2, **more)


def test_a_ticket_reaches_a_host_as_a_private_file_and_in_no_command_line(
    tmp_path: Path, ticket: Path
) -> None:
    """Neither ssh's arguments nor the job's, nor its environment, hold a secret."""
    hosts = SshBackend(options(tmp_path, hosts=("gpu1",)), ticket, tmp_path)
    name = hosts.submit()
    note = tmp_path / "note"
    until(note.exists)
    found = tickets.msgspec.json.decode(note.read_text())

    assert {name: JobPhase.RUNNING} == hosts.phases()
    assert SECRET in found["ticket"]
    assert stat.S_IMODE(found["mode"]) == 0o600
    assert SECRET not in str(found["argv"]) + str(found["environment"])
    assert SECRET not in (tmp_path / "asked").read_text()
    assert "--evaluators" in found["argv"]
    assert found["stdin"] == "/dev/null"

    hosts.cancel([name])
    until(lambda: hosts.phases().get(name) is JobPhase.ENDED)
    until((tmp_path / "left").exists)
    assert not Path(found["path"]).parent.exists(), "the ticket stayed behind"


def test_a_host_has_one_job_at_a_time(tmp_path: Path, ticket: Path) -> None:
    """Two hosts take two jobs; the third is refused with a reason."""
    hosts = SshBackend(options(tmp_path, hosts=("gpu1", "gpu2")), ticket, tmp_path)
    names = [hosts.submit(), hosts.submit()]

    with pytest.raises(SubmissionRefusedError, match="every host"):
        hosts.submit()
    until((tmp_path / "note").exists)
    hosts.cancel(names)
    until(
        lambda: hosts.phases() in ({}, dict.fromkeys(names, JobPhase.ENDED)) or not hosts.phases()
    )


def test_a_missing_program_is_a_refusal(tmp_path: Path, ticket: Path) -> None:
    """A machine without ssh refuses the job; nothing else is raised."""
    found = LaunchOptions(project=str(tmp_path), hosts=("a",), ssh=("/no/such/ssh",))

    with pytest.raises(SubmissionRefusedError, match="No such file"):
        SshBackend(found, ticket, tmp_path).submit()


def test_a_host_that_refuses_is_a_job_that_ended(tmp_path: Path, ticket: Path) -> None:
    """A failure of ssh (no route, no key) ends the job; its output is in a file."""
    found = LaunchOptions(
        project=str(tmp_path), hosts=("a",), ssh=("sh", "-c", "echo no route >&2; exit 255")
    )
    hosts = SshBackend(found, ticket, tmp_path)
    try:
        name = hosts.submit()
    except SubmissionRefusedError:
        return  # it ended before it read the ticket
    until(lambda: hosts.phases().get(name, JobPhase.ENDED) is JobPhase.ENDED)
    assert "no route" in next(tmp_path.glob("*.out")).read_text()
