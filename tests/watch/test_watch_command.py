"""`python scripts/watch.py` as a user types it: mistakes are one line, the process ends cleanly."""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from synthetic_run import write_run

from actors.cli import UsageError
from actors.supervisor import page_server
from actors.supervisor.cli import flags
from actors.supervisor.page_server import PageServer
from actors.watch import server
from scripts import watch

TOP = Path(__file__).parent.parent.parent
SCRIPT = TOP / "scripts" / "watch.py"


def test_the_documented_commands_are_understood() -> None:
    """Each command line of docs/watch.md is one that the programs take."""
    page = (TOP / "docs" / "watch.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"`python ([^`]+\.py [^`]+)`", page)]
    watched = [words[1:] for words in commands if words[0] == "scripts/watch.py"]
    supervised = [words[1:] for words in commands if words[0] == "supervisor.py"]

    assert [*watched, *supervised]
    assert len(watched) + len(supervised) == len(commands)
    for words in watched:
        assert watch.parser().parse_args(words).runs
    for words in supervised:
        assert flags.parse_arguments(words).watch


def test_the_page_is_of_a_runs_own_supervisor() -> None:
    """--steer needs --watch, and a guest has no run folder to show."""
    for words in (["--task", "t.py", "--steer"], ["--join", "ticket", "--watch"]):
        with pytest.raises(UsageError, match="--watch"):
            flags.parse_arguments(words)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line with which a command line is refused."""
    try:
        status = watch.main(list(arguments))
    except SystemExit as exit_request:
        status = int(str(exit_request.code))
    error = capsys.readouterr().err
    assert 2 == status
    assert 1 == error.count("\n")
    return error


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "RUN"),
        (("run", "--port", "65536"), "--port"),
        (("run", "--port", "x"), "--port"),
        (("run", "--host", "192.0.2.1"), "--tls-cert"),
        (("run", "--host", "example.org"), "--tls-cert"),
        (("run", "--host", "0.0.0.0"), "--host"),  # noqa: S104
        (("run", "--host", "::"), "--host"),
        (("run", "--tls-cert", "a.pem"), "--tls-key"),
        (("run", "--tls-cert", "none.pem", "--tls-key", "none.pem"), "--tls-cert"),
        (("run", "--token-file", "/nowhere/at/all"), "--token-file"),
        (("run", "--hots", "x"), "--hots"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], part: str
) -> None:
    """A wrong flag is refused with a line that names it, before anything listens."""
    assert part in refused(capsys, *arguments)


def test_missing_packages_are_named_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the command for this interpreter; the project is in no package index."""
    monkeypatch.setattr(page_server, "WEB_PACKAGES", ("starlette", "no_such_package"))
    line = refused(capsys, "run")
    assert line.rstrip().endswith(
        f"needs no_such_package: {sys.executable} -m pip install no_such_package"
    )


def test_a_port_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Another server on the port is reported, with the port."""
    with server.listening_socket(server.ServerOptions(runs=())) as taken:
        port = taken.getsockname()[1]
        assert str(port) in refused(capsys, "run", "--port", str(port))


def test_a_token_file_is_private_and_stays(tmp_path: Path) -> None:
    """The token of a file is the same at each start; a file that others read is refused."""
    path = tmp_path / "token"
    first = server.stored_token(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert first == server.stored_token(path)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        server.stored_token(path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(UsageError, match="no token"):
        server.stored_token(path)


def test_a_runs_name_in_addresses_is_not_its_path(tmp_path: Path) -> None:
    """Identifiers stay the same at each start, differ between runs, and hold no part of a path."""
    one, other = server.run_identifier(tmp_path / "a"), server.run_identifier(tmp_path / "b")
    assert one == server.run_identifier(tmp_path / "x" / ".." / "a")
    assert one != other
    assert re.fullmatch("[0-9a-f]{12}", one)


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command; yield its process and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "#token=" in line)
        yield process, line.split()[1]
    finally:
        process.kill()
        process.communicate()


def test_the_command_serves_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    """The printed address opens the page; Ctrl-C ends it with status 0, without a traceback."""
    run_dir = write_run(tmp_path / "run", 1)
    before = sorted(path.name for path in run_dir.iterdir())
    with started(str(run_dir), str(tmp_path / "later")) as (process, address):
        page, _, token = address.partition("#token=")
        with urllib.request.urlopen(page, timeout=10) as answer:  # noqa: S310
            assert b"<!doctype html>" in answer.read().lower()
        request = urllib.request.Request(  # noqa: S310
            f"{page}api/runs", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            assert b'"later"' in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert (0, "") == (process.returncode, errors)
    assert before == sorted(path.name for path in run_dir.iterdir())


def test_the_page_of_a_supervisor_ends_with_it(tmp_path: Path) -> None:
    """`--watch`: the address is known at once, and the token is in no command line."""
    page = PageServer(write_run(tmp_path, 1), os.environ, may_steer=False)
    address, _, token = page.address.partition("#token=")
    (pid,) = page.pids
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310
            assert 200 == answer.status
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    finally:
        page.close()

    assert not Path(f"/proc/{pid}").exists()


def test_a_killed_page_is_no_trouble_for_its_supervisor(tmp_path: Path) -> None:
    """The supervisor closes a page that is dead already, and one that hangs."""
    for number in (signal.SIGKILL, signal.SIGSTOP):
        page = PageServer(tmp_path, os.environ, may_steer=True)
        os.kill(page.pids[0], number)
        page.close(wait_s=0.5)
        assert not Path(f"/proc/{page.pids[0]}").exists()


ORPHANS = """
import random, subprocess, sys
from pathlib import Path
from actors.supervisor.processes.process_tree import ProcessTree
page, orphan = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
tree = ProcessTree([], Path(), random.Random(1), on_start=print, others=(page.pid,))
assert tree.kill_orphans() == 1
assert page.poll() is None
page.kill()
"""


def test_a_supervisor_does_not_take_its_page_for_an_orphan() -> None:
    """When an actor dies, its descendants are killed; the page, which is a child too, lives on."""
    subprocess.run([sys.executable, "-c", ORPHANS], cwd=TOP, check=True, timeout=60)
