"""A step that trains the model: looked at, taken with its backward, fitted and compared."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_winners import winner_file
from quick_stages import looked_at, silent, take_quickly

from actors.adopt.check.accuracy import Truth
from actors.adopt.check.check import check
from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model.model_state import KeptState
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.taken_tasks import Take

FILE = Path(__file__).parent / "models" / "trained.py"
PLAIN = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        return {expression}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    made = looked_at(FILE, tmp_path_factory.mktemp("stages"), 3)
    take_quickly(made, "gates.*", "dropout")
    return made


@pytest.fixture(scope="module")
def taken(folder: StageFolder) -> Take:
    return folder.read("take.json", Take, "take")


def test_a_task_of_a_training_step_has_its_backward(folder: StageFolder, taken: Take) -> None:
    """Outputs and gradients equal the module's; the task asks the judge for both."""
    (task,) = taken.tasks
    assert ("gates", True, True) == (task.name, task.gradients, task.proof.is_equal)
    cases = tomllib.loads((folder.path / task.file).with_name("cases.toml").read_text())
    assert cases["backward"] is True
    assert [[[128, 64]]] == [case["shapes"] for case in cases["case"] if "shapes" in case]
    assert "it draws random numbers" in {each.reason for each in taken.not_taken}


def test_a_winner_without_backward_is_not_for_a_training_step(
    folder: StageFolder, taken: Take
) -> None:
    """It would return a result without gradients, and the model would not learn."""
    text = winner_file(
        (folder.path / taken.tasks[0].file).read_text(),
        PLAIN.format(expression="torch.tanh(x * self.weight)"),
    )
    folder.write_text("given/forward.py", text)
    with pytest.raises(AdoptError, match="judged without backward"):
        fit(folder, [], {"gates": folder.path / "given" / "forward.py"}, silent)


def test_every_step_of_a_comparison_begins_with_the_same_values() -> None:
    """Three steps of training leave the model, and what the next comparison sees, as they were."""
    file = ModelFile(FILE)
    model, batches = file.build(), file.batches(3)
    state = KeptState(model)
    file.step(model, batches[0])
    state.settle()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    truth = Truth(file, model, batches, state)
    found = truth.accuracy(truth.results())

    assert state.is_needed
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert (True, 1.0) == (found.is_right, pytest.approx(found.gradient_cosine))


def _positions() -> torch.Tensor:
    return torch.arange(4).expand(3, 4)


def _of_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.arange(4)


def _viewed_in_inference_mode() -> torch.Tensor:
    base = torch.arange(8)
    with torch.inference_mode():
        return base[:4]


@pytest.mark.parametrize("made", [_positions, _of_inference_mode, _viewed_in_inference_mode])
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_trained_model_may_have_batches_that_copies_cannot_be_written_to(
    made: Callable[[], torch.Tensor], *, is_changed: bool
) -> None:
    """Expanded positions and tensors of inference mode raised an error in every training step."""
    given, layer = made(), torch.nn.Linear(4, 1)
    state = KeptState(layer, [((given,), {})])

    def step() -> None:
        layer(torch.ones(4)).sum().backward()
        with torch.inference_mode():
            layer.weight.add_(1)
            if is_changed:
                given.as_strided((4,), (1,)).add_(1)

    step()
    state.settle()
    before = given.clone(), layer.weight.detach().clone()
    step()
    state.restore()
    assert all(map(torch.equal, before, (given, layer.weight)))
    assert layer.weight.grad is None


def test_batches_that_no_step_changes_are_not_copied() -> None:
    """A training step changes the parameters; its batches may take gigabytes."""
    layer, words = torch.nn.Linear(4, 1), torch.ones(3, 4)
    state = KeptState(layer, [((words,), {})])
    layer(words).sum().backward()
    state.settle()
    words.add_(1)
    state.restore()
    assert words.eq(2).all()


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (lambda x: x * 1.001, "output 0 of batch 0"),
        (lambda x: x.detach() + 0 * x, "the gradient of"),
        (lambda x: x + (x - x.detach()) * 0.01, "the gradient of"),
    ],
    ids=["forward", "no gradient", "a scaled gradient"],
)
def test_a_wrong_backward_is_seen(
    wrong: Callable[[torch.Tensor], torch.Tensor], place: str
) -> None:
    """Outputs alone would not show it."""
    file = ModelFile(FILE)
    model: Any = file.build()
    batches = file.batches(3)
    state = KeptState(model)
    file.step(model, batches[0])
    state.settle()
    truth = Truth(file, model, batches, state)
    gate = model.gates[1]
    gate.forward = lambda x: wrong(type(gate).forward(gate, x))
    found = truth.accuracy(truth.results())
    assert not found.is_right
    assert any(place in each for each in found.places), found.places


def fit_trained(folder: StageFolder, taken: Take) -> None:
    """Fit a winner that was judged with its backward."""
    text = winner_file(
        (folder.path / taken.tasks[0].file).read_text(),
        PLAIN.format(expression="torch.tanh(x * self.weight)"),
        gradients=(0,),
        shapes=[(128, 64)],
    )
    folder.write_text("given/backward.py", text)
    fit(folder, [], {"gates": folder.path / "given" / "backward.py"}, silent)


def test_a_winner_with_backward_trains_as_before(folder: StageFolder, taken: Take) -> None:
    """Its kernel runs where gradients are wanted, and gives the same ones."""
    fit_trained(folder, taken)
    package = load_package(folder)
    file = ModelFile(FILE)
    model, batches = file.build(), file.batches(3)
    state = KeptState(model)
    file.step(model, batches[0])
    state.settle()
    truth = Truth(file, model, batches, state)
    assert ["gates.0", "gates.1", "gates.2"] == package.fit(model)
    found = truth.accuracy(truth.results())
    counts = package.report(model)
    assert found.is_right, found.places
    assert found.gradient_cosine is not None
    assert found.gradient_cosine > 0.9999
    assert [3, 3, 3] == [each["kernel"] for each in counts.values()], counts


@pytest.mark.filterwarnings("ignore")
def test_quality_is_asked_of_the_model_as_it_was_before_the_steps(
    folder: StageFolder, taken: Take
) -> None:
    """Before, a right winner was dropped for what the last timed step had trained."""
    fit_trained(folder, taken)
    result = check(folder, 0.3, {}, silent)
    assert ["gates"] == result.kept, result.trials
    assert result.quality_before == pytest.approx(result.quality_after, rel=1e-4)
