"""The run folder: made completely or not at all, one supervisor at a time."""

from __future__ import annotations

import fcntl
import os
import resource
import threading
from pathlib import Path

import pytest
from supervisor_sample import TASK_SOURCE

from actors.cli import UsageError
from actors.supervisor import run_folder
from actors.supervisor.cli.preflight import TaskFile
from actors.supervisor.reporting.run_data import run_folder_integrity
from protocol.settings import Settings

TASK = TaskFile(name="t", path=Path("t.py"), source=TASK_SOURCE)


def test_a_new_folder_can_be_resumed_with_the_same_settings_and_id(tmp_path: Path) -> None:
    """The next supervisor reads the folder that the first one made."""
    settings = Settings(tasks=("t",), seed=3)
    with run_folder.make_run_folder(tmp_path / "a" / "run", (TASK,)) as made:
        made.write(settings, (TASK,))
    resumed, read, _stored = run_folder.open_run_folder(tmp_path / "a" / "run")
    with resumed:
        assert (settings, made.run_id, made.path) == (read, resumed.run_id, resumed.path)
        assert (resumed.path / "tasks" / "t.py").read_text() == TASK_SOURCE


def test_two_supervisors_on_one_run_are_refused(tmp_path: Path) -> None:
    """The lock is held during the supervisor's life and free afterwards."""
    with run_folder.make_run_folder(tmp_path / "run", (TASK,)) as made:
        made.write(Settings(tasks=("t",)), (TASK,))
        with pytest.raises(UsageError, match="another supervisor serves"):
            run_folder.open_run_folder(tmp_path / "run")
    run_folder.open_run_folder(tmp_path / "run")[0].close()


def test_whether_a_run_is_served_is_seen_from_the_supervisors_lock(tmp_path: Path) -> None:
    """Not from the coordinator's, which is free while the supervisor starts it again."""
    path = tmp_path / "run"
    assert not run_folder_integrity.is_served(path)
    with run_folder.make_run_folder(path, (TASK,)) as made:
        made.write(Settings(tasks=("t",)), (TASK,))
        assert run_folder_integrity.is_served(path)
    assert not run_folder_integrity.is_served(path)


def test_a_look_at_a_run_does_not_stop_a_supervisor_that_begins(tmp_path: Path) -> None:
    """A reader holds the lock for an instant: then the supervisor takes it."""
    path = tmp_path / "run"
    with run_folder.make_run_folder(path, (TASK,)) as made:
        made.write(Settings(tasks=("t",)), (TASK,))
    reader = os.open(path / "lock", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    threading.Timer(run_folder.TRIED_S / 4, os.close, [reader]).start()
    run_folder.open_run_folder(path)[0].close()


def test_runs_that_make_their_common_parent_at_once_both_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of one comparison may begin at the same moment: the slower one finds its parent."""
    make = Path.mkdir

    def make_late(folder: Path) -> None:
        if folder.name == "results":
            make(folder)  # by the other run
        make(folder)

    monkeypatch.setattr(Path, "mkdir", make_late)
    with run_folder.make_run_folder(tmp_path / "results" / "seed-0" / "run", (TASK,)) as made:
        assert made.path == tmp_path / "results" / "seed-0" / "run"


def test_a_full_disk_leaves_no_incomplete_folder(tmp_path: Path) -> None:
    """An incomplete folder is removed again, of a run and of a machine that joins."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(UsageError, match="can't make the run folder"):
            run_folder.make_run_folder(tmp_path / "a" / "run", (TASK,))
        with pytest.raises(OSError, match="File too large"):
            run_folder.make_guest_folder(tmp_path / "b", "join")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [] == list(tmp_path.iterdir())


def test_removing_a_run_leaves_a_folder_that_existed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused run removes its folders, but not an empty folder that the user made."""
    monkeypatch.chdir(tmp_path)
    made = run_folder.make_run_folder(Path("deep/er/run"), (TASK,))
    made.write(Settings(tasks=("t",)), (TASK,))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as the supervisor does
    made.remove()
    assert not (tmp_path / "deep").exists()
    (tmp_path / "mine").mkdir()
    made = run_folder.make_run_folder(tmp_path / "mine", (TASK,))
    made.write(Settings(tasks=("t",)), (TASK,))
    made.remove()
    assert list((tmp_path / "mine").iterdir()) == []


def test_runs_of_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No default name is used twice."""
    monkeypatch.chdir(tmp_path)
    runs = [run_folder.make_run_folder(None, (TASK,)) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    for run in runs:
        run.close()


def test_cleaning_removes_scratch_socket_and_empty_output_only(tmp_path: Path) -> None:
    """After a run the files that only live processes need are gone."""
    with run_folder.make_run_folder(tmp_path / "run", (TASK,)) as made:
        made.write(Settings(tasks=("t",)), (TASK,))
        (made.path / "scratch" / "evaluator-0").mkdir(parents=True)
        (made.path / "coordinator.sock").touch()
        (made.path / "logs" / "coder-0.out").touch()
        (made.path / "logs" / "coder-1.out").write_text("a traceback")
        made.remove_live_files()
        left = {path.name for path in made.path.rglob("*")}
    assert left == {"lock", "stark.toml", "tasks", "t.py", "logs", "coder-1.out"}
