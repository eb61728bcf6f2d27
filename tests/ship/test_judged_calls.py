"""The battery's calls are those that the kernels were judged for, whatever `get_inputs()` draws."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from package_samples import PLAIN_KERNELS, TASK, imported

from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.release.composition import drop_in_source
from actors.ship.new_folder import new_folder, place
from actors.ship.package import package_files
from actors.ship.shipped_winner import of_file
from protocol.layouts import Nest
from protocol.release import Judged, Release

RIGHT = PLAIN_KERNELS.format(scale=1)
KEYWORDS = TASK.replace(
    "return [torch.randn(4, 16), torch.randn(4, 16)]",
    'return {"y": torch.randn(4, 16), "x": torch.randn(4, 16)}',
)
RECORD = """\
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Batch:
    x: torch.Tensor
    keep: torch.Tensor
    scale: float = 1.0


class Model(nn.Module):
    def forward(self, batch: Batch, pair=(1, None)):
        return torch.where(batch.keep, torch.tanh(batch.x) * batch.scale, batch.x)


def get_inputs():
    return {"batch": Batch(x=torch.randn(4, 16), keep=torch.rand(4, 16) > 0.5, scale=0.5)}


def get_init_inputs():
    return []
"""
NAMED = RECORD.replace(
    "from dataclasses import dataclass", "from typing import NamedTuple"
).replace("@dataclass\nclass Batch:", "class Batch(NamedTuple):")
RECORD_KERNELS = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, batch, pair=(1, None)):
        x = batch.x.detach()
        return torch.where(batch.keep, torch.tanh(x) * batch.scale, x)
"""


def judged(task: str, inputs: list[Any], init: list[Any], dtype: str = "") -> Judged:
    """Return what a judge notes of a case with these inputs."""
    names: dict[str, Any] = {}
    exec(compile(task, "task", "exec"), names)  # noqa: S102
    model = names["Model"](*init)
    if dtype:
        model.to(getattr(torch, dtype))
        inputs = [each.to(getattr(torch, dtype)) for each in inputs]
    state = model.state_dict()
    items = tuple(layout_of(tensor) for tensor in state.values())
    return Judged(
        device="cpu", init=layout_of(init), inputs=layout_of(inputs),
        outputs=layout_of(model(*inputs)),
        state=Nest(kind="dict", keys=tuple(state), items=items), dtype=dtype,
    )  # fmt: skip


def packaged(folder: Path, task: str, kernels: str, *cases: Judged) -> Any:
    """Return the part of a new package."""
    path = folder / "gate.py"
    release = Release(judged=cases[0], more_judged=cases[1:])
    path.write_text(drop_in_source(task, kernels, release), encoding="utf-8")
    made = package_files("fused-gate", [of_file(path)])
    with new_folder(folder / made.name, made.files) as scratch:
        place(scratch, folder / made.name)
    return imported(folder / made.name, made.module)


USES = ("values", "state", "second instance", "gradients", "threads", "operator", "export")


def failures(
    folder: Path, task: str, kernels: str, *cases: Judged, checks: tuple[str, ...] = USES
) -> dict[str, str]:
    """Return the checks of a package that fail, and whether prebuild calls the kernels."""
    part = packaged(folder, task, kernels, *cases)
    package = part.__name__.rpartition(".")[0]
    battery = importlib.import_module(f"{package}.battery")
    rows = battery.run("gate", None, checks)
    found = {name: row["note"] for name, row in rows.items() if row["outcome"] == "failed"}
    reason = importlib.import_module(f"{package}.prebuild").use(part)
    assert part.stats()["kernel"]
    return {**found, **({"prebuild": reason} if reason else {})}


@pytest.mark.parametrize(
    ("dtype", "size", "width"), [("bfloat16", 4, 16), ("", 9, 16), ("float64", 9, 24)]
)
def test_a_case_that_the_file_does_not_draw_is_tried(
    tmp_path: Path, dtype: str, size: int, width: int
) -> None:
    """`--dtype`, other shapes and other constants; before, no such winner could be shipped."""
    inputs = [torch.randn(size, width) for _ in range(2)]
    assert {} == failures(tmp_path, TASK, RIGHT, judged(TASK, inputs, [width], dtype))


def test_of_several_cases_the_drawn_one_is_tried(tmp_path: Path) -> None:
    """Values stay as the file draws them where they fit a judged case."""
    cases = [judged(TASK, [torch.randn(n, 16) for _ in range(2)], [16]) for n in (9, 4)]
    assert {} == failures(tmp_path, TASK, RIGHT, *cases)


def test_keywords_and_dataclasses_are_given_as_the_judge_gave_them(tmp_path: Path) -> None:
    """Before, their names were the arguments: both modules raised, and each check passed."""
    (tmp_path / "a").mkdir()
    inputs = [torch.randn(4, 16) for _ in range(2)]
    assert {} == failures(tmp_path / "a", KEYWORDS, RIGHT, judged(KEYWORDS, inputs, [16]))
    wrong = PLAIN_KERNELS.format(scale=1.5)
    (tmp_path / "b").mkdir()
    found = failures(tmp_path / "b", KEYWORDS, wrong, judged(KEYWORDS, inputs, [16]))
    assert "the error is" in found["values"]


@pytest.mark.parametrize("task", [RECORD, NAMED])
def test_a_dataclass_is_an_input_like_others(tmp_path: Path, task: str) -> None:
    """Its tensors are copied, changed and compared; there is no operator that takes it."""
    names: dict[str, Any] = {"__name__": "task"}
    exec(compile(task, "task", "exec", dont_inherit=True), names)  # noqa: S102
    given = list(names["get_inputs"]().values())
    case = judged_record(names, given)
    assert {} == failures(tmp_path, task, RECORD_KERNELS, case)


@pytest.mark.parametrize("task", [RECORD, NAMED])
def test_a_compiled_dataclass_is_no_failed_check(tmp_path: Path, task: str) -> None:
    """The original runs there by rule; before, the check failed, and each was tried again."""
    names: dict[str, Any] = {"__name__": "task"}
    exec(compile(task, "task", "exec", dont_inherit=True), names)  # noqa: S102
    case = judged_record(names, list(names["get_inputs"]().values()))
    assert {} == failures(tmp_path, task, RECORD_KERNELS, case, checks=("values", "compile"))


def test_kernels_with_a_buffer_are_compiled_in_evaluation_mode(tmp_path: Path) -> None:
    """Before, the check failed for each module with a buffer, which left compile without kernels.

    In training mode the original runs, for a call may change a buffer.
    """
    line = "        self.slope = slope\n"
    held = line + '        self.register_buffer("heat", torch.tensor([2.0]))\n'
    task, right = (text.replace(line, held) for text in (TASK, RIGHT))
    inputs = [torch.randn(4, 16) for _ in range(2)]
    for number, (kernels, failed) in enumerate(
        ((right, []), (right.replace("* 1", "* 2"), ["compile"]))
    ):
        (tmp_path / str(number)).mkdir()
        case = judged(task, inputs, [16])
        found = failures(tmp_path / str(number), task, kernels, case, checks=("compile",))
        assert failed == list(found)


def test_torchs_advice_is_no_part_of_a_checks_line(tmp_path: Path) -> None:
    """Such as "Set TORCHDYNAMO_VERBOSE=1", which is about torch's own errors."""
    case = judged(TASK, [torch.randn(4, 16) for _ in range(2)], [16])
    other = f"{RIGHT}# another content: equal ones share an operator and its counts\n"
    package = packaged(tmp_path, TASK, other, case).__name__.rpartition(".")[0]
    battery = importlib.import_module(f"{package}.battery")
    error = RuntimeError("it is wrong\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace")
    assert "it is wrong" == battery.in_one_line(error)


def judged_record(names: dict[str, Any], given: list[Any]) -> Judged:
    """Return the case of the task with a dataclass."""
    return Judged(
        device="cpu", init=layout_of([]), inputs=layout_of(given),
        outputs=layout_of(names["Model"]()(*given)),
        state=Nest(kind="dict", keys=(), items=()), dtype="",
    )  # fmt: skip
