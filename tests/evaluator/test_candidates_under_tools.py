"""A candidate in a fresh interpreter under a tool: its report, its limits, its network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from evaluator_samples import candidate, descendants, settles, wrong_candidate

from actors.evaluator.children import fresh_interpreter
from actors.evaluator.judge import Judge
from actors.evaluator.profiling.tool_run import run_tool
from actors.evaluator.reference.fixture import ReferenceFixture
from protocol.values import Task

TOOL_S = 120.0  # torch is imported under it, on a machine that may be busy


# Says which tool it runs under, and what it reaches of the network.
TALKS = """\
import os, socket
print("under", os.environ["TOOL"], flush=True)
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname(), 5).close()
try:
    socket.create_connection(("127.0.0.1", {port}), 5).close()
except OSError:
    print("in a network", "of its own", flush=True)
"""


@pytest.fixture
def fixture(judge: Judge, task: Task) -> ReferenceFixture:
    """The reference whose candidates the tools run."""
    judge.judge(task, wrong_candidate())  # starts it
    found = judge.session.references.fixture_of(task)
    assert isinstance(found, ReferenceFixture)
    return found


def test_a_tool_can_be_put_around_a_candidate(judge: Judge, fixture: ReferenceFixture) -> None:
    """A fresh interpreter that another program started, confined like any runner, answers.

    Tools reach their program over 127.0.0.1, in a network that reaches nothing else.
    """
    if not judge.session.zygote.ready.namespaces:
        pytest.skip("this user gets no namespaces here, and tools are not run")
    folder = judge.scratch.fresh("tool")
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = run_tool(
            judge.session.zygote,
            fixture,
            candidate(forward=TALKS.format(port=server.getsockname()[1])),
            judge.session.confinements.confinement(folder, trusted=False),
            "asan",
            ("env", "TOOL=glass"),
            TOOL_S,
        )
        server.settimeout(0.01)
        with pytest.raises(TimeoutError):
            server.accept()
    judge.scratch.remove(folder)
    assert ran.is_finished
    assert "under glass" in ran.text
    assert "in a network of its own" in ran.text


# Writes a report of its own to its standard output, and through the tool's; and moves a file from
# folder to folder, as Triton does in its cache.
FORGES = """\
import os, pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "own").mkdir()
(folder / "own" / "kernel").touch()
(folder / "own" / "kernel").rename(folder / "kernel")
print("forged", flush=True)
for pid in (os.getppid(), 1):
    try:
        with open(f"/proc/{pid}/fd/1", "w") as report:
            report.write("forged")
    except OSError:
        pass
"""


def test_a_candidate_writes_nothing_into_a_tools_report(
    judge: Judge, fixture: ReferenceFixture
) -> None:
    """The tool's standard output is the tool's alone, also for a process beside it.

    What keeps it from that kept Triton from its cache: no such candidate had a profile.
    """
    if not judge.session.zygote.ready.landlock:
        pytest.skip("this kernel has no landlock, and a report can be forged")
    folder = judge.scratch.fresh("tool")
    ran = run_tool(
        judge.session.zygote,
        fixture,
        candidate(forward=FORGES),
        judge.session.confinements.confinement(folder, trusted=False),
        "memcheck",
        ("sh", "-c", 'echo report; "$@"; echo "status $?"', "sh"),
        TOOL_S,
    )
    judge.scratch.remove(folder)
    assert not ran.failed
    assert ["report", "status 0"] == ran.text.splitlines()


def test_a_tool_that_hangs_is_killed_at_its_limit(judge: Judge, fixture: ReferenceFixture) -> None:
    """With its whole tree; what it wrote before is kept."""
    before = descendants(os.getpid())
    folder = judge.scratch.fresh("tool")
    ran = run_tool(
        judge.session.zygote,
        fixture,
        candidate(),
        judge.session.confinements.confinement(folder, trusted=False),
        "memcheck",
        ("sh", "-c", "echo report; sleep 1000 & exec sleep 1000"),
        0.5,
    )
    judge.scratch.remove(folder)
    assert "report" == ran.text.strip()
    assert not ran.is_finished
    assert settles(os.getpid(), before)


def test_a_tool_finds_our_rooms_where_folders_can_t_be_listed() -> None:
    """The program around a candidate imports without any folder of ours on Python's path."""
    libraries = next(path for path in sys.path if (Path(path) / "msgspec").is_dir())
    program = fresh_interpreter.program_text().replace("\nmain()", "\nprint(main.__module__)")
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": libraries},
        cwd="/",
    )
    assert done.stdout.strip() == "actors.evaluator.children.fresh_interpreter", done.stderr
