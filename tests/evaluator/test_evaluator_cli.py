"""The evaluator as a command: exit status, one line for each failure, no leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import parallel_scenes
import pytest
from evaluator_samples import TASK, candidate, command, descendants, settles
from process_template import run_process

from actors.evaluator.sandbox.scratch import scratch_for_process

ENDLESS = candidate(before="while True: pass")


def run(*arguments: object, scratch: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return laid(tmp_path)


def test_two_candidates_give_two_lines_and_the_worse_status(files: Path) -> None:
    """With --json each candidate is one line of JSON on stdout; status 1 unless all are correct."""
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
    if first["speedup_ci95"] is not None:  # else the machine was too busy for an interval
        assert first["speedup_ci95"][0] <= first["speedup"] <= first["speedup_ci95"][1]
    assert second["verdict"] == "wrong"
    assert done.returncode == 1
    # On a busy machine it may say what it waits for.
    told = [line for line in done.stderr.splitlines() if "waiting for the task's" not in line]
    assert [] == told
    assert list((files / "scratch").iterdir()) == []


# Unusable tasks, and the reason in the error line.
REFUSED = {
    "absent": (None, "can't read the task"),
    "broken": ("def broken(:", "not valid Python"),
    "raises": (
        TASK.replace("return torch.relu", "raise OSError('hm') #"),
        "forward raised OSError",
    ),
}
KILLED = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
SCENES_OF_KILLS = ["kill", "int", pytest.param("term", marks=pytest.mark.long)]  # as "int"
UNHEARD = "full"
Scene = tuple[int, list[str]] | None  # exit status, and the lines of the output


def laid(folder: Path) -> Path:
    """Write a task and candidates into a folder."""
    (folder / "t.py").write_text(TASK)
    (folder / "good.py").write_text(candidate())
    (folder / "bad.py").write_text(candidate(forward="return x"))
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "scratch").mkdir()
    return folder


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Scene]]:
    """Return the result of a scene: an unusable task, or an evaluator that was killed."""

    def one(scene: str) -> Scene:
        files = laid(tmp_path_factory.mktemp("scene"))
        if scene == UNHEARD:
            return judged_without_stdout(files)
        if scene in REFUSED:
            return judged_by(files, REFUSED[scene][0])
        killed(files, KILLED[scene])
        return None

    with parallel_scenes.scenes_in_parallel(request, one) as play:
        yield play


def judged_by(files: Path, task: str | None) -> tuple[int, list[str]]:
    """Judge an honest candidate by an unusable task."""
    path = files / "unusable.py"
    if task is not None:
        path.write_text(task)
    arguments = ["--task", str(path), "--candidate", "good.py", "--device", "cpu"]
    environment = {**os.environ, "TMPDIR": str(files / "scratch")}
    return run_process(["-m", "actors.evaluator", *arguments], files, environment)


def judged_without_stdout(files: Path) -> tuple[int, list[str]]:
    """Judge a wrong candidate, with a stdout that can't be written."""
    line = command("--task", files / "t.py", "--candidate", files / "bad.py", "--device", "cpu")
    environment = {**os.environ, "TMPDIR": str(files / "scratch")}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            line, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("scene", [UNHEARD])
def test_a_verdict_that_can_not_be_written_is_a_failure(
    scene: str, play: Callable[[str], Scene]
) -> None:
    """A full disk under stdout is one line and status 4: status 1 would be about the candidate."""
    done = play(scene)
    assert done is not None
    status, lines = done
    assert (4, 1) == (status, len(lines))
    assert "stdout takes no verdict: No space left on device" in lines[0]


@pytest.mark.parametrize("scene", REFUSED)
def test_an_unusable_task_is_one_line_and_status_2(
    scene: str, play: Callable[[str], Scene]
) -> None:
    """A task that can't be used is reported in one line, without a traceback, with status 2."""
    done = play(scene)
    assert done is not None
    status, lines = done
    assert (2, 1) == (status, len(lines))
    assert REFUSED[scene][1] in lines[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--task", "t.py"], "--candidate"),
        (["--tusk", "t.py", "--task", "t.py", "--candidate", "c.py"], "--tusk"),
        (["--task", "t.py", "--candidate", "c.py", "--min-sandbox", "9"], "level 9"),
        (["--task", "t.py", "--candidate", "no-such-file.py"], "no-such-file.py"),
        (["--task", "t.py", "--candidate", "c.py", "--time-s", "nan"], "--time-s"),
    ],
)
def test_a_wrong_flag_is_one_line_and_status_2(
    files: Path, arguments: list[str], reason: str
) -> None:
    """A wrong argument is reported in one line that names the flag or the file."""
    status, lines = run_process(["-m", "actors.evaluator", *arguments], files)
    assert (2, 1) == (status, len(lines))
    assert reason in lines[0]


@pytest.mark.parametrize("scene", SCENES_OF_KILLS)
def test_a_killed_evaluator_leaves_nothing(scene: str, play: Callable[[str], Scene]) -> None:
    """Killed while it judges, even with -9: none of its processes and scratch folders is left."""
    play(scene)


def killed(files: Path, number: signal.Signals) -> None:
    """Kill an evaluator while it judges, and check that nothing of it is left."""
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


def test_an_evaluator_killed_while_it_starts_leaves_nothing(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    until = time.monotonic() + 60  # the import has to end first
    while any(Path(f"/proc/{pid}").exists() for pid in family):
        assert time.monotonic() < until
        time.sleep(0.05)
    # Its folder has no one left to remove it but the next evaluator, before it does anything else.
    monkeypatch.setattr(tempfile, "tempdir", str(files / "scratch"))
    scratch_for_process()
    assert list((files / "scratch").iterdir()) == []
    assert settles(os.getpid(), descendants(os.getpid()))
