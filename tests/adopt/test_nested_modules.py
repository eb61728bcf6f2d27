"""Tasks and winners of modules that are parts of other ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planted_winners import bare_winner
from quick_stages import looked_at, options, silent

from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.model_file import ModelFile
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.take import take, take_parts
from actors.adopt.take.taken_tasks import Take

FILE = Path(__file__).parent / "models" / "nested.py"
BLOCKS = tuple(f"blocks.{number}" for number in range(3))
BENDS = tuple(f"{block}.bend" for block in BLOCKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    return looked_at(FILE, tmp_path_factory.mktemp("stages"), 3)


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.adopt.tasks.task_proof.TIMED_S", 0.01)


def test_a_part_of_a_taken_module_is_in_no_other_task(folder: StageFolder) -> None:
    """Equal modules elsewhere are a task; those inside of a taken one would be worked on twice."""
    found = {task.class_name: task.sites for task in take(folder, options(), silent).tasks}
    assert BLOCKS == found["Block"]
    assert ("last",) == found["Bend"]


def test_a_kernel_replaces_parts_that_are_fitted_too(folder: StageFolder) -> None:
    """A block's kernel runs although its part has one; alone, the part's kernel runs."""
    taken = take(folder, options("blocks.?", "*bend", "last"), silent)
    winners = {}
    for task in taken.tasks:
        source = (folder.path / task.file).read_text(encoding="utf-8")
        text = bare_winner(source, "return super().forward(x, *rest)", task)
        folder.write_text(f"given/{task.name}.py", text)
        winners[task.name] = folder.path / "given" / f"{task.name}.py"
    fit(folder, [], winners, silent)
    package, model = load_package(folder), ModelFile(FILE).build()
    before = [dict(vars(part)) for part in model.modules()]
    value = torch.randn(8192, 64)
    with torch.no_grad():
        plain = model(value)
        assert {*BLOCKS, *BENDS, "last"} == {*package.fit(model)}
        torch.testing.assert_close(model(value), plain)
        counts = {path: each["kernel"] for path, each in package.report(model).items()}
        assert dict.fromkeys((*BLOCKS, "last"), 1) | dict.fromkeys(BENDS, 0) == counts
        model.blocks[0].bend(value)
        assert 1 == package.report(model)["blocks.0.bend"]["kernel"]
    package.unfit(model)
    assert before == [dict(vars(part)) for part in model.modules()]


def test_parts_of_unlike_blocks_are_one_task(tmp_path: Path) -> None:
    """A block that can't be taken leaves its part to the task of the other blocks' parts."""
    folder = looked_at(FILE.with_name("unlike_blocks.py"), tmp_path, 3)
    result = take(folder, options(), silent)
    found = {task.class_name: task.sites for task in result.tasks}
    assert {"blocks.1.bend", "blocks.2.bend"} <= {*found["Bend"]}
    assert ("tiles",) == found["Tiles"]  # its argument is a torch.Size
    names = [each.name for each in (*result.tasks, *result.not_taken)]
    assert len(set(names)) == len(names)


def test_parts_of_losers_are_one_task_with_equal_modules_that_lost(folder: StageFolder) -> None:
    """Before: two tasks of one name and one file, and the part of the blocks was never run."""
    names = [task.name for task in take(folder, options(), silent).tasks]
    (part,) = [task for task in take_parts(folder, options(), names, silent).tasks if task.part_of]
    after = folder.read("take.json", Take, "take").tasks
    assert {*BENDS, "last"} == {*part.sites}
    assert len({task.name for task in after}) == len(after) == 2


TWICE = """\
import torch
class Keeps(torch.nn.Module):  # as diffusers' down blocks
    def forward(self, x):
        x = torch.tanh(x) * 2
        y = torch.sigmoid(x) + 1
        return y, (x, None, y)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.keeps = Keeps()
    def forward(self, x):
        y, (x, _, z) = self.keeps(x)
        return y * x + z
def build():
    return Model().eval()
def batches():
    for _ in range(3):
        yield (torch.randn(64, 64),), {}
"""


def test_a_module_that_returns_a_tensor_twice_becomes_a_task(tmp_path: Path) -> None:
    """Before: "the task's result has other shapes than the module's"."""
    (tmp_path / "twice.py").write_text(TWICE)
    folder = looked_at(tmp_path / "twice.py", tmp_path / "out", 3)
    (task,) = take(folder, options("keeps"), silent).tasks
    assert (0, 1, -1, 0) == task.outputs
    source = (folder.path / task.file).read_text(encoding="utf-8")
    folder.write_text("given.py", bare_winner(source, "return super().forward(x, *rest)", task))
    fit(folder, [], {"keeps": folder.path / "given.py"}, silent)
    package, model = load_package(folder), ModelFile(tmp_path / "twice.py").build()
    value = torch.randn(64, 64)
    with torch.no_grad():
        plain = model.keeps(value)
        package.fit(model)
        y, (x, nothing, z) = model.keeps(value)
    assert 1 == package.report(model)["keeps"]["kernel"]
    assert (y is z, nothing) == (True, None)
    assert torch.equal(y, plain[0])
    assert torch.equal(x, plain[1][0])


def test_equal_modules_without_hooks_are_taken_beside_one_that_has(tmp_path: Path) -> None:
    """Before, a hook that keeps the last block's features left all blocks without a task."""
    (tmp_path / "m.py").write_text(
        FILE.read_text(encoding="utf-8")
        + "\nplain = build\ndef build():\n    model = plain()\n"
        + "    model.blocks[1].register_forward_hook(lambda *given: None)\n    return model\n"
    )
    made = looked_at(tmp_path / "m.py", tmp_path / "stages", 3)
    found = take(made, options("blocks.?"), silent)
    assert [("blocks.0", "blocks.2")] == [task.sites for task in found.tasks]
    assert [(("blocks.1",), "it has hooks, which a kernel would skip")] == [
        (each.sites, each.reason) for each in found.not_taken
    ]
