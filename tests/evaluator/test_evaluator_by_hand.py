"""The evaluator as a command: status, one line for what can't be done, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from evaluator_samples import TASK, candidate, command, descendants, settles

ENDLESS = candidate(before="while True: pass")


def run(*arguments: object, scratch: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "t.py").write_text(TASK)
    (tmp_path / "good.py").write_text(candidate())
    (tmp_path / "bad.py").write_text(candidate(forward="return x"))
    (tmp_path / "scratch").mkdir()
    return tmp_path


def test_two_candidates_give_two_lines_and_the_worse_status(files: Path) -> None:
    """With --json each candidate is one line of JSON on stdout, alone; 1 unless all are correct."""
    arguments = ["--task", files / "t.py", "--device", "cpu", "--json", "--time-s", "0.1"]
    done = run(
        *arguments,
        "--candidate",
        files / "good.py",
        "--candidate",
        files / "bad.py",
        scratch=files / "scratch",
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["verdict"] == "correct"
    assert first["speedup_ci95"][0] <= first["speedup"] <= first["speedup_ci95"][1]
    assert second["verdict"] == "wrong"
    assert done.returncode == 1
    assert done.stderr == ""
    assert list((files / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (None, "can't read the task"),
        ("def broken(:", "no valid Python"),
        (TASK.replace("class Model(", "class Other("), "defines no Model"),
        (TASK.replace("get_inputs", "inputs"), "defines no get_inputs"),
        (
            TASK.replace("return torch.relu", "raise OSError('hm') #"),
            "forward raised OSError",
        ),
    ],
)
def test_a_task_that_is_none_is_one_line_and_status_2(
    files: Path, task: str | None, words: str
) -> None:
    """A task that can't be used is said in one line, without a traceback, with status 2."""
    path = files / "odd.py"
    if task is not None:
        path.write_text(task)
    done = run(
        "--task",
        path,
        "--candidate",
        files / "good.py",
        "--device",
        "cpu",
        scratch=files / "scratch",
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "t.py"], "--candidate"),
        (["--tusk", "t.py", "--task", "t.py", "--candidate", "c.py"], "--tusk"),
        (["--task", "t.py", "--candidate", "c.py", "--min-sandbox", "9"], "level 9"),
        (["--task", "t.py", "--candidate", "no-such-file.py"], "no-such-file.py"),
        (["--task", "t.py", "--candidate", "c.py", "--time-s", "nan"], "--time-s"),
    ],
)
def test_a_wrong_flag_is_one_line_and_status_2(
    files: Path, arguments: list[str], words: str
) -> None:
    """What was typed wrong is said in one line that names the flag or the file."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        cwd=files,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_evaluator_leaves_nothing(files: Path, number: signal.Signals) -> None:
    """Killed in mid-run, even with -9: no process and no scratch folder of it stays."""
    (files / "endless.py").write_text(ENDLESS)
    evaluator = subprocess.Popen(
        command("--task", files / "t.py", "--candidate", files / "endless.py", "--device", "cpu"),
        env={**os.environ, "TMPDIR": str(files / "scratch")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not list((files / "scratch").glob("*/candidate-*")):
        assert time.monotonic() < until
        assert evaluator.poll() is None
        time.sleep(0.02)
    time.sleep(0.2)
    family = descendants(evaluator.pid)
    assert len(family) >= 4
    evaluator.send_signal(number)
    evaluator.wait(30)
    until = time.monotonic() + 15
    while any(Path(f"/proc/{pid}").exists() for pid in family) or any(
        (files / "scratch").iterdir()
    ):
        assert time.monotonic() < until, sorted((files / "scratch").rglob("*"))
        time.sleep(0.05)


def test_an_evaluator_killed_while_it_starts_leaves_nothing(files: Path) -> None:
    """Killed while its zygote still imports torch, the zygote dies as well."""
    evaluator = subprocess.Popen(
        command("--task", files / "t.py", "--candidate", files / "good.py", "--device", "cpu"),
        env={**os.environ, "TMPDIR": str(files / "scratch")},
    )
    until = time.monotonic() + 30
    while not (family := descendants(evaluator.pid)):
        assert time.monotonic() < until
        time.sleep(0.01)
    evaluator.kill()
    evaluator.wait(30)
    until = time.monotonic() + 15
    while any(Path(f"/proc/{pid}").exists() for pid in family):
        assert time.monotonic() < until
        time.sleep(0.05)
    # Its folder has no one left to remove it but the next evaluator.
    run("--task", files / "t.py", "--candidate", files / "bad.py", scratch=files / "scratch")
    assert list((files / "scratch").iterdir()) == []
    assert settles(os.getpid(), descendants(os.getpid()))
