"""A `python` that is not the environment's: every command says so in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(getattr(sys, "_base_executable", sys.executable)).resolve()


@pytest.mark.parametrize(
    "command",
    [
        "supervisor.py --task t.py",
        "-m actors.evaluator --task t.py --candidate c.py",
        "scripts/adopt.py all t.py",
        "scripts/compare.py --task t.py",
        "scripts/kernelbench.py --level 1",
        "scripts/report.py runs/t",
        "scripts/watch.py runs/t",
        "scripts/ship.py runs/t",
        "scripts/steer.py runs/t hold",
        "scripts/tickets.py runs/t",
        "scripts/story.py runs/t 1",
        "scripts/replay.py runs/t",
        "scripts/cards.py list",
        "scripts/chaos.py",
    ],
)
def test_a_python_without_the_packages_is_named_in_one_line(command: str) -> None:
    """The line names that Python, what it lacks and what to do; the status is 2."""
    # -I -S: without user's and site packages, as in a Python where nothing was installed.
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); module = sys.argv[1] == '-m';"
        " del sys.argv[:1 + module];"
        " (runpy.run_module if module else runpy.run_path)(sys.argv[0], run_name='__main__')"
    )
    ended = subprocess.run(
        [PYTHON, "-I", "-S", "-c", code, str(ROOT), *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (2, "") == (ended.returncode, ended.stdout), ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith(f"{PYTHON} does not have torch, zmq, msgspec, ")
    assert lines[0].endswith("bin/python") or "make doctor" in lines[0]
