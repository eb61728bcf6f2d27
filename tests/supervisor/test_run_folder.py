"""The run folder: whole or not at all, one supervisor at a time."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from supervisor_sample import TASK_SOURCE

from actors.cli import UsageError
from actors.supervisor import run_folder
from actors.supervisor.cli.preflight import TaskFile
from protocol.settings import Settings

TASK = TaskFile(name="t", path=Path("t.py"), source=TASK_SOURCE)


def test_a_new_folder_can_be_resumed_with_the_same_settings_and_mark(tmp_path: Path) -> None:
    """What one supervisor made, the next one takes up."""
    settings = Settings(tasks=("t",), seed=3)
    with run_folder.make_run_folder(tmp_path / "a" / "run", (TASK,)) as made:
        made.write(settings, (TASK,))
    resumed, read, _stored = run_folder.open_run_folder(tmp_path / "a" / "run")
    with resumed:
        assert (settings, made.run_id, made.path) == (read, resumed.run_id, resumed.path)
        assert (resumed.path / "tasks" / "t.py").read_text() == TASK_SOURCE


def test_two_supervisors_on_one_run_are_refused(tmp_path: Path) -> None:
    """The lock is held for the supervisor's life and free afterwards."""
    with run_folder.make_run_folder(tmp_path / "run", (TASK,)) as made:
        made.write(Settings(tasks=("t",)), (TASK,))
        with pytest.raises(UsageError, match="another supervisor serves"):
            run_folder.open_run_folder(tmp_path / "run")
    run_folder.open_run_folder(tmp_path / "run")[0].close()


def test_a_full_disk_leaves_no_half_of_a_folder(tmp_path: Path) -> None:
    """What can't be made whole is taken away again, of a run and of a machine that joins."""
    room = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, room[1]))
    try:
        with pytest.raises(UsageError, match="can't make the run folder"):
            run_folder.make_run_folder(tmp_path / "a" / "run", (TASK,))
        with pytest.raises(OSError, match="File too large"):
            run_folder.make_guest_folder(tmp_path / "b", "join")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, room)
    assert [] == list(tmp_path.iterdir())


def test_removing_leaves_what_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused run takes its folders away, but not the empty one that a user made."""
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
    """The default name is never taken twice."""
    monkeypatch.chdir(tmp_path)
    runs = [run_folder.make_run_folder(None, (TASK,)) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    for run in runs:
        run.close()


def test_cleaning_takes_scratch_socket_and_empty_output_only(tmp_path: Path) -> None:
    """After a run nothing is left that only live processes need."""
    with run_folder.make_run_folder(tmp_path / "run", (TASK,)) as made:
        made.write(Settings(tasks=("t",)), (TASK,))
        (made.path / "scratch" / "evaluator-0").mkdir(parents=True)
        (made.path / "coordinator.sock").touch()
        (made.path / "logs" / "coder-0.out").touch()
        (made.path / "logs" / "coder-1.out").write_text("a traceback")
        made.remove_live_files()
        left = {path.name for path in made.path.rglob("*")}
    assert left == {"lock", "stark.toml", "tasks", "t.py", "logs", "coder-1.out"}
