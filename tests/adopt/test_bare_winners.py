"""Winners without a guard, given as `--winner`: in all modes of torch the original is the truth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_winners import bare_winner
from quick_stages import looked_at, silent, take_quickly
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.model_file import ModelFile

MODEL = """\
import torch


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64 * 64).reshape(64, 64))

    def forward(self, x):
        return torch.tanh(torch.nn.functional.linear(x, self.weight))


def build():
    return torch.nn.Sequential(Gate()).eval()


def batches():
    for _ in range(3):
        yield (torch.linspace(-3, 3, 8 * 64).reshape(8, 64),), {}
"""
# As a kernel of pointers: it does not see what a mode has torch's operations do.
KERNEL = """\
with torch.autocast("cpu", enabled=False):
            return torch.tanh(x.double() @ self.weight.double().t()).float()"""
INPUT = torch.linspace(-3, 3, 8 * 64).reshape(8, 64)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic() -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Function(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the package of a model whose one module has a winner without a guard."""
    path: Path = tmp_path_factory.mktemp("bare")
    (path / "gate.py").write_text(MODEL)
    made = looked_at(path / "gate.py", path / "out", 3)
    (task,) = take_quickly(made, "0").tasks
    name = next(iter(task.state))
    kernel = KERNEL.replace("self.weight", f"self.{name}")
    made.write_text("winner.py", bare_winner((made.path / task.file).read_text(), kernel, task))
    fit(made, [], {task.name: made.path / "winner.py"}, silent)
    loaded = load_package(made)
    loaded.model = ModelFile(path / "gate.py").build
    return loaded


def counted(package: Any, model: Any) -> tuple[int, list[str]]:
    found = package.report(model)["0"]
    return found["kernel"], list(found["reasons"])


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (lambda: torch.autocast("cpu", torch.bfloat16), "autocast is on"),
        (lambda: torch.autocast("cpu", torch.float16), "autocast is on"),
        (lambda: default_dtype(torch.float64), "the default dtype is torch.float64"),
        (deterministic, "deterministic algorithms are demanded"),
        (Function, "a function mode is active (Function)"),
        (lambda: FlopCounterMode(display=False), "a dispatch mode is active"),
        (lambda: torch.device("meta"), "the default device is meta"),
    ],
)
def test_in_a_mode_the_original_runs_and_is_counted(
    package: Any, mode: Callable[[], AbstractContextManager[Any]], said: str
) -> None:
    """Before: the kernel ran under autocast, and returned float32 where bfloat16 is right."""
    model, plain = package.model(), package.model()
    package.fit(model)
    with torch.no_grad():
        model(INPUT)
        with mode():
            found, expected = model(INPUT), plain(INPUT)
    assert torch.equal(found, expected)
    assert found.dtype is expected.dtype
    kernel, reasons = counted(package, model)
    assert kernel == 1
    assert [said] == [reason[: len(said)] for reason in reasons]


def test_a_tensor_that_a_kernel_would_misread_takes_the_original(package: Any) -> None:
    """A negated view has other signs than its memory; a kernel may load 64 bytes at once."""
    model, plain = package.model(), package.model()
    package.fit(model)
    shifted = torch.empty(INPUT.numel() + 1)[1:].view(INPUT.shape).copy_(INPUT)
    with torch.no_grad():
        for given in (torch._neg_view(INPUT), shifted):
            assert torch.equal(model(given), plain(given))
    kernel, reasons = counted(package, model)
    assert (kernel, len(reasons)) == (0, 2)


@pytest.mark.filterwarnings("ignore")
def test_a_graph_that_was_compiled_without_autocast_is_not_used_under_it(package: Any) -> None:
    """torch.compile traces again where autocast is on: the original's operations are in it."""
    model, plain = package.model(), package.model()
    package.fit(model)
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        first = compiled(INPUT)
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = compiled(INPUT), plain(INPUT)
        again = compiled(INPUT)
    torch._dynamo.reset()
    assert (torch.float32, torch.bfloat16) == (first.dtype, found.dtype)
    assert torch.equal(found, expected)
    assert torch.equal(first, again)


def test_a_compiled_graph_with_the_winner_is_told(package: Any) -> None:
    """Its calls are not counted there; before, a report said that the kernel did not run."""
    model = package.model()
    package.fit(model)
    changed = package.model()
    package.fit(changed)
    changed[0].train()
    torch._dynamo.reset()
    with torch.no_grad():
        model(INPUT)
        assert not package.report(model)["0"]["in_graphs"]
        for each in (model, changed):
            torch.compile(each, backend="eager")(INPUT)
    torch._dynamo.reset()
    assert package.report(model)["0"]["in_graphs"]
    assert not package.report(changed)["0"]["in_graphs"]


def test_to_ask_whether_a_kernel_fits_changes_no_report(package: Any) -> None:
    """Only a compiler that puts the winner into a graph makes `in_graphs` true."""
    model = package.model()
    package.fit(model)
    with torch.no_grad():
        assert not vars(model[0])["forward"].traced_misfit()
    assert not package.report(model)["0"]["in_graphs"]
