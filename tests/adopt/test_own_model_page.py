"""docs/own-model.md: its model file and its commands work as they are written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_winners import ONCE, candidate, winner_file

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "own-model.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"^```\n(python .*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
PLANTED = Path(__file__).parent / "models" / "planted.py"
LAX = {  # a shared machine: other times than the page's defaults
    "take": ["--max-gap", "100000%"],
    "check": ["--seconds", "1"],
    "all": ["--max-gap", "100000%", "--seconds", "1"],
}


def test_the_page_has_a_command_for_each_stage() -> None:
    """All of it first; then look, take, a run, fit and check, in this order; then take again."""
    words = [shlex.split(command) for command in COMMANDS]
    assert ["all", "look", "take", "--task", "fit", "check", "take"] == [word[2] for word in words]
    assert "--regions" in words[-1]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """Each command ends with a status that says that it did its work.

    The rule book may find nothing on this machine: a second run has a winner for fit and check.
    """
    found = re.search(r"```python\n# (mymodel\.py)\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (tmp_path / found[1]).write_text(found[2])
    for command in (*COMMANDS[1:], COMMANDS[0]):  # `all` goes on where the stages ended
        words = shlex.split(command)
        words[1] = str(TOP / words[1])
        if words[2] == "fit":
            task = (tmp_path / "adopt/mymodel/tasks/module/module.py").read_text(encoding="utf-8")
            given = tmp_path / "adopt/mymodel/runs/given"
            given.mkdir()
            winner = winner_file(task, task.replace("class Model(", "class ModelNew("))
            (given / "best.py").write_text(winner, encoding="utf-8")
        if "--budget" in words:
            words[words.index("--budget") + 1] = "3"
        done = subprocess.run(
            [sys.executable, *words[1:], *LAX.get(words[2], [])],
            cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), command + done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_killed_stage_is_made_again(tmp_path: Path) -> None:
    """After kill -9 in look and in take there is no half result; the same command does it all."""
    found = re.search(r"```python\n# (mymodel\.py)\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (tmp_path / found[1]).write_text(found[2])
    script = str(TOP / "scripts" / "adopt.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    stages = (["look", found[1], "--out", "out"], ["take", "out", *LAX["take"]])
    for words, result in zip(stages, ("look.json", "take.json"), strict=True):
        for delay_s in (1.0, 3.0, 6.0):
            process = subprocess.Popen(
                [sys.executable, script, *words], cwd=tmp_path, env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay_s)
            process.kill()
            process.wait()
            if (tmp_path / "out" / result).exists():
                json.loads((tmp_path / "out" / result).read_text())
        done = subprocess.run(
            [sys.executable, script, *words], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        json.loads((tmp_path / "out" / result).read_text())


def processes_with(word: str) -> list[int]:
    """Return the processes whose command line has a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (path / "cmdline").read_bytes() and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def killed_when(command: list[str], folder: Path, is_time: Callable[[], bool]) -> None:
    """Start a command, kill -9 it when it is time, and wait until its children have ended."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder.parent, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 800  # a run beside other programs
        while not is_time():
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < until, "it did not come so far"
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    until = time.monotonic() + 120
    while processes_with(str(folder)) and time.monotonic() < until:
        time.sleep(0.5)
    assert [] == processes_with(str(folder))


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_all_goes_on_after_kill_9_in_its_run_and_in_its_check(tmp_path: Path) -> None:
    """Its children end with it; the same command does the rest, and nothing twice."""
    (tmp_path / "model.py").write_text(PLANTED.read_text(encoding="utf-8"))
    folder = tmp_path / "out"
    command = [
        *(sys.executable, str(TOP / "scripts" / "adopt.py"), "all", "model.py"),
        *("--out", str(folder), "--at", "fast.*", "--budget", "3", "--model", "recipes"),
        *("--seconds", "3", "--max-gap", "100000%"),
    ]
    killed_when(command, folder, lambda: (folder / "runs" / "fast" / "run.db").exists())
    assert (folder / "take.json").exists()
    task = (folder / "tasks" / "fast" / "fast.py").read_text(encoding="utf-8")
    (folder / "runs" / "given").mkdir()
    winner = winner_file(task, candidate(ONCE.format(shift=0.1)))
    (folder / "runs" / "given" / "best.py").write_text(winner, encoding="utf-8")
    taken_at = (folder / "take.json").stat().st_mtime_ns
    killed_when(command, folder, lambda: (folder / "check.progress").exists())
    assert not (folder / "check.json").exists()
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "its run has ended" in done.stdout
    assert taken_at == (folder / "take.json").stat().st_mtime_ns
    assert (folder / "report.md").is_file()
