"""The first two stages, on small models: where the time is, and tasks that are proven."""

from __future__ import annotations

import functools
import io
import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from actors.adopt import stages as stages_of_the_command
from actors.adopt.look.look import Look, look, look_lines, refuse_outside
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model_report import no_winner_line
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.take import take, take_parts
from actors.adopt.take.taken_tasks import Options, Take
from actors.adopt.tasks.module_graph import module_graph
from actors.adopt.tasks.task_proof import load_task
from actors.adopt.tasks.task_text import task_text
from actors.exit_status import ExitStatus
from scripts import adopt

MODELS = Path(__file__).parent / "models"
EASY = Options(min_share=0.0, max_gap=1e6)  # times on a shared machine prove nothing


@pytest.fixture(autouse=True, scope="module")
def short_measurements() -> Iterator[None]:
    """Other programs use the cores: one thread, and no long series of calls."""
    with pytest.MonkeyPatch.context() as patch:
        torch.set_num_threads(1)
        patch.setattr("actors.adopt.look.look.STEP_S", 0.05)
        patch.setattr("actors.adopt.tasks.task_proof.TIMED_S", 0.01)
        yield


def silent(line: str) -> None:
    """Take a line for the user."""


class Stages(NamedTuple):
    """The first two stages of one model."""

    folder: StageFolder
    look: Look
    take: Take


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stages]:
    @functools.cache
    def made(name: str) -> Stages:
        folder = StageFolder(tmp_path_factory.mktemp(name))
        found = look(ModelFile(MODELS / f"{name}.py"), folder, 8, ["eager"], silent)
        return Stages(folder, found, take(folder, EASY, silent))

    return made


def test_the_time_belongs_to_the_innermost_module_and_equal_modules_are_one(
    stages: Callable[[str], Stages],
) -> None:
    """Shares add up, equal blocks are one line ×N, and library time is told apart."""
    found = stages("vit").look
    groups = {group.name: group for group in found.groups}

    assert ("blocks.0", "blocks.1") == groups["blocks"].sites
    assert 4 == len(groups["blocks-norm1"].sites)  # norm1 and norm2 of both blocks
    assert groups["blocks"].share < 1.0
    assert 0.0 == groups["blocks-norm1"].library_share
    assert groups["head"].library_share == pytest.approx(groups["head"].share)
    inner = sum(groups[name].share for name in ("blocks-norm1", "blocks-attn", "blocks-mlp"))
    assert inner < groups["blocks"].share
    assert 1.0 == pytest.approx(groups["blocks-norm1"].calls / 4)
    assert "×4" in "\n".join(look_lines(found))


def test_time_outside_of_modules_is_an_error_with_advice(tmp_path: Path) -> None:
    """A step whose work is in no module is reported with the operations that it is in."""
    model = tmp_path / "loose.py"
    model.write_text(
        "import torch\n"
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def batches(): return [((torch.randn(2, 4),), {})] * 3\n"
        "def step(model, batch):\n"
        "    return torch.sort(torch.randn(50_000)), model(*batch[0])\n"
    )
    found = look(ModelFile(model), StageFolder(tmp_path / "out"), 8, ["eager"], silent)
    with pytest.raises(AdoptError, match=r"belongs to no module.*aten::sort.*--max-outside"):
        refuse_outside(found, 0.15)
    refuse_outside(found, 1.0)


@pytest.mark.parametrize("name", ["vit", "decoder", "unet"])
def test_a_task_equals_its_module_and_needs_only_torch(
    stages: Callable[[str], Stages], name: str
) -> None:
    """Each task is KernelBench's form, flat, equal on recorded calls, and runs on drawn inputs."""
    folder, _, taken = stages(name)

    assert taken.tasks
    for task in taken.tasks:
        source = (folder.path / task.file).read_text()
        imports = [line for line in source.splitlines() if line.startswith(("import", "from"))]
        assert [
            "import torch",
            "import torch.nn as nn",
            "import torch.nn.functional as F",
        ] == imports
        assert (task.proof.is_equal, task.proof.sets > 0) == (True, True)
        names = load_task(source, task.name)
        result = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())
        assert torch.isfinite(result).all()
        cases = tomllib.loads((folder.path / task.file).with_name("cases.toml").read_text())
        assert 1 == sum(case["drawn"] for case in cases["case"])
        assert 1.0 == pytest.approx(sum(case["weight"] for case in cases["case"]), abs=1e-3)


def test_a_module_with_a_cache_is_not_taken_and_its_parts_are(
    stages: Callable[[str], Stages],
) -> None:
    """A decoder layer changes the cache that it is given; its gate and norms become tasks."""
    patterns = ("layers.?", "layers.*.mlp")
    folder = stages("decoder").folder
    taken = take(folder, msgspec.structs.replace(EASY, patterns=patterns), silent)
    refused = {each.name: each.reason for each in taken.not_taken}

    assert "it is given a Cache" == refused["layers"]
    recorded = {path.name for path in (folder.path / "captures").iterdir()}
    assert {task.name for task in taken.tasks} == recorded, "what is no task takes no room"
    said = no_winner_line(folder)  # before any run
    assert re.search(r"layers-mlp \(at most \d\.\d\d×\): it was not run", said), said
    assert re.search(r"Not taken: layers \(at most \d+\.\d\d×\): it is given a Cache", said), said
    assert {"layers-mlp"} <= {task.name for task in taken.tasks}
    gate = next(task for task in taken.tasks if task.name == "layers-mlp")
    assert ("layers.0.mlp", "layers.1.mlp") == gate.sites
    calls = sorted(case.calls for case in gate.cases)
    assert 8 == calls[-1]  # of 10 calls a step, 8 are of one token
    assert 10 == pytest.approx(sum(calls))  # the first ones, of two lengths, are cases, too
    path = (folder.path / gate.file).with_name("cases.toml")
    judged = [
        case["shapes"] for case in tomllib.loads(path.read_text())["case"] if "shapes" in case
    ]
    assert 2 == len(judged)


def test_recorded_data_is_private_and_capped(stages: Callable[[str], Stages]) -> None:
    """Recorded calls are mode 0600 in a folder of mode 0700, and stop at the cap."""
    folder, _, taken = stages("unet")
    files = list((folder.path / "captures").rglob("*.pt"))

    assert files
    assert {0o600} == {file.stat().st_mode & 0o777 for file in files}
    assert 0o700 == (folder.path / "captures").stat().st_mode & 0o777
    assert taken.captured_bytes == sum(file.stat().st_size for file in files)
    capped = take(folder, msgspec.structs.replace(EASY, cap=100), silent)
    assert (0, True, []) == (capped.captured_bytes, capped.is_cap_reached, capped.tasks)
    assert "--cap" in capped.not_taken[-1].reason


MODULES = {
    "gradients are recorded": "class M(torch.nn.Linear): pass",
    "it draws random numbers": (
        "class M(torch.nn.Linear):\n"
        "    def forward(self, x): return torch.rand_like(x) + super().forward(x)"
    ),
    "torch.export can't follow": (
        "class M(torch.nn.Linear):\n"
        "    def forward(self, x): return super().forward(x) if x.sum() > 0 else x.exp() * 2"
    ),
    "changes its input in place": (
        "class M(torch.nn.Linear):\n    def forward(self, x): return x.mul_(2).add(1)"
    ),
    "changes a list or a dict": (
        "class M(torch.nn.Linear):\n"
        "    def forward(self, x, kept): return kept.append(x) or super().forward(x).relu()"
    ),
    "its own buffers or attributes": (
        "class M(torch.nn.Linear):\n"
        "    seen = 0\n"
        "    def forward(self, x):\n"
        "        self.seen = self.seen + 1\n"
        "        return super().forward(x).relu() + 1"
    ),
    "it is called in": (
        "class M(torch.nn.Linear):\n    def forward(self, x): return x.exp() + 1\n"
        "BATCHES = [((torch.randn(200, 8),), {}) for _ in range(3)]"
    ),
    "its calls differ from step to step": (
        "class M(torch.nn.Linear):\n"
        "    def forward(self, x, number): return x.exp() + number\n"
        "NUMBERS = iter(range(10 ** 9))"
    ),
    "it returns a Result": (
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class Result: value: object\n"
        "class M(torch.nn.Linear):\n    def forward(self, x): return Result(x.exp() + 1)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", list(MODULES))
def test_what_cannot_be_a_task_is_refused_with_its_reason(tmp_path: Path, reason: str) -> None:
    """No task is made of a module that a kernel could not replace; the reason is said."""
    model = tmp_path / "bad.py"
    step = "model(*batch[0])"
    if "called in" in reason:
        step = "[model(batch[0][0][:rows]) for rows in range(1, 200)]"
    grad = "torch.enable_grad()" if "gradients" in reason else "torch.no_grad()"
    others = "[next(NUMBERS)]" if "step to step" in reason else "[]"
    others = "[[]]" if "a list or a dict" in reason else others
    model.write_text(
        f"import torch\nBATCHES = [((torch.randn(4, 8),), {{}}) for _ in range(3)]\n"
        f"{MODULES[reason]}\nOTHERS = lambda: {others}\n"
        "class Whole(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.part = M(8, 8)\n"
        "    def forward(self, x): return getattr(y := self.part(x, *OTHERS()), 'value', y)\n"
        "def build(): return Whole()\n"
        "def batches(): return BATCHES\n"
        "def step(model, batch):\n"
        f"    with {grad}: return {step}\n"
    )
    folder = StageFolder(tmp_path / "out")
    look(ModelFile(model), folder, 8, ["eager"], silent)
    taken = take(folder, msgspec.structs.replace(EASY, patterns=("part",)), silent)

    assert ([], 1) == (taken.tasks, len(taken.not_taken))
    assert reason in taken.not_taken[0].reason


def test_a_module_that_is_called_in_other_ways_at_each_step_is_taken_for_one(
    tmp_path: Path,
) -> None:
    """Positional, by keyword, with None and with a number: calls of one kind become the task."""
    model = tmp_path / "mine.py"
    model.write_text(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x, scale=None): return torch.tanh(x) * (scale or 1.0) + x\n"
        "class Whole(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.part = M()\n"
        "    def forward(self, x, way):\n"
        "        ways = [lambda: self.part(x), lambda: self.part(x=x),\n"
        "                lambda: self.part(x, None), lambda: self.part(x, scale=2.0)]\n"
        "        return ways[way]()\n"
        "def build(): return Whole()\n"
        "def batches():\n"
        "    for way in (0, 1, 2, 3, 0, 0): yield (torch.randn(300, 40), way), {}\n"
    )
    folder = StageFolder(tmp_path / "out")
    look(ModelFile(model), folder, 8, ["eager"], silent)
    taken = take(folder, msgspec.structs.replace(EASY, patterns=("part",)), silent)

    (task,) = taken.tasks
    assert (1, True) == (len(task.cases), task.proof.is_equal)
    cases = tomllib.loads((folder.path / task.file).with_name("cases.toml").read_text())["case"]
    assert (4, 1) == (len(cases), sum(case["drawn"] for case in cases))


CONTRACT = {
    "build() raised ValueError: no": "def build(): raise ValueError('no weights')",
    "build() raised ValueError: b (mine.py:5), because of KeyError: 'a'": (
        "def build():\n    raise ValueError('b') from KeyError('a')"
    ),
    "it needs the network": "def build(): raise OSError('We could not connect to huggingface.co')",
    "build() returned a dict, expected a torch.nn.Module": "def build(): return {}",
    "build() raised SystemExit: 3": "def build(): raise SystemExit(3)",
    "the Linear of build() has no submodules": "",
    "a step calls no module": (
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def step(model, batch): torch.randn(9).exp()"
    ),
    "batches() is empty": "def batches(): return iter(())",
    "batches() raised StopAsyncIteration": "def batches(): raise StopAsyncIteration",
    "expected (args, kwargs)": "def batches(): yield torch.randn(2, 4)",
    "the first step raised RuntimeError": "def batches(): yield (torch.randn(2, 3),), {}",
    "the step of batch 1 raised RuntimeError": (
        "def batches():\n    for size in (4, 3): yield (torch.randn(2, size),), {}"
    ),
    "quality() raised ValueError: no val.csv": (
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def quality(model): raise ValueError('no val.csv')"
    ),
    "quality() returned a float, expected a dict of numbers": (
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def quality(model): return 0.5"
    ),
    "has no function batches()": "del batches",
    "batches is a list, expected a function": "batches = [((torch.randn(2, 4),), {})] * 3",
    "step is a int, expected a function": "step = 3",
    "whose 0.weight has no values (it is on the device meta): load the weights in build()": (
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4, device='meta'))"
    ),
    "can't be imported: SyntaxError": "def",
    "build() returned a model with a compiled part (0)": (
        "def build():\n"
        "    part = torch.compile(torch.nn.Linear(4, 4), backend='eager')\n"
        "    return torch.nn.Sequential(part)"
    ),
    "whose 0 has no shapes yet (a lazy module): call the model once in build()": (
        "def build(): return torch.nn.Sequential(torch.nn.LazyLinear(4))"
    ),
    "build() returned a scripted model; return it as it is before torch.jit.script": (
        "def build(): return torch.jit.trace(torch.nn.Linear(4, 4), torch.randn(2, 4))"
    ),
    "build() returned a compiled model": (
        "def build(): return torch.compile(torch.nn.Linear(4, 4), backend='eager')"
    ),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
@pytest.mark.parametrize("message", list(CONTRACT))
def test_a_file_that_breaks_the_contract_is_reported_in_one_line(
    tmp_path: Path, message: str
) -> None:
    """What the user's file does wrong is said with its name; nothing is written."""
    model = tmp_path / "mine.py"
    model.write_text(
        "import torch\n"
        "def build(): return torch.nn.Linear(4, 4)\n"
        "def batches(): yield (torch.randn(2, 4),), {}\n" + CONTRACT[message] + "\n"
    )
    with pytest.raises(AdoptError) as raised:
        look(ModelFile(model), StageFolder(tmp_path / "out"), 8, ["eager"], silent)

    assert message in str(raised.value)
    assert 1 == len(str(raised.value).splitlines())
    assert not (tmp_path / "out").exists()


def test_batches_that_can_be_had_once_are_told_in_the_next_stage(tmp_path: Path) -> None:
    """Before: "batches() is empty", of a file that `look` had just taken eight batches from."""
    model = tmp_path / "mine.py"
    model.write_text(
        "import torch\n"
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "ALL = iter([((torch.randn(2, 4),), {})] * 3)\n"
        "def batches(): return ALL\n"
    )
    assert 3 == len(ModelFile(model).batches(8))
    with pytest.raises(AdoptError, match="is empty when it is called again: each call has to"):
        ModelFile(model).batches(8)


def test_an_error_in_a_later_step_is_one_line_and_one_of_ours_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's line is named; a fault of this project keeps its traceback."""
    model = tmp_path / "mine.py"
    model.write_text(
        "import torch\nSTEPS = iter([1] * 3)\n"
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def batches(): yield (torch.randn(2, 4),), {}\n"
        "def step(model, batch):\n"
        "    assert next(STEPS, None), 'the sampler has ended'\n"
        "    return model(*batch[0])\n"
    )
    arguments = ["look", str(model), "--out", str(tmp_path / "out")]
    parsed = adopt._parser().parse_args(arguments)
    line = r"a step raised AssertionError: the sampler has ended \(mine.py:6\)$"
    with pytest.raises(AdoptError, match=line):
        stages_of_the_command.run(parsed)

    def broken(*given: Any) -> None:
        raise KeyError("ours")

    model.write_text(model.read_text().replace("[1] * 3", "[1] * 9"))
    monkeypatch.setattr("actors.adopt.look.look.median_step_ms", broken)
    with pytest.raises(KeyError):
        stages_of_the_command.run(parsed)
    monkeypatch.undo()
    # The user's file calls this project's hooks, too.
    model.write_text(model.read_text().replace("next(STEPS, None)", "True"))
    monkeypatch.setattr("actors.adopt.look.module_profile.SCOPE", None)
    with pytest.raises(TypeError):
        stages_of_the_command.run(parsed)


def test_tensors_of_inference_mode_and_scripted_parts_are_taken_as_they_are(tmp_path: Path) -> None:
    """The first have no version, the second take no hooks; a change in place is seen in both."""
    model = tmp_path / "mine.py"
    model.write_text(
        "import torch\n"
        "class Wave(torch.nn.Module):\n"
        "    def forward(self, x): return torch.tanh(x) * 2.0 + x\n"
        "class Eater(torch.nn.Module):\n"
        "    def forward(self, x): return x.mul_(0.5).exp() + 1\n"
        "class Whole(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.script = torch.jit.script(torch.nn.Linear(8, 8))\n"
        "        self.wave, self.eater = Wave(), Eater()\n"
        "    @torch.inference_mode()\n"
        "    def forward(self, x): return self.eater(self.wave(self.script(x)))\n"
        "def build(): return Whole().eval()\n"
        "def batches():\n"
        "    for _ in range(3): yield (torch.randn(4, 8),), {}\n"
    )
    folder = StageFolder(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script
        look(ModelFile(model), folder, 8, ["eager"], silent)
        taken = take(folder, msgspec.structs.replace(EASY, patterns=("wave", "eater")), silent)
    assert ["wave"] == [task.name for task in taken.tasks]
    assert ["it changes its input in place"] == [each.reason for each in taken.not_taken]


def test_a_view_becomes_a_reshape() -> None:
    """Attention gives its result other strides where gradients are wanted: a view would raise."""

    class Joined(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(6, 4) * 2 + x.view(torch.int32).view(6, 4)

    values = torch.randn(2, 3, 4)
    text = task_text(module_graph(Joined(), (values,), {}), Joined(), [values], "")
    model = load_task(text.source, "joined")["Model"]()
    assert torch.equal(Joined()(values), model(values))
    assert torch.equal(Joined()(values), model(torch.randn(3, 2, 4).transpose(0, 1).copy_(values)))


def test_endless_batches_are_cut_and_a_changed_file_is_looked_at_again(tmp_path: Path) -> None:
    """Only --batches of them are taken; `take` refuses a file that changed after `look`."""
    model = tmp_path / "mine.py"
    model.write_text(
        "import torch\n"
        "def build(): return torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def batches():\n"
        "    while True: yield (torch.randn(2, 4),), {}\n"
    )
    folder = StageFolder(tmp_path / "out")
    assert 5 == look(ModelFile(model), folder, 5, ["eager"], silent).batches
    model.write_text(model.read_text() + "\n")
    with pytest.raises(AdoptError, match=r"has changed since `look`: run .* --out .*out` again"):
        take(folder, EASY, silent)


def test_a_file_is_imported_once_for_all_stages(tmp_path: Path) -> None:
    """An import that registers an operator can't be repeated; a changed file is imported anew."""
    model = tmp_path / "registers.py"
    text = (
        "import torch\n"
        "LIBRARY = torch.library.Library('adopt_imported_once', 'FRAGMENT')\n"
        "LIBRARY.define('NAME(Tensor x) -> Tensor')\n"
        "def build(): return torch.nn.Linear(2, 2)\n"
        "def batches(): return [((torch.ones(1, 2),), {})]\n"
    )
    for name in ("first", "first", "second"):
        model.write_text(text.replace("NAME", name))
        assert isinstance(ModelFile(model).build(), torch.nn.Linear)


def test_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is one line on stderr with status 2, without a traceback."""
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["look", "absent.py"], "absent.py: there is no such file\n"),
        (["take", "absent"], "run `adopt.py look` first"),
        (["take", "absent", "--cap", "much"], "is not a size such as 500M"),
    ):
        with pytest.raises(SystemExit) as ended:
            sys.exit(adopt.main(arguments))
        output = capsys.readouterr()
        assert (ExitStatus.USAGE, "", 1) == (
            ended.value.code, output.out, len(output.err.splitlines())
        )  # fmt: skip
        assert said in output.err


@pytest.mark.parametrize("flags", ["--watch", "--max-cost 5", "--device=cpu"])
def test_the_flags_of_a_run_may_be_one_word(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse takes no word that begins with dashes for a value, unless it has a space."""
    monkeypatch.chdir(tmp_path)
    assert ExitStatus.USAGE == adopt.main(["all", "absent.py", "--supervisor", flags])
    assert "absent.py: there is no such file" in capsys.readouterr().err


def test_parts_of_a_task_without_a_winner_become_tasks(tmp_path: Path) -> None:
    """A block whose run found nothing is opened; modules of other tasks are left alone."""
    folder = StageFolder(tmp_path / "out")
    look(ModelFile(MODELS / "vit.py"), folder, 8, ["eager"], silent)
    patterns = ("blocks.?", "head")
    taken = take(folder, msgspec.structs.replace(EASY, patterns=patterns), silent)
    found = take_parts(folder, EASY, ["blocks"], silent)
    parts = [task for task in found.tasks if task.part_of]

    assert {"blocks", "head"} == {task.name for task in taken.tasks}
    assert {"blocks", "head", "blocks-norm1"} <= {task.name for task in found.tasks}
    inside = ("blocks.0.", "blocks.1.")
    assert all(site.startswith(inside) for task in parts for site in task.sites)
    assert found.captured_bytes > taken.captured_bytes


def test_a_closed_pipe_does_not_end_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind `| head` the stage goes on in silence: its files have what it says."""

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    stages_of_the_command.say("one")
    stages_of_the_command.say("two")
