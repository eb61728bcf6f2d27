"""The folder of an adopted model: nothing of another program's is overwritten there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import ModelRecord, StageFolder
from scripts import adopt

MODEL = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * torch.sigmoid(x)


def build():
    return torch.nn.Sequential(Gate(), torch.nn.Linear(64, 8)).eval()


def batches():
    for _ in range(3):
        yield (torch.randn(64, 64),), {}
"""


def of_another_program(path: Path) -> None:
    path.mkdir()
    (path / "model.json").write_text('{"layers": 3}')


def of_notes(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def a_file(path: Path) -> None:
    path.write_text("mine")


@pytest.mark.parametrize(
    ("make", "inside", "reason"),
    [
        (of_another_program, "", "not empty and holds no adopted model (model.json)"),
        (of_notes, "", "not empty and holds no adopted model (notes.txt)"),
        (a_file, "", "is a file"),
        (a_file, "below", "is a file"),
    ],
)
def test_a_folder_of_others_is_refused_before_the_model_is_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], None],
    inside: str,
    reason: str,
) -> None:
    """One line and status 2; before, another program's model.json was written over."""
    place = tmp_path / "place"
    make(place)
    (tmp_path / "m.py").write_text("raise RuntimeError('it was run')\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert 2 == adopt.main(["look", str(tmp_path / "m.py"), "--out", str(place / inside)])
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert before == {path: path.read_bytes() for path in before}


def test_a_folder_that_is_not_writable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a read-only disk the command ends before it measures."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(AdoptError, match=r"can't write into .*out: .* is not writable"):
        StageFolder(tmp_path / "out").check_own()
    assert not (tmp_path / "out").exists()


def test_an_adopted_model_s_folder_and_an_empty_one_are_used(tmp_path: Path) -> None:
    """What stopped stages left is no obstacle."""
    folder = StageFolder(tmp_path)
    folder.check_own()
    folder.write("model.json", ModelRecord(path="m.py", sha256="", batches=3))
    (tmp_path / "captures").mkdir()
    folder.check_own()


def test_a_path_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    """JSON files hold paths; before, it was a traceback after the measurements."""
    with pytest.raises(AdoptError, match=r"not UTF-8 text.*PYTHONUTF8=1"):
        StageFolder(tmp_path / "\udcff").check_own()


@pytest.mark.filterwarnings("ignore")
def test_the_next_command_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a folder's name has blanks."""
    place = tmp_path / "mein größtes Modell"
    place.mkdir()
    monkeypatch.chdir(place)
    Path("my model.py").write_text(MODEL)
    assert 0 == adopt.main(["look", "my model.py", "--max-outside", "100%"])
    assert 0 == adopt.main(["take", "adopt/my model", "--at", "0", "--max-gap", "100000%"])
    last = capsys.readouterr().out.splitlines()[-1]
    words = shlex.split(last.removeprefix("next: "))
    assert Path(words[words.index("--task") + 1]).is_file()


@pytest.mark.filterwarnings("ignore")
def test_a_model_s_file_may_change_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Paths are those of the command; before, `m.py` was sought in the new directory."""
    (tmp_path / "data").mkdir()
    (tmp_path / "m.py").write_text(f"import os\nos.chdir('data')\n{MODEL}")
    for words in (
        ["look", "m.py", "--out", "out", "--max-outside", "100%"],
        ["take", "out", "--at", "0", "--max-gap", "100000%"],
    ):
        monkeypatch.chdir(tmp_path)
        assert 0 == adopt.main(words), capsys.readouterr().err
    assert [] == list((tmp_path / "data").iterdir())
    assert (tmp_path / "out" / "take.json").is_file()


@pytest.mark.parametrize("stage", ["look", "take", "fit", "check", "all"])
def test_a_folder_in_which_another_command_works_is_refused(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and status 2; before, one command removed the other one's tasks."""
    model = tmp_path / "m.py"
    model.write_text("raise RuntimeError('it was run')\n")
    folder = StageFolder(tmp_path / "out")
    folder.write("model.json", ModelRecord(path=str(model), sha256="", batches=3))
    of_model = [str(model), "--out", str(folder.path)]
    with folder.held():
        assert 2 == adopt.main(
            [stage, *(of_model if stage in ("look", "all") else [str(folder.path)])]
        )
    (line,) = capsys.readouterr().err.splitlines()
    assert f"another adopt command is at work in {folder.path}" in line
    with folder.held():
        pass


@pytest.mark.filterwarnings("ignore")
def test_all_with_other_flags_takes_its_tasks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, `--min-share 99%` and then without it gave "no module became a task" both times."""
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    words = ["all", "m.py", "--out", "out", "--max-outside", "100%", "--max-gap", "100000%"]
    assert 1 == adopt.main([*words, "--min-share", "99%"])
    assert "no module became a task" in capsys.readouterr().out

    monkeypatch.setattr("actors.adopt.stages._AllStages._run_tasks", lambda *given: None)
    assert 3 == adopt.main([*words, "--min-share", "0%", "--at", "0"])
    said = capsys.readouterr().out
    assert "\n--min-share, --at: other than before, so the tasks are taken again\n" in said
    taken_at = Path("out/take.json").stat().st_mtime_ns
    assert 3 == adopt.main([*words, "--min-share", "0%", "--at", "0"])
    assert taken_at == Path("out/take.json").stat().st_mtime_ns
