"""`--references RUN`: what is copied from an earlier run, and what is refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from supervisor_sample import REFERENCE, TASK_SOURCE, Sample

from actors.cli import UsageError
from actors.supervisor.cli.flags import parse_arguments
from actors.supervisor.cli.preflight import TaskFile
from actors.supervisor.earlier_references import earlier_references
from protocol.settings import JudgeRules, Settings

TASK = TaskFile(name="mine", path=Path("mine.py"), source=TASK_SOURCE)
OTHER = TaskFile(name="other", path=Path("other.py"), source=f"{TASK_SOURCE}# other\n")


def test_only_tasks_of_the_new_run_are_taken(tmp_path: Path) -> None:
    """By their text: a name is the user's."""
    Sample(tmp_path / "run")
    (found,) = earlier_references(tmp_path / "run", Settings(), [TASK, OTHER])
    assert (found.task.name, found.reference) == ("gelu", REFERENCE)
    assert earlier_references(None, Settings(), [TASK]) == ()


@pytest.mark.parametrize(
    ("settings", "task"),
    [
        (Settings(), OTHER),
        (Settings(device="cuda"), TASK),
        (Settings(rules=JudgeRules(precision="bfloat16")), TASK),
    ],
)
def test_a_run_without_any_of_the_tasks_is_a_mistake(
    tmp_path: Path, settings: Settings, task: TaskFile
) -> None:
    """The agents' phase would wait for references that the user believes to be there."""
    Sample(tmp_path / "run")
    with pytest.raises(UsageError, match="has measured none of these tasks"):
        earlier_references(tmp_path / "run", settings, [task])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    """One line with the flag; and the flag belongs to new runs."""
    with pytest.raises(UsageError, match=r"--references .*no such folder"):
        earlier_references(tmp_path / "run", Settings(), [TASK])
    with pytest.raises(UsageError, match="leave out --references"):
        parse_arguments(["--resume", "r", "--references", "q"])
