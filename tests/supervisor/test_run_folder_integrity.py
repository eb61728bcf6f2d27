"""A run folder with a file removed, emptied, cut or replaced: right, or one line and untouched."""

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
from actors.supervisor.reporting import run_folder_integrity
from actors.supervisor.reporting.run_folder_integrity import DamagedRunError
from protocol import settings as settings_file
from scripts import replay, report, story

FILES = (
    *("run.db", "stark.toml", "lock", "coordinator.lock", "result.json", "best.py"),
    *("report.html", "tasks", "tasks/gelu.py", "logs", "logs/coordinator.jsonl"),
)
LIVE_FILES = ("run.db-wal", "run.db-shm")
FINISHED, KILLED = "finished", "killed"
DATABASE = ("run.db", "run.db-wal", "run.db-shm")
OWN = "run.db-shm"  # SQLite's own scratch


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
    """One run that is over and one whose every process was killed, each as it was left."""
    top = tmp_path_factory.mktemp("runs")
    for name in (FINISHED, KILLED):
        run = top / name
        sample = Sample(run, status="finished" if name == FINISHED else "running", budget=9)
        (run / "logs").mkdir()
        (run / "logs" / "coordinator.jsonl").write_text("{}\n")
        (run / "coordinator.lock").touch()
        (run / "lock").write_text("abcd\nrecorded 6\n")
        for number in range(1, 7):
            sample.db.execute(
                "INSERT INTO attempt (task, number, parent, kind, state)"
                " VALUES ('gelu', ?, 0, 'improve', 'done')",
                (number,),
            )
        sample.db.execute("INSERT INTO event VALUES (1, 1.0, 'selected', 'gelu/3', 'node 2')")
        if name == FINISHED:
            sample.db.close()
            assert supervisor.main(["--resume", str(run)]) == 0
        else:
            shutil.copytree(run, top / "copy")  # with the log of what was never folded in
            sample.db.close()
            shutil.rmtree(run)
            (top / "copy").rename(run)
            assert (run / "run.db-wal").stat().st_size
    return top


@pytest.fixture
def run(runs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of one of them."""
    return Path(shutil.copytree(runs / request.param, tmp_path / "run", symlinks=True))


def marks(run: Path) -> dict[str, object]:
    """Return what is there: names, times and contents."""
    return {
        str(path.relative_to(run)): (
            os.lstat(path).st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [run, *run.rglob("*")]
        if path.name != OWN
    }


def is_lost(file: str, damage: Callable[[Path], None]) -> bool:
    """Whether a run can't be served without this file as it was."""
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
def test_a_damaged_run_is_resumed_rightly_or_left_untouched(
    run: Path, file: str, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found is never written over, and never told as if it had not been found."""
    damage(run / file)
    before = marks(run)
    arguments = flags.parse_arguments(["--resume", str(run)])
    # All of a young run is in its log: SQLite takes its pages from there, whatever lies below.
    in_log = (run / "run.db-wal").exists() and file == "run.db" and damage in (garble, cut)
    if is_lost(file, damage) and not in_log:
        lost = DamagedRunError if file.startswith("run.db") else UsageError
        with pytest.raises(lost, match=re.escape(str(run))) as refused:
            supervisor.resume_run(arguments, {})
        assert len(str(refused.value).splitlines()) == 1
        assert marks(run) == before
        return
    with supervisor.resume_run(arguments, {}).folder:
        assert run_folder_integrity.check_run_folder(run).recorded == 6
        assert (run / "tasks" / "gelu.py").read_text() == TASK_SOURCE
    capsys.readouterr()


@pytest.mark.parametrize(("run", "file", "damage"), CASES, indirect=["run"])
def test_scripts_read_a_damaged_run_or_say_why_not(
    run: Path, file: str, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and status 2, and the report that was there stays; else what a whole run gives."""
    damage(run / file)
    before = marks(run)
    status = 0
    readers = (
        lambda: story.main([str(run), "3"]),
        lambda: replay.main([str(run)]),
        lambda: report.main([str(run)]),
    )
    for read in readers:
        status = read()
        said = capsys.readouterr()
        if status == 2:
            assert len(said.err.splitlines()) == 1
            assert marks(run) == before
        else:
            assert said.err == ""
    if status == 0:
        assert "gelu" in (run / "report.html").read_text()


@pytest.mark.parametrize("run", [FINISHED], indirect=True)
@pytest.mark.parametrize("file", ["result.json", "best.py", "report.html", "tasks", "logs"])
def test_what_follows_from_run_db_is_written_again(run: Path, file: str) -> None:
    """Of a finished run: results, winner, report and the tasks' copies."""
    good = json.loads((run / "result.json").read_text())
    remove(run / file)
    assert supervisor.main(["--resume", str(run)]) == 0
    assert json.loads((run / "result.json").read_text()) == good
    assert (run / "best.py").read_text().endswith(WINNER)
    assert (run / "report.html").is_file()
    assert (run / "tasks" / "gelu.py").read_text() == TASK_SOURCE


@pytest.mark.parametrize("run", [FINISHED, KILLED], indirect=True)
def test_an_older_run_db_is_found_out(run: Path) -> None:
    """The lock file knows how many attempts there were; who wants the older state removes it."""
    with sqlite3.connect(run / "run.db") as older:
        older.execute("DELETE FROM node WHERE number > 4")
    older.close()
    with pytest.raises(DamagedRunError, match=r"holds 4 attempts and the run had recorded 6"):
        run_folder.open_run_folder(run)
    (run / "lock").unlink()
    run_folder.open_run_folder(run)[0].close()


@pytest.mark.parametrize("run", [FINISHED, KILLED], indirect=True)
def test_settings_of_another_run_are_found_out(run: Path) -> None:
    """Its tasks would be begun in a database that holds others."""
    settings_file.write(run, settings_file.Settings(tasks=("other",)))
    before = marks(run)
    with pytest.raises(UsageError, match=r"names the tasks other, and run\.db holds gelu"):
        run_folder.open_run_folder(run)
    assert marks(run) == before


def test_a_run_that_has_not_begun_is_begun(tmp_path: Path) -> None:
    """Killed before its coordinator wrote anything, it has lost nothing."""
    sample = Sample(tmp_path / "run")
    sample.db.close()
    for name in DATABASE:
        remove(tmp_path / "run" / name)
    for database in (None, b""):
        if database is not None:
            (tmp_path / "run" / "run.db").write_bytes(database)
        taken, _, stored = run_folder.open_run_folder(tmp_path / "run")
        taken.close()
        assert stored.tasks == ()
    with run_folder.open_run_folder(tmp_path / "run")[0] as taken:
        taken.note_recorded(0)  # what a supervisor does as soon as it sees the tasks in there
    with pytest.raises(DamagedRunError, match=r"run\.db is empty"):
        run_folder.open_run_folder(tmp_path / "run")
