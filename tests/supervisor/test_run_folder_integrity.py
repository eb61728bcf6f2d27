"""A run folder with a damaged file: resumed correctly, or one line and the folder unchanged."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from supervisor_sample import TASK_SOURCE, WINNER, Sample

import supervisor
from actors.cli import UsageError
from actors.supervisor import run_folder
from actors.supervisor.cli import flags
from actors.supervisor.reporting.run_data import run_folder_integrity
from actors.supervisor.reporting.run_data.run_folder_integrity import DamagedRunError
from protocol import settings as settings_file
from scripts import export, replay, report, story

FILES = (
    *("run.db", "stark.toml", "lock", "coordinator.lock", "result.json", "best.py"),
    *("report.html", "tasks", "tasks/gelu.py", "logs", "logs/coordinator.jsonl"),
)
LIVE_FILES = ("run.db-wal", "run.db-shm")
FINISHED, KILLED = "finished", "killed"
DATABASE = ("run.db", "run.db-wal", "run.db-shm")
SQLITE_SCRATCH = "run.db-shm"


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    if path.is_dir():
        remove(path)
        path.mkdir()
    else:
        path.write_bytes(b"")


def garble(path: Path) -> None:
    remove(path)
    path.write_bytes(b"not what it was " * 512)


def cut(path: Path) -> None:
    if path.is_file():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_folder(path: Path) -> None:
    remove(path)
    (path / "inside").mkdir(parents=True)


def make_loop(path: Path) -> None:
    remove(path)
    path.symlink_to(path.name)


DAMAGES: tuple[Callable[[Path], None], ...] = (remove, empty, garble, cut, make_folder, make_loop)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and a run whose processes were all killed, both as they were left."""
    top = tmp_path_factory.mktemp("runs")
    for name in (FINISHED, KILLED):
        run = top / name
        sample = Sample(run, status="finished" if name == FINISHED else "running", budget=9)
        (run / "logs").mkdir()
        (run / "logs" / "coordinator.jsonl").write_text("{}\n")
        (run / "coordinator.lock").touch()
        (run / "lock").write_text("abcd\nrecorded 6\n")
        sample.db.execute("INSERT INTO event VALUES (1, 1.0, 'selected', 'gelu/3', 'node 2')")
        if name == FINISHED:
            sample.db.close()
            assert supervisor.main(["--resume", str(run)]) == 0
        else:
            shutil.copytree(run, top / "copy")  # with a log that was never checkpointed
            sample.db.close()
            shutil.rmtree(run)
            (top / "copy").rename(run)
            assert (run / "run.db-wal").stat().st_size
    return top


@pytest.fixture
def run(runs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of one of these runs."""
    return Path(shutil.copytree(runs / request.param, tmp_path / "run", symlinks=True))


def folder_state(run: Path) -> dict[str, object]:
    """Return the names, times and contents of all files."""
    return {
        str(path.relative_to(run)): (
            os.lstat(path).st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [run, *run.rglob("*")]
        if path.name != SQLITE_SCRATCH
    }


def is_lost(file: str, damage: Callable[[Path], None]) -> bool:
    """Whether a run can't be served after this damage to this file."""
    if damage in (make_folder, make_loop):
        return not (file in ("tasks", "logs") and damage is make_folder)
    if damage is garble and file in ("tasks", "logs"):
        return True
    return file in ("stark.toml", "run.db", "run.db-wal")


CASES = [
    (name, file, damage)
    for name, files in ((FINISHED, FILES), (KILLED, (*FILES, *LIVE_FILES)))
    for file in files
    for damage in DAMAGES
]


@pytest.mark.parametrize(
    ("run", "file", "damage"),
    CASES,
    indirect=["run"],
    ids=[f"{name}-{file}-{damage.__name__}" for name, file, damage in CASES],
)
def test_a_damaged_run_is_resumed_correctly_or_left_unchanged(
    run: Path, file: str, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged file is never overwritten, and no resume goes on as if it were whole."""
    damage(run / file)
    before = folder_state(run)
    arguments = flags.parse_arguments(["--resume", str(run)])
    # All pages of a young run are in its log: SQLite does not read the damaged file.
    in_log = (run / "run.db-wal").exists() and file == "run.db" and damage in (garble, cut)
    if is_lost(file, damage) and not in_log:
        lost = DamagedRunError if file.startswith("run.db") else UsageError
        with pytest.raises(lost, match=re.escape(str(run))) as refused:
            supervisor.resume_run(arguments, {})
        assert len(str(refused.value).splitlines()) == 1
        assert folder_state(run) == before
        return
    with supervisor.resume_run(arguments, {}).folder:
        assert run_folder_integrity.check_run_folder(run).recorded == 6
        assert (run / "tasks" / "gelu.py").read_text() == TASK_SOURCE
    capsys.readouterr()


@pytest.mark.parametrize(("run", "file", "damage"), CASES, indirect=["run"])
def test_scripts_read_a_damaged_run_or_give_the_reason(
    run: Path, file: str, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Either one line, status 2 and an unchanged report, or the output for a complete run."""
    damage(run / file)
    before = folder_state(run)
    status = 0
    readers = (
        lambda: story.main([str(run), "3"]),
        lambda: replay.main([str(run)]),
        lambda: export.main([str(run), "--out", str(run.parent / "export")]),
        lambda: report.main([str(run)]),
    )
    for read in readers:
        status = read()
        output = capsys.readouterr()
        if status == 2:
            assert len(output.err.splitlines()) == 1
            assert folder_state(run) == before
        else:
            assert output.err == ""
    if status == 0:
        assert "gelu" in (run / "report.html").read_text()


@pytest.mark.parametrize("run", [FINISHED], indirect=True)
@pytest.mark.parametrize("file", ["result.json", "best.py", "report.html", "tasks", "logs"])
def test_files_that_follow_from_run_db_are_written_again(run: Path, file: str) -> None:
    """For a finished run: results, winner, report and the copies of the tasks."""
    before = json.loads((run / "result.json").read_text())
    remove(run / file)
    assert supervisor.main(["--resume", str(run)]) == 0
    assert json.loads((run / "result.json").read_text()) == before
    assert (run / "best.py").read_text().endswith(WINNER)
    assert (run / "report.html").is_file()
    assert (run / "tasks" / "gelu.py").read_text() == TASK_SOURCE


@pytest.mark.parametrize("run", [FINISHED, KILLED], indirect=True)
def test_an_older_run_db_is_detected(run: Path) -> None:
    """The lock file holds the number of attempts; to go on from the older state, remove it."""
    with sqlite3.connect(run / "run.db") as older:
        older.execute("DELETE FROM node WHERE number > 4")
    older.close()
    with pytest.raises(DamagedRunError, match=r"holds 4 attempts and the run had recorded 6"):
        run_folder.open_run_folder(run)
    (run / "lock").unlink()
    run_folder.open_run_folder(run)[0].close()


@pytest.mark.parametrize("run", [FINISHED, KILLED], indirect=True)
def test_settings_of_another_run_are_detected(run: Path) -> None:
    """Their tasks would be started in a database that holds other tasks."""
    settings_file.write(run, settings_file.Settings(tasks=("other",)))
    before = folder_state(run)
    with pytest.raises(UsageError, match=r"names the tasks other, and run\.db holds gelu"):
        run_folder.open_run_folder(run)
    assert folder_state(run) == before


def test_a_run_that_has_not_begun_can_be_resumed(tmp_path: Path) -> None:
    """A run that was killed before its coordinator wrote anything has lost nothing."""
    sample = Sample(tmp_path / "run")
    sample.db.close()
    for name in DATABASE:
        remove(tmp_path / "run" / name)
    for database in (None, b""):
        if database is not None:
            (tmp_path / "run" / "run.db").write_bytes(database)
        folder, _, stored = run_folder.open_run_folder(tmp_path / "run")
        folder.close()
        assert stored.tasks == ()
    with run_folder.open_run_folder(tmp_path / "run")[0] as folder:
        folder.note_recorded(0)  # as a supervisor does when it first reads the tasks
    with pytest.raises(DamagedRunError, match=r"run\.db is empty"):
        run_folder.open_run_folder(tmp_path / "run")
