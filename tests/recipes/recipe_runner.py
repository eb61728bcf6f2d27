"""What the rule book's tests share: work to answer, and a bench that builds and runs candidates."""

from __future__ import annotations

import ast
import copy
import re
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.agents.recipes.codegen.compiler import compile_candidate
from actors.agents.recipes.schedule.knobs import Knobs, default_knobs, with_change
from protocol.messages import Lease, MakePlan, Repair, Write
from protocol.values import AttemptView, Outcome, Plan, Reference, Task, Verdict

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.py"))

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


def task(init: str, forward: str, inputs: str, takes: str = "x") -> str:
    """A task's file with these bodies of its constructor and forward."""
    return (
        f"{HEAD}\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        + "".join(f"        {line}\n" for line in init.splitlines())
        + f"\n    def forward(self, {takes}):\n"
        + "".join(f"        {line}\n" for line in forward.splitlines())
        + f"\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )


def observed(source: str, number: int = 1, **verdict: Any) -> AttemptView:
    """A node as an agent sees it: by default correct in 100 us."""
    outcome = verdict.pop("verdict", Outcome.CORRECT)
    score = verdict.pop("score_us", 100.0 if outcome is Outcome.CORRECT else None)
    return AttemptView(
        node=number, source=source, verdict=Verdict(verdict=outcome, **verdict), score_us=score
    )


def fields(source: str, node: AttemptView | None = None, **more: Any) -> dict[str, Any]:
    """The fields that the three kinds of work share."""
    root = observed(source, 0)
    backend = more.pop("backend", "cpp")
    return {
        "lease": Lease(work="t/1/plan", epoch=1),
        "task": Task(name="t", source=source, backend=backend),
        "attempt": 1,
        "node": node or root,
        "root": root,
        "reference": Reference(eager_us=100.0),
        **more,
    }


def plan_work(source: str, node: AttemptView | None = None, **more: Any) -> MakePlan:
    return MakePlan(**fields(source, node, **more))


def write_work(source: str, advice: str, node: AttemptView | None = None, **more: Any) -> Write:
    return Write(**fields(source, node, **more), plan=Plan(advice=advice, scaffold=""))


def repair_work(source: str, node: AttemptView, **more: Any) -> Repair:
    return Repair(**fields(source, node, **more), plan=Plan(advice="", scaffold=""))


def section(reply: str, name: str) -> str:
    """The text of a reply's section, "" where it has none."""
    match = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", reply, re.DOTALL | re.MULTILINE)
    return match[1].strip() if match else ""


def code(text: str) -> str:
    """The one fenced block of a section."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert 1 == len(blocks)
    ast.parse(blocks[0])
    return str(blocks[0])


def candidate(
    source: str, change: dict[str, object], backend: str = "cpp", inputs: str = ""
) -> str:
    """The candidate for the default knobs with a change; `inputs`: as the reference has them."""
    knobs = with_change(default_knobs(backend), change)
    assert isinstance(knobs, Knobs)
    return compile_candidate(source, inputs, backend, knobs).source


def half_inputs(source: str, dtype: str) -> str:
    """The description of a task's inputs after `.to(dtype)`, where it draws by torch.randn."""
    draw = r"torch\.randn\(([\d, ]+)\)(?:\.permute\(([\d, ]+)\))?"
    draws = re.findall(draw, source.partition("def get_inputs")[2])
    assert draws
    shapes = []
    for sizes, order in draws:
        numbers = sizes.split(", ")
        shapes.append([numbers[int(dim)] for dim in order.split(", ")] if order else numbers)
    return ", ".join(f"{dtype}[{', '.join(shape)}]" for shape in shapes)


class Bench:
    """Builds in a private folder, runs, and compares with float64."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # torch's own warnings about packages that are not installed
            import torch
        self.torch = torch

    def module(self, text: str) -> types.ModuleType:
        module = types.ModuleType("made")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, "made.py", "exec"), module.__dict__)  # noqa: S102 - our own text
        return module

    def models(self, source: str, text: str, dtype: str = "float32") -> tuple[Any, Any, Any]:
        """The task's module, its Model in a dtype, and the candidate's with the same parameters."""
        task = self.module(source)
        self.torch.manual_seed(0)
        reference = task.Model(*task.get_init_inputs())
        with self.torch.no_grad():
            for parameter in reference.parameters():
                parameter.add_(self.torch.randn_like(parameter) * 0.1)
        made = self.module(text).ModelNew(*task.get_init_inputs())
        kind = getattr(self.torch, dtype)
        reference, made = reference.to(kind), made.to(kind)
        made.load_state_dict(reference.state_dict())
        made.train(reference.training)
        return task, reference, made

    def worst(self, source: str, text: str, dtype: str = "float32") -> float:
        """The candidate's largest error in units of eager PyTorch's, on two draws of inputs.

        Fails if the candidate called `plain_forward`: then no kernel was tested.
        """
        task, reference, made = self.models(source, text, dtype)

        def refused(*args: object) -> None:
            raise AssertionError("the kernels were not used")

        made.plain_forward = refused
        worst = 0.0
        for seed in (1, 2):
            self.torch.manual_seed(seed)
            inputs = [value.to(getattr(self.torch, dtype)) for value in task.get_inputs()]
            worst = max(worst, self.error(reference, made, inputs))
        return worst

    def error(self, reference: Any, made: Any, inputs: list[Any]) -> float:
        before = [value.clone() for value in inputs]
        with self.torch.no_grad():
            exact = leaves(copy.deepcopy(reference).double()(*(v.double() for v in inputs)))
            eager, got = leaves(reference(*inputs)), leaves(made(*inputs))
        assert all(self.torch.equal(a, b) for a, b in zip(before, inputs, strict=True))
        assert [(e.shape, e.dtype) for e in eager] == [(g.shape, g.dtype) for g in got]
        worst = 0.0
        for a, b, g in zip(exact, eager, got, strict=True):
            if not b.dtype.is_floating_point:
                assert self.torch.equal(b, g)
                continue
            scale = a.abs() + a.abs().mean() + 1e-30
            floor = ((b - a).abs() / scale).max().item()
            worst = max(worst, ((g - a).abs() / scale).max().item() / max(floor, 1e-7))
        return worst


def leaves(value: Any) -> list[Any]:
    """The tensors of a nesting."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("built")))
        yield Bench()
