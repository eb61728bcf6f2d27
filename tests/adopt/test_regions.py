"""Regions of forwards as tasks: taken, fitted, taken out again, and checked."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_winners import bare_winner
from quick_stages import looked_at, silent, take_quickly
from torch import nn

from actors.adopt.check.check import check
from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model_report import report_text
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.taken_tasks import Take

FILE = Path(__file__).parent / "models" / "glue.py"
TASK, LAST = "layers-region_1", "region_1"
SITES = [f"layers.{layer}.region_{number}" for layer in (0, 1) for number in (1, 2)]
PATTERNS = ("layers.?", "last", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    """Return a folder with the tasks of the regions, and a winner for each."""
    made = looked_at(FILE, tmp_path_factory.mktemp("stages"), 3)
    taken = take_quickly(made, *PATTERNS, regions=True)
    for task in taken.tasks:
        source = (made.path / task.file).read_text()
        body = "return super(ModelNew, self).forward(x, *rest)"
        made.write_text(f"given/{task.name}.py", bare_winner(source, body, task))
    fit(made, [], {task.name: winner(made, task.name) for task in taken.tasks}, silent)
    return made


def winner(folder: StageFolder, name: str) -> Path:
    return folder.path / "given" / f"{name}.py"


@pytest.fixture
def taken(folder: StageFolder) -> Take:
    return folder.read("take.json", Take, "take")


@pytest.fixture
def package(folder: StageFolder) -> Any:
    return load_package(folder)


@pytest.fixture
def model() -> nn.Module:
    return ModelFile(FILE).build()


INPUT = torch.randn(512, 64)


def call(model: nn.Module, value: torch.Tensor = INPUT) -> torch.Tensor:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: torch.Tensor = model(value)
    return result


def counts(package: Any, model: nn.Module, site: str = SITES[0]) -> tuple[int, int, list[str]]:
    """Return the calls of a region's kernel and of its original, and why."""
    found = package.report(model)[site]
    return found["kernel"], found["original"], list(found["reasons"])


def test_equal_regions_are_one_task(taken: Take) -> None:
    """Two regions in each of two blocks compute the same with other weights: one task, four sites.

    The model's own forward has a region, too.
    """
    tasks = {task.name: task for task in taken.tasks}
    assert {TASK, LAST} == set(tasks)
    assert SITES == sorted(tasks[TASK].sites)
    assert "GluedBlockRegion" == tasks[TASK].class_name
    assert "in layers.0, after first, before second" == tasks[TASK].place
    assert 2 == len(tasks[TASK].cases)
    assert tasks[TASK].proof.is_equal
    assert ("region_1",) == tasks[LAST].sites


def test_a_task_is_ordinary_pytorch(folder: StageFolder, taken: Take) -> None:
    """A region's file reads like a module's, and says where the region is."""
    task = next(task for task in taken.tasks if task.name == TASK)
    text = (folder.path / task.file).read_text()
    assert (
        "A region of a forward: the first one is in layers.0, after first, before second." in text
    )
    assert "F.layer_norm(add, [64], self.weight, self.bias, 1e-05)" in text
    assert "torch.ops" not in text


def test_what_has_no_region_is_named(taken: Take) -> None:
    """A module that branches on values is refused by name, and the blocks are no tasks."""
    reasons = {each.name: each.reason for each in taken.not_taken}
    assert reasons["regions of last"] == "it reads the values of a tensor in Python (__bool__)"
    assert reasons["layers"] == "regions of it are tasks"


def test_fit_and_unfit_leave_nothing_behind(package: Any, model: nn.Module) -> None:
    """All kernels run; after unfit every attribute is the identical object, also of the model."""
    before = [dict(vars(part)) for part in model.modules()]
    keys, plain = list(model.state_dict()), call(model)
    assert sorted([*SITES, LAST]) == sorted(package.fit(model))
    held = model.layers[0].forward
    assert sorted([*SITES, LAST]) == sorted(package.fit(model))
    assert held is model.layers[0].forward  # twice is once
    assert torch.equal(plain, call(model))
    assert [1] * 5 == [each["kernel"] for each in package.report(model).values()]
    assert keys == list(model.state_dict())
    package.unfit(model)
    after = [dict(vars(part)) for part in model.modules()]
    assert [list(one) for one in before] == [list(one) for one in after]
    assert all(
        one[key] is other[key] for one, other in zip(before, after, strict=True) for key in one
    )


def test_copies_and_pickles_are_not_fitted(package: Any, model: nn.Module) -> None:
    """A copy is the model as it was, and has tensors of its own."""
    plain = call(model)
    package.fit(model)
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert {} == package.report(made)
        assert torch.equal(plain, call(made))


def test_one_winner_of_two_is_fitted_alone(package: Any, model: nn.Module) -> None:
    """With one winner the other regions run their own code."""
    plain = call(model)
    assert SITES == sorted(package.fit(model, only=[TASK]))
    assert torch.equal(plain, call(model))
    assert set(SITES) == set(package.report(model))


def test_unseen_calls_take_the_forward(package: Any, model: nn.Module) -> None:
    """Another size, and recorded gradients, run the module's own forward and are counted."""
    package.fit(model)
    call(model, INPUT[:100])
    assert (0, 1, ["torch.float32[100, 64] in place of torch.float32[512, 64]"]) == counts(
        package, model
    )
    result = model(INPUT)
    assert result.requires_grad
    assert (
        "gradients are wanted (under torch.no_grad() the kernel runs)" in counts(package, model)[2]
    )
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(INPUT)
    assert 0 == counts(package, model)[0]


def test_weights_are_those_of_the_module(package: Any, model: nn.Module) -> None:
    """Tensors that replace the module's own are the kernel's, too."""
    package.fit(model)
    call(model)
    model.load_state_dict(
        {key: value * 1.5 for key, value in model.state_dict().items()}, assign=True
    )
    found = call(model)
    assert 2 == counts(package, model)[0]
    package.unfit(model)
    assert torch.equal(call(model), found)


def test_hooks_are_called(package: Any, model: nn.Module) -> None:
    """Hooks of the block and of its products are called beside the kernel.

    One of a norm, whose operations are in a region, makes the block take its own forward.
    """
    package.fit(model)
    seen: list[str] = []
    block = model.layers[0]
    block.register_forward_hook(lambda *given: seen.append("block"))
    block.first.register_forward_hook(lambda *given: seen.append("first"))
    call(model)
    assert (1, 0, []) == counts(package, model)
    block.norm1.register_forward_hook(lambda *given: seen.append("norm1"))
    call(model)
    assert (1, 1, ["a submodule has hooks or a forward of its own"]) == counts(package, model)
    assert ["first", "block", "first", "norm1", "block"] == seen


def test_changed_modules_take_the_forward(package: Any, model: nn.Module) -> None:
    """An attribute, a mode or a submodule that is not as it was is named."""
    package.fit(model)
    model.layers[0].norm1.eps = 0.5
    call(model)
    model.layers[1].first = nn.Linear(64, 64)
    call(model)
    assert ["the attribute eps was changed"] == counts(package, model)[2]
    assert ["a submodule was replaced"] == counts(package, model, SITES[2])[2]
    # The model's forward could have read both.
    reasons = ["an attribute of a submodule was changed", "a submodule was replaced"]
    assert reasons == counts(package, model, LAST)[2]


def test_a_parameter_that_was_not_there_is_seen(package: Any, model: nn.Module) -> None:
    """The trace was made without it, so the module's own forward runs."""
    package.fit(model)
    model.layers[0].shift = nn.Parameter(torch.ones(64), requires_grad=False)
    found = call(model)
    assert (0, 1, ["the parameter shift was added"]) == counts(package, model)
    package.unfit(model)
    assert torch.equal(call(model), found)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: None,
        lambda model: setattr(model.layers[0].norm1, "eps", 0.5),
        lambda model: model.layers.append(nn.Identity()),
    ],
)
def test_a_compiled_model_runs_its_own_forward(
    package: Any, model: nn.Module, change: Callable[[nn.Module], None]
) -> None:
    """torch.compile traces the forward as without a kernel, and breaks nowhere."""
    package.fit(model, only=[TASK])
    change(model)
    plain = copy.deepcopy(model).layers[0]
    torch._dynamo.reset()
    block = torch.compile(model.layers[0], backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(block(INPUT, INPUT), plain(INPUT, INPUT))
    assert (0, 0, []) == counts(package, model)


def cast_in_place(model: nn.Module) -> None:
    model.bfloat16().float().layers[0].scale1.data = torch.rand(64, dtype=torch.bfloat16).double()


def tie(model: nn.Module) -> None:
    model.layers[0].scale2 = model.layers[0].scale1


CHANGES: list[tuple[Callable[[Any], Any], str]] = [
    (cast_in_place, "the parameter scale1 has another dtype, layout or device"),
    (tie, "parameters that were one tensor are not any more, or others are"),
    (lambda model: setattr(model.layers[0], "scale1", None), "the parameter scale1 was removed"),
    (lambda model: setattr(model.layers[0], "extra", 1), "an attribute was added"),
    (
        lambda model: setattr(model.layers[0].first, "in_features", 1),
        "an attribute of a submodule was changed",
    ),
    (
        lambda model: model.layers[0].first.train(),
        "a submodule is in another mode (training or evaluation)",
    ),
    (
        lambda model: model.layers[0].first.register_forward_hook(lambda *given: given[2].double()),
        "a submodule returned another layout",
    ),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_after_a_change_the_forward_runs(
    package: Any, model: nn.Module, change: Callable[[Any], Any], reason: str
) -> None:
    """What the trace could have read is not as it was: the module's own forward, and why."""
    package.fit(model)
    change(model)
    block = model.layers[0]
    found: Any = None
    try:
        with torch.no_grad():
            found = block(INPUT, INPUT.roll(1, -1))
    except (RuntimeError, TypeError) as error:  # as without kernels
        found = str(error)
    assert (0, 1, [reason]) == counts(package, model)
    package.unfit(model)
    try:
        with torch.no_grad():
            expected: Any = block(INPUT, INPUT.roll(1, -1))
    except (RuntimeError, TypeError) as error:
        expected = str(error)
    assert found == expected if isinstance(found, str) else torch.equal(found, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.layers[0].eval().first.train(),
        lambda model: setattr(model.layers[0].norm1, "eps", 0.5),
        lambda model: setattr(model.layers[0], "flags", [1]),
    ],
)
def test_another_model_than_the_traced_one_is_not_fitted(
    package: Any, model: nn.Module, change: Callable[[Any], Any]
) -> None:
    """What differs before fit is compared with the model that was traced."""
    change(model)
    fitted = package.fit(model, only=[TASK])
    assert SITES[2:] == sorted(fitted)


def test_the_models_own_forward_alone_can_be_asked_for(folder: StageFolder, tmp_path: Path) -> None:
    """`--regions --at ''` names the model's own forward, which no look lists."""
    made = looked_at(FILE, tmp_path / "own", 3)
    assert [("region_1",)] == [task.sites for task in take_quickly(made, "", regions=True).tasks]


def test_a_wrong_winner_is_dropped_by_name(folder: StageFolder) -> None:
    """Of two regions of which one has a wrong kernel, the check names that one."""
    source = next(
        (folder.path / task.file).read_text()
        for task in folder.read("take.json", Take, "take").tasks
        if task.name == TASK
    )
    task = next(t for t in folder.read("take.json", Take, "take").tasks if t.name == TASK)
    body = "return super(ModelNew, self).forward(x, *rest) * 1.01"
    folder.write_text("given/wrong.py", bare_winner(source, body, task))
    given = {TASK: folder.path / "given" / "wrong.py", LAST: winner(folder, LAST)}
    fit(folder, [], given, silent)
    result = check(folder, 0.5, {}, silent)
    trials = {trial.name: trial for trial in result.trials}

    assert trials[TASK].reason.startswith("wrong: output 0 of batch")
    assert "wrong" not in trials[LAST].reason
    assert (3, 3) == (trials[LAST].kernel_calls, trials[LAST].expected_calls)
    assert 12 == trials[TASK].expected_calls
    assert "layers-region_1 (GluedBlockRegion)" in report_text(folder)
    assert "a forward with regions is compiled without their kernels" in report_text(folder)
