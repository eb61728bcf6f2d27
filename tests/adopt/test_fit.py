"""Winners in the model and out of it again: nothing else of the model changes."""

from __future__ import annotations

import ast
import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch
from planted_winners import ONCE, bare_winner, candidate, winner_file
from quick_stages import looked_at, silent, take_quickly
from torch.nn.utils import parametrize, prune

from actors.adopt.fit.fit import fit, load_package, package_texts
from actors.adopt.model.model_file import ModelFile
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import StageFolder

FILE = Path(__file__).parent / "models" / "planted.py"
PATTERNS = ("fast.*", "wrong")
FAST = [f"fast.{number}" for number in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    """Return a folder with two tasks, of which one has a winner."""
    made = looked_at(FILE, tmp_path_factory.mktemp("stages"), 4)
    task = next(task for task in take_quickly(made, *PATTERNS).tasks if task.name == "fast")
    source = (made.path / task.file).read_text()
    (made.path / "runs" / "fast").mkdir(parents=True)
    text = "# a header\n" + winner_file(source, candidate(ONCE.format(shift=0.1)))
    (made.path / "runs" / "fast" / "best.py").write_text(text)  # a run that was killed after a win
    found = fit(made, [], {}, silent)
    assert (["fast"], ["wrong"]) == ([each.name for each in found.winners], found.without)
    return made


@pytest.fixture
def package(folder: StageFolder) -> Any:
    return load_package(folder)


@pytest.fixture
def model() -> torch.nn.Module:
    return ModelFile(FILE).build()


INPUT = torch.randn(512, 64)


def call(model: torch.nn.Module, value: torch.Tensor = INPUT) -> torch.Tensor:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: torch.Tensor = model(value)
    return result


def test_fit_and_unfit_leave_nothing_behind(package: Any, model: torch.nn.Module) -> None:
    """The kernel runs in both modules; after unfit every attribute is the identical object."""
    before = [dict(vars(part)) for part in model.modules()]
    plain = call(model)
    assert FAST == package.fit(model)
    held = model.fast[0].forward
    assert FAST == package.fit(model)
    assert held is model.fast[0].forward  # twice is once
    torch.testing.assert_close(call(model), plain)
    assert [1] * 4 == [each["kernel"] for each in package.report(model).values()]
    assert FAST == package.unfit(model)
    after = [dict(vars(part)) for part in model.modules()]
    assert [list(one) for one in before] == [list(one) for one in after]
    assert all(
        one[key] is other[key] for one, other in zip(before, after, strict=True) for key in one
    )
    assert ({}, []) == (package.report(model), package.unfit(model))


def test_every_other_call_takes_the_original_and_is_counted(
    package: Any, model: torch.nn.Module
) -> None:
    """Another shape, strides, gradients, mode or attribute: the module's own forward."""
    package.fit(model)
    misses = {
        "shape": lambda: call(model, INPUT[:7]),
        "strides": lambda: call(model, torch.randn(64, 512).t()),
        "gradients": lambda: model(INPUT),
    }
    for number, miss in enumerate(misses.values(), start=1):
        miss()
        assert (0, number) == tuple(
            package.report(model)["fast.0"][key] for key in ("kernel", "original")
        )
    model.fast[0].shift = 7.0
    plain = ModelFile(FILE).build()
    plain.fast[0].shift = 7.0
    torch.testing.assert_close(call(model), call(plain))
    reasons = " / ".join(package.report(model)["fast.0"]["reasons"])
    for said in ("[7, 64] in place of", "strides", "gradients are wanted", "shift was changed"):
        assert said in reasons
    model.fast[1].train()
    call(model)
    assert "another mode" in " ".join(package.report(model)["fast.1"]["reasons"])


def test_parameters_that_change_are_the_kernels_too(package: Any, model: torch.nn.Module) -> None:
    """In place, by load_state_dict, or as new objects: the kernel computes with the new values."""
    package.fit(model)
    plain = ModelFile(FILE).build()
    call(model)
    for change in (
        lambda one: one.fast[0].weight.data.mul_(2),
        lambda one: one.load_state_dict({k: v * 0.5 for k, v in plain.state_dict().items()}),
        lambda one: setattr(one.fast[0], "weight", torch.nn.Parameter(torch.ones(64) * 3)),
    ):
        change(model)
        package.unfit(model)
        expected = call(model)
        package.fit(model)
        torch.testing.assert_close(call(model), expected)
        assert 1 == package.report(model)["fast.0"]["kernel"]


def new_weight(model: Any) -> None:
    model.fast[0].weight = torch.nn.Parameter(torch.ones(64) * 3)


def new_shift(model: Any) -> None:
    model.fast[0].shift = 5.0


@pytest.mark.parametrize("change", [new_weight, new_shift, lambda model: model.train()])
def test_a_compiled_module_is_traced_again_when_it_changes(
    package: Any, model: Any, change: Callable[[Any], None]
) -> None:
    """A graph that was made before would compute with what the module had then."""
    package.fit(model)
    torch._dynamo.reset()
    compiled: Any = torch.compile(model.fast[0], backend="eager", fullgraph=True)
    call(compiled)
    change(model)
    plain: Any = ModelFile(FILE).build()
    change(plain)
    torch.testing.assert_close(call(compiled), call(plain.fast[0]))
    torch._dynamo.reset()


class Doubled(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def parametrized(model: Any) -> torch.Tensor:
    parametrize.register_parametrization(model.fast[0], "weight", Doubled())
    return call(model)


def pruned(model: Any) -> torch.Tensor:
    prune.l1_unstructured(model.fast[0], "weight", 0.5)
    return call(model)


def replica(model: Any) -> torch.Tensor:
    """On another card each module is a replica with tensors of that card."""
    found = model.fast[0]._replicate_for_data_parallel()
    found._parameters = {}
    found.weight = torch.ones(64) * 2
    return call(found)


def ensemble(model: Any) -> torch.Tensor:
    state = torch.func.stack_module_state([model, model])
    with torch.no_grad():
        return torch.vmap(lambda *own: torch.func.functional_call(model, own, (INPUT,)))(*state)


def class_patched(model: Any) -> torch.Tensor:
    """As libraries do that replace the forward of a class."""
    kind = type(model.fast[0])
    kind.forward = lambda self, x: x * 5
    try:
        return call(model)
    finally:
        del kind.forward


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", [parametrized, pruned, replica, ensemble, class_patched])
@pytest.mark.parametrize("is_used_before", [True, False])
def test_a_module_that_is_another_one_now_takes_its_own_forward(
    package: Any, model: torch.nn.Module, use: Callable[[Any], torch.Tensor], is_used_before: bool
) -> None:
    """Without its parameter, as a replica, in vmap, with a patched class: right, and no error."""
    package.fit(model)
    if is_used_before:
        call(model)
    torch.testing.assert_close(use(model), use(ModelFile(FILE).build()))


def test_state_copies_and_pickles_are_as_before(package: Any, model: torch.nn.Module) -> None:
    """state_dict, deepcopy and pickle do not show that the model is fitted; hooks still run."""
    state = list(model.state_dict())
    package.fit(model)
    plain = call(model)
    assert state == list(model.state_dict())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model.fast))):  # noqa: S301
        assert not any("forward" in vars(part) for part in copied.modules())
    torch.testing.assert_close(call(copy.deepcopy(model)), plain)
    seen: list[object] = []
    model.fast[0].register_forward_hook(lambda *given: seen.append(given))
    call(model)
    assert (1, 2) == (len(seen), package.report(model)["fast.0"]["kernel"])


def test_a_compiler_sees_one_operator_whose_calls_are_counted(
    package: Any, model: torch.nn.Module
) -> None:
    """Under torch.compile the graph is whole, the kernel runs in it, and counts."""
    plain = call(model)
    package.fit(model)
    call(model)
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(call(compiled), plain)
    torch.testing.assert_close(call(compiled, INPUT[:100]), plain[:100])
    assert 2 == package.report(model)["fast.0"]["kernel"]


def test_a_run_s_result_has_the_gain_of_a_winner(folder: StageFolder) -> None:
    """The report's column "by itself" is the speed-up that the run's result.json names."""
    best = {"speedup_eager": 3.5}
    result = {"tasks": [{"task": "fast", "best": best}, {"task": "other", "best": None}]}
    file = folder.path / "runs" / "fast" / "result.json"
    file.write_bytes(msgspec.json.encode(result))
    try:
        found = fit(folder, [], {}, silent)
    finally:
        file.unlink()
    assert [("fast", 3.5)] == [(each.name, each.speedup) for each in found.winners]


def test_another_model_is_not_fitted(package: Any) -> None:
    """A module with other parameters than those that were taken keeps its forward, and is told."""
    other = ModelFile(FILE)._module.Planted(width=32)
    for model, reason in ((other, "not the module"), (torch.nn.Linear(4, 4), "no such module")):
        with pytest.warns(UserWarning, match=f"no module has a kernel: .*{reason}"):
            assert [] == package.fit(model)


def test_a_package_needs_only_torch(folder: StageFolder) -> None:
    """No file of the package imports this project or its dependencies, or has recorded data."""
    for file in (folder.path / "stark_fitted").rglob("*.py"):
        text = file.read_text()
        assert "actors" not in text
        assert "msgspec" not in text


def test_what_cannot_be_fitted_is_said(folder: StageFolder, tmp_path: Path) -> None:
    """No winner, a winner of no task, a file without ModelNew, a missing run: one line each."""
    empty = StageFolder(tmp_path / "empty")
    for name in ("model.json", "look.json", "take.json"):
        empty.write_bytes(name, (folder.path / name).read_bytes())
    taken = msgspec.json.decode((folder.path / "take.json").read_bytes())
    for task in taken["tasks"]:
        empty.write_bytes(task["file"], (folder.path / task["file"]).read_bytes())
    (tmp_path / "x.py").write_text("pass")
    for runs, given, said in (
        ([], {}, "no winner for any of 2 tasks"),
        ([tmp_path / "absent"], {}, "there is no such folder"),
        ([], {"other": tmp_path / "x.py"}, "no task of that name"),
        ([], {"fast": tmp_path / "x.py"}, "it has no class ModelNew"),
        ([], {"fast": tmp_path / "y.py"}, "can't read"),
    ):
        with pytest.raises(AdoptError, match=said):
            fit(empty, runs, given, silent)
    assert isinstance(load_package(folder), ModuleType)


@pytest.mark.filterwarnings("ignore")
def test_a_compiler_takes_calls_of_another_shape_without_a_break(folder: StageFolder) -> None:
    """Sizes become symbols at the second shape; the fitted modules stay in one graph."""
    package, model, found = load_package(folder), ModelFile(FILE).build(), []
    assert FAST == package.fit(model)
    torch._dynamo.reset()
    model.compile(backend="eager", fullgraph=True)
    with torch.no_grad():
        for rows in (512, 128, 200, 512):
            found.append(model(torch.randn(rows, 64)))
    torch._dynamo.reset()
    assert [512, 128, 200, 512] == [len(each) for each in found]


def test_kernels_run_on_after_an_export(package: Any, model: Any) -> None:
    """torch.export leaves equal copies of plain attributes in the modules."""
    model.fast[0].sizes = (1, (2, 3))
    package.fit(model)
    call(model)
    held = model.fast[0].sizes
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.export(model, (INPUT,))
    assert held is not model.fast[0].sizes
    call(model)
    assert 2 == package.report(model)["fast.0"]["kernel"]
    model.fast[0].sizes = (1, (2, 4))
    call(model)
    assert {"the attribute sizes was changed": 1} == package.report(model)["fast.0"]["reasons"]


CHAIN = """\
import torch


class Last(torch.nn.Module):
    # its result has its channels last in memory, as timm's ConvNeXt has
    def forward(self, x):
        return torch.tanh(x.permute(0, 2, 3, 1) * 2.0).permute(0, 3, 1, 2)


def build():
    return torch.nn.Sequential(Last(), Last(), Last()).eval()


def batches():
    for rows in (4, 4, 2):
        yield (torch.randn(rows, 6, 8, 8).to(memory_format=torch.channels_last),), {}
"""


def test_a_result_has_the_strides_of_the_module_s_own(tmp_path: Path) -> None:
    """A kernel that returns contiguous memory is followed by modules that know no such calls."""
    (tmp_path / "chain.py").write_text(CHAIN)
    made = looked_at(tmp_path / "chain.py", tmp_path / "out", 3)
    (task,) = take_quickly(made, "*").tasks
    assert 2 == len(task.cases)
    kernel = "return torch.tanh(x * 2.0).contiguous()"
    text = bare_winner((made.path / task.file).read_text(), kernel, task)
    made.write_text("winner.py", text)
    fit(made, [], {task.name: made.path / "winner.py"}, silent)
    package, file = load_package(made), ModelFile(tmp_path / "chain.py")
    model, batches = file.build(), file.batches(3)
    wanted = [model(*args) for args, _ in batches]
    assert ["0", "1", "2"] == package.fit(model)
    found = [model(*args) for args, _ in batches]
    assert [3] * 3 == [each["kernel"] for each in package.report(model).values()]
    for one, other in zip(found, wanted, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_torch_jit_script_says_what_to_do(package: Any, model: torch.nn.Module) -> None:
    """Before: "'FittedForward' object has no attribute '__globals__'"."""
    package.fit(model)
    with pytest.raises(RuntimeError, match=r"call unfit\(model\) before it"):
        torch.jit.script(model)


def test_what_a_compiler_traces_uses_no_descriptor() -> None:
    """torch 2.11 breaks the graph at `function.__get__`, also in a property: at each other call."""
    tree = ast.parse(package_texts()["fitted_forward.py"])
    (forward,) = (
        each
        for each in tree.body
        if isinstance(each, ast.ClassDef) and each.name == "FittedForward"
    )
    methods = {each.name: each for each in forward.body if isinstance(each, ast.FunctionDef)}
    assert {"traced", "fitting", "is_as_traced", "nested", "original"} <= methods.keys()
    for name, method in methods.items():
        assert not method.decorator_list, name
        used = {each.attr for each in ast.walk(method) if isinstance(each, ast.Attribute)}
        assert name == "__init__" or "__get__" not in used, name
