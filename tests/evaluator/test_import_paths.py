"""--import-path: the user's package in the sandbox, and what is not let in."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.judge import Judge, TaskProblem
from actors.import_paths import ImportPathError, checked_import_paths
from protocol.settings import JudgeRules, Limits
from protocol.values import Outcome, Task, Verdict

SOURCE = """
import torch
from mypackage.blocks import Scale

class Model(Scale):
    pass

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
PACKAGE = """
import torch

class Scale(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2
"""
CANDIDATE = """
from pathlib import Path
import torch
import mypackage.blocks as blocks

class ModelNew(blocks.Scale):
    def forward(self, x):
        try:
            Path(blocks.__file__).with_name("left").write_text("x")
        except OSError:
            return super().forward(x)
        raise RuntimeError("the package can be written to")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder around a package."""
    folder = tmp_path / "lib"
    (folder / "mypackage").mkdir(parents=True)
    (folder / "mypackage" / "__init__.py").touch()
    (folder / "mypackage" / "blocks.py").write_text(PACKAGE)
    return folder


def test_a_task_imports_the_users_package(package: Path, tmp_path: Path) -> None:
    """Task and candidate import it, and neither can write to it; without it the task is refused."""
    task = Task(name="package", source=SOURCE)
    folders = checked_import_paths([str(package)], {"package": [SOURCE]})
    limits = Limits(import_s=10.0, check_s=10.0, time_s=0.05)
    rules = JudgeRules(import_paths=folders)
    importing = Judge("cpu", limits, tmp_path / "scratch" / "judge", rules=rules)
    try:
        verdict = importing.judge(task, CANDIDATE)
        if importing.level < 2:
            pytest.skip("this machine's sandbox can't make a folder read-only")
        assert isinstance(verdict, Verdict)
        assert Outcome.CORRECT is verdict.verdict, verdict
    finally:
        importing.close()


def test_without_the_folder_a_task_is_told_of_the_flag(judge: Judge) -> None:
    """The message of a missing package names --import-path."""
    found = judge.measure(Task(name="package", source=SOURCE))
    assert isinstance(found, TaskProblem)
    assert "--import-path DIR" in found.reason


@pytest.mark.parametrize("name", [".ssh", ".env", "deploy.pem"])
def test_a_folder_with_keys_is_refused(package: Path, name: str) -> None:
    """Candidates can read the folder, so it must hold nothing secret, however deep."""
    (package / "mypackage" / name).touch()
    with pytest.raises(ImportPathError, match=f"it holds mypackage/{name}"):
        checked_import_paths([str(package)], {"t": [SOURCE]})


def test_folders_that_would_open_more_are_refused(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root, a home and what is above it, and a run's folder: each is one line."""
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    (tmp_path / "home" / "me").mkdir(parents=True)
    cases = {
        "/": "would open / ",
        "/usr": "would open /usr",
        str(tmp_path / "home"): "would open",
        str(tmp_path / "home" / "me"): "would open",
        str(package / "none"): "no such folder",
        str(package / "mypackage" / "blocks.py"): "it is a file",
        str(package / "mypackage"): "the task t imports nothing from it",
    }
    for folder, expected in cases.items():
        with pytest.raises(ImportPathError, match=expected) as raised:
            checked_import_paths([folder], {"t": [SOURCE]})
        assert "\n" not in str(raised.value)
    with pytest.raises(ImportPathError, match="the run folder"):
        checked_import_paths([str(package)], {"t": [SOURCE]}, [package / "runs" / "r"])


def test_every_task_of_a_run_has_to_import_from_it(package: Path) -> None:
    """A candidate must not find the package of another task."""
    assert (str(package),) == checked_import_paths([str(package)] * 2, {"t": [SOURCE]})
    with pytest.raises(ImportPathError, match="the task other imports nothing"):
        checked_import_paths([str(package)], {"t": [SOURCE], "other": ["import torch"]})
