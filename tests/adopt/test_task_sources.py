"""Tasks as ordinary PyTorch: what their text has in place of ATen operations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from actors.adopt.model.call_layouts import tensors_of
from actors.adopt.model.model_state import weights_hash
from actors.adopt.tasks.module_graph import module_graph
from actors.adopt.tasks.task_proof import bound_task, load_task
from actors.adopt.tasks.task_text import TaskText, task_text
from actors.agents.recipes.codegen.compiler import compile_candidate
from actors.agents.recipes.schedule.knobs import default_knobs


class LengthNorm(torch.nn.Module):
    """The norm of x-transformers, of U-Nets and of many others."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.linspace(0.5, 1.5, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=-1) * 5.0 * self.gain


class Converted(torch.nn.Module):
    """A module that is given a dtype, as diffusers' norms are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(32, 32)
        self.gain = torch.nn.Parameter(torch.linspace(0.5, 1.5, 32))

    def forward(self, x: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
        return (self.inner(x) * self.gain).to(dtype)


class Expanded(torch.nn.Module):
    """One expansion that an operator makes anyway, and one that gives the result its shape."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = x.mean(-1, keepdim=True)
        return x - mean.expand(-1, 32), mean.expand(-1, 32) * 2.0


def text_of(module: torch.nn.Module, *args: Any, **kwargs: Any) -> TaskText:
    graph = module_graph(module, args, kwargs)
    return task_text(graph, module, list(tensors_of((args, kwargs))), "a test")


def results(text: TaskText, module: torch.nn.Module, *given: torch.Tensor) -> list[torch.Tensor]:
    task = bound_task(load_task(text.source, "test"), module, text.state)
    with torch.no_grad():
        return list(tensors_of(task(*given)))


def test_the_rule_book_fuses_a_norm_by_its_length() -> None:
    """One kernel from the row to the result; nothing of it is left to PyTorch."""
    module, x = LengthNorm().eval(), torch.randn(8, 32)
    text = text_of(module, x)
    assert "torch.ops" not in text.source
    assert torch.equal(module(x), results(text, module, x)[0])
    made = compile_candidate(text.source, "float32[8, 32]", "cpp", default_knobs("cpp"))
    assert "1 kernel in place of PyTorch's operations." in made.source


def test_a_dtype_among_the_arguments_is_a_constant_of_the_task() -> None:
    """torch.export takes no dtype; parameters keep their paths in the module."""
    module, x = Converted().eval(), torch.randn(8, 32)
    text = text_of(module, x, dtype=torch.float64)
    assert {"gain", "inner.weight", "inner.bias"} == set(text.state.values())
    found = results(text, module, x)[0]
    assert found.dtype == torch.float64
    assert torch.equal(module(x, dtype=torch.float64), found)


def test_an_expansion_goes_only_where_an_operator_makes_it() -> None:
    """The shapes of all results stay."""
    module, x = Expanded().eval(), torch.randn(8, 32)
    text = text_of(module, x)
    assert text.source.count(".expand(") == 1
    with torch.no_grad():
        wanted = module(x)
    assert all(map(torch.equal, wanted, results(text, module, x)))


def test_the_hash_of_weights_is_that_of_their_values() -> None:
    """A parameter that is a part of a larger tensor, or lies in other strides, has the same."""
    values = torch.randn(64, 32)
    hashes = set()
    for weight in (values, torch.cat([values + 1, values])[64:], values.t().contiguous().t()):
        module = torch.nn.Module()
        module.weight = torch.nn.Parameter(weight)
        hashes.add(weights_hash(module))
    assert len(hashes) == 1
    module.weight = torch.nn.Parameter(values + 1)
    empty = torch.nn.Module()
    empty.weight = torch.nn.Parameter(torch.empty(0, 3))
    assert {weights_hash(module), weights_hash(empty)}.isdisjoint(hashes)
