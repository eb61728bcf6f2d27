"""kill -9 at every moment at which a stage changes a file: nothing half-written is left."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from killed_stages import WRITES, run_stage
from planted_winners import candidate, winner_file

from actors.adopt.check.check_result import Check
from actors.adopt.fit.fit import Fit, load_package
from actors.adopt.look.look import Look
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import ModelRecord, StageFolder, file_hash
from actors.adopt.take.taken_tasks import Take, TakenTask

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
MODEL = """\
import torch
class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 64))
    def forward(self, x):
        return torch.tanh(x * self.weight)
def build():
    return torch.nn.Sequential(*(Scale() for _ in range(DEPTH))).eval()
def batches():
    for rows in (64, 64, 64):
        yield (torch.randn(rows, 64),), {}
"""
RESULTS: dict[str, type] = {"look": Look, "take": Take, "fit": Fit, "check": Check}
COMMANDS = {
    "look": ["look", "model.py", "--out", "out"],
    "take": ["take", "out", "--max-gap", "100000%", "--at", "*"],
    "fit": ["fit", "out"],
    "check": ["check", "out", "--in-process", "--seconds", "0.05"],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model of three modules, for which all stages are done."""
    path = tmp_path_factory.mktemp("whole")
    (path / "model.py").write_text(MODEL.replace("DEPTH", "3"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for stage, words in COMMANDS.items():
            assert 0 == run_stage(words), stage
            if stage == "take":
                add_winner(path / "out")
    return path


def add_winner(folder: Path) -> None:
    """Write a run's winner of the first task."""
    source = (folder / first_task(folder).file).read_text()
    (folder / "runs" / "0").mkdir(parents=True, exist_ok=True)
    winner = winner_file(source, candidate("torch.tanh(x * self.weight)"))
    (folder / "runs" / "0" / "best.py").write_text(winner)


def first_task(folder: Path) -> TakenTask:
    return StageFolder(folder).read("take.json", Take, "take").tasks[0]


def assert_sound(folder: StageFolder, model: Path, depth: int) -> None:
    """Assert that each result is whole, has those of the stages before it, and is of this model."""
    known = [name for name in RESULTS if folder.has(f"{name}.json")]
    assert list(RESULTS)[: len(known)] == known
    for name in known:
        folder.read(f"{name}.json", RESULTS[name], name)
    record = folder.read("model.json", ModelRecord, "look")
    if known and record.sha256 == file_hash(model):
        found = folder.read("look.json", Look, "look")
        assert depth == max(len(group.sites) for group in found.groups)
    for file in folder.path.glob("captures/**/*.pt"):
        assert 0o600 == file.stat().st_mode & 0o777
    try:
        package = load_package(folder)
    except AdoptError as error:
        assert "run `adopt.py fit" in str(error)  # noqa: PT017  # no package is sound, too
    else:
        assert callable(package.fit)
        assert (folder.path / "stark_fitted" / "sites.json").is_file()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", list(RESULTS))
def test_a_killed_stage_leaves_whole_results_only(
    stage: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each change of a file; a model that has changed does not get an older one's result.

    The same command then does the stage.
    """
    monkeypatch.chdir(tmp_path)
    for changes in itertools.count():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(whole / "out", tmp_path / "out")
        (tmp_path / "model.py").write_text(MODEL.replace("DEPTH", "4" if stage == "look" else "3"))
        folder, depth = StageFolder(tmp_path / "out"), 4 if stage == "look" else 3
        record = folder.read("model.json", ModelRecord, "look")
        if stage != "look":
            folder.write("model.json", moved(record, tmp_path / "model.py"))
        status = run_stage(COMMANDS[stage], changes)
        assert_sound(folder, tmp_path / "model.py", depth)
        if status != -9:
            break
        if changes % 3:  # the same command is tried after every third kill
            continue
        assert 0 == run_stage(COMMANDS[stage])
        assert_sound(folder, tmp_path / "model.py", depth)
        assert folder.has(f"{stage}.json")
    assert (0, True) == (status, changes > 2)


def test_a_take_that_was_killed_while_it_recorded_begins_with_an_empty_cap(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the killed one had written does not count, and is removed; a half-written file, too."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole / "out", tmp_path / "out")
    shutil.copyfile(whole / "model.py", tmp_path / "model.py")
    folder = StageFolder(tmp_path / "out")
    record = folder.read("model.json", ModelRecord, "look")
    folder.write("model.json", moved(record, tmp_path / "model.py"))
    words = [*COMMANDS["take"], "--cap", "100K"]
    assert -9 == run_stage(words, 1, WRITES)
    half = list(folder.path.glob("captures/*/.*.part"))
    assert (1, [0o600]) == (
        len(list(folder.path.glob("captures/*/*.pt"))),
        [file.stat().st_mode & 0o777 for file in half],
    )
    assert not folder.has("take.json")

    assert 0 == run_stage(words)
    files = [file for file in (folder.path / "captures").rglob("*") if file.is_file()]
    assert (2, True) == (len(files), sum(file.stat().st_size for file in files) <= 100 << 10)
    assert folder.read("take.json", Take, "take").is_cap_reached


@pytest.mark.timeout(900)
def test_all_that_is_killed_in_its_fit_goes_on_there(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each change of a file: its runs are not made again, and no half package is left."""
    monkeypatch.chdir(tmp_path)
    words = ["all", "model.py", *COMMANDS["take"][1:], *COMMANDS["check"][3:]]
    words[2:3] = ["--out", "out"]
    shutil.copyfile(whole / "model.py", tmp_path / "model.py")
    for changes in itertools.count():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(whole / "out", tmp_path / "out")
        folder = StageFolder(tmp_path / "out")
        record = folder.read("model.json", ModelRecord, "look")
        folder.write("model.json", moved(record, tmp_path / "model.py"))
        shutil.rmtree(folder.path / "stark_fitted")
        folder.remove("report.md", "check.json", "fit.json")
        end_run(folder)
        assert -9 == run_stage(words, changes)
        assert_sound(folder, tmp_path / "model.py", 3)
        if folder.has("fit.json"):
            break
    assert changes > 2
    shutil.rmtree(folder.path / "stark_fitted")
    folder.remove("fit.json")
    assert -9 == run_stage(words, changes - 2)
    assert run_stage(words) in (0, 1)
    assert_sound(folder, tmp_path / "model.py", 3)
    assert folder.has("check.json")


def end_run(folder: StageFolder) -> None:
    """Have the first task's run be over, so that `all` comes to `fit` at once."""
    file = first_task(folder.path).file
    folder.write_bytes(f"runs/0/tasks/{Path(file).name}", (folder.path / file).read_bytes())
    folder.write_text("runs/0/stark.toml", "")
    folder.write("runs/0/result.json", {"tasks": [{"status": "finished", "best": "best.py"}]})


def test_a_fit_that_ends_early_leaves_the_earlier_one(whole: Path, tmp_path: Path) -> None:
    """Killed or refused while it writes. Before, the earlier fit had no fit.json or package."""
    shutil.copytree(whole / "out", tmp_path / "out")
    (tmp_path / "model.py").write_text(MODEL.replace("DEPTH", "3"))
    folder = StageFolder(tmp_path / "out")
    folder.write(
        "model.json", moved(folder.read("model.json", ModelRecord, "look"), tmp_path / "model.py")
    )
    before = contents(folder.path)
    words = ["fit", str(folder.path)]
    written = len(list((folder.path / "stark_fitted").glob("*.*")))
    for changes in (1, written):  # a change for each file of the package, renamed into place
        assert -9 == run_stage(words, changes)
        assert before == contents(folder.path)
    assert 0 == run_stage(words)
    assert not list(folder.path.glob(".stark_fitted*"))
    assert callable(load_package(folder).fit)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a fit, and of what follows from it."""
    package = sorted((folder / "stark_fitted").glob("*.*"))
    others = [folder / name for name in ("fit.json", "check.json")]
    return {path.name: path.read_bytes() for path in (*package, *others)}


def moved(record: ModelRecord, model: Path) -> ModelRecord:
    """Return the record of the same model at another place."""
    return ModelRecord(path=str(model), sha256=record.sha256, batches=record.batches)
