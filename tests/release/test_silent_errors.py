"""Laws of uses in which a winner could be wrong and say nothing: it is right, or it raises."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from drop_in_samples import TASK, candidate, drop_in, judged, pair
from drop_in_samples import imported as import_source
from msgspec.structs import replace

from actors.evaluator.children.release_checks import gpu_release_checks
from actors.release.composition import drop_in_source
from protocol.release import Release

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# A task with tensors that no state dict has, and kernels with these values of their own.
CONSTANTS = TASK.replace(
    "self.slope = slope",
    "self.slope, self.sizes, self.gain = slope, [1.0], torch.full((16,), 3.0)\n"
    "        self.register_buffer('table', torch.full((16,), 2.0), persistent=False)",
).replace("self.slope) + y", "self.slope * self.table * self.gain * self.sizes[0]) + y")
OWN_CONSTANTS = candidate().replace("* self.slope + y", "* self.slope * 6.0 + y")
# Reads the memory of its weight, and makes its result where torch's defaults say.
POINTERS = candidate(
    before="import ctypes",
    construct="self.kept = None",
    body="self.kept = self.kept or weight.data_ptr(); w = torch.empty(16, 16); "
    "ctypes.memmove(w.data_ptr(), self.kept, 1024); weight = w",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return drop_in(tmp_path_factory.mktemp("constants"), OWN_CONSTANTS, CONSTANTS)


def set_slope(module: Any) -> None:
    module.slope = 2.0


def replace_table(module: Any) -> None:
    module.table = torch.full((16,), 7.0)


def replace_method(module: Any) -> None:
    plain = module.lin.forward
    module.lin.forward = lambda x: plain(x) * 3


def transpose_data(module: Any) -> None:
    module.lin.weight.data = module.lin.weight.data.t()


def replace_submodule(module: Any) -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    doubled = Doubled(16, 16)
    doubled.load_state_dict(module.lin.state_dict())
    module.lin = doubled.eval()


CHANGES: list[Callable[[Any], None]] = [
    set_slope,
    replace_table,
    replace_method,
    transpose_data,
    replace_submodule,
    lambda module: module.table.mul_(2),
    lambda module: module.gain.mul_(2),
    lambda module: module.sizes.__setitem__(0, 5.0),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["before the first call", "after it", "before a copy"])
def test_what_the_kernels_do_not_know_of_runs_the_plain_forward(
    file: Any, change: Callable[[Any], None], when: str
) -> None:
    """Attributes, constants, methods and parts that are not the constructor's, in any order."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        if when == "after it":
            torch.testing.assert_close(winner(*inputs), plain(*inputs))
            assert 1 == winner.kernel_stats()["kernel"]
        for module in (plain, winner):
            change(module)
        if when == "before a copy":
            winner = copy.deepcopy(winner)
        torch.testing.assert_close(winner(*inputs), plain(*inputs))


def test_a_pickle_of_a_changed_winner_is_right(file: Any) -> None:
    """An attribute that was changed before the pickle was made is in it."""
    plain, winner, inputs = pair(file)
    plain.slope = winner.slope = 2.0
    again = pickle.loads(pickle.dumps(winner))  # noqa: S301
    with torch.no_grad():
        torch.testing.assert_close(again(*inputs), plain(*inputs))


def test_a_class_with_methods_of_its_own_runs_them(tmp_path: Path) -> None:
    """A subclass that replaces a method of Model gets its method; another keeps the kernels."""
    task = TASK.replace("return self.drop(", "return self.end(").replace(
        "def get_inputs", "    def end(self, x):\n        return self.drop(x)\n\ndef get_inputs"
    )
    file = drop_in(tmp_path, candidate(), task)

    class Doubled(file.ModelNew):  # type: ignore[misc, name-defined]
        def end(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Named(file.ModelNew):  # type: ignore[misc, name-defined]
        name = "a winner"

    plain, _, inputs = pair(file)
    doubled, named = Doubled(16), Named(16)
    for module in (doubled, named):
        module.load_state_dict(plain.state_dict())
    with torch.no_grad():
        expected = plain(*inputs)
        torch.testing.assert_close(named(*inputs), expected)
        torch.testing.assert_close(doubled(*inputs), 2 * (expected - inputs[1]) + inputs[1])
    assert 1 == named.kernel_stats()["kernel"]


def test_a_weight_whose_memory_moved_is_read_where_it_is(tmp_path: Path) -> None:
    """Kernels that keep an address are set up anew after `weight.data = …`."""
    plain, winner, inputs = pair(drop_in(tmp_path, POINTERS))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(winner(*inputs), plain(*inputs))
            for module in (plain, winner):
                module.lin.weight.data = module.lin.weight.data * 2
    assert 3 == winner.kernel_stats()["kernel"]


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("state", [default_dtype, deterministic, lambda: torch.device("meta")])
def test_kernels_do_not_run_under_other_defaults_of_torch(
    tmp_path: Path, state: Callable[[], Any]
) -> None:
    """`torch.empty(n)` in kernels has the default dtype and device: others get the plain way."""
    plain, winner, inputs = pair(drop_in(tmp_path, POINTERS))
    with torch.no_grad(), state():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert 0 == winner.kernel_stats()["kernel"]


def test_views_with_other_signs_and_sparse_tensors_run_the_plain_forward(file: Any) -> None:
    """A negative view's memory has the other sign, a sparse tensor's has other elements."""
    plain, winner, (x, y) = pair(file)
    with torch.no_grad():
        for given in ((torch._neg_view(x), y), (x, y.to_sparse())):
            torch.testing.assert_close(winner(*given), plain(*given))
    assert 0 == winner.kernel_stats()["kernel"]


def test_a_replica_uses_its_own_parameters(file: Any) -> None:
    """torch.nn.DataParallel gives a replica tensors of its own, on a device of its own."""
    _, winner, inputs = pair(file)
    with torch.no_grad():
        winner(*inputs)
        replica, part = (m._replicate_for_data_parallel() for m in (winner, winner.lin))
        part._parameters = {name: tensor * 2 for name, tensor in winner.lin.named_parameters()}
        replica._modules = {**winner._modules, "lin": part}
        torch.testing.assert_close(replica(*inputs), file.Model.forward(replica, *inputs))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_graph_may_change_parameters_before_the_call(file: Any, backend: str) -> None:
    """The operator reads the parameters that the graph has at that point, not the module's."""
    plain, winner, inputs = pair(file)

    def scaled(module: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.no_grad():
            module.lin.weight.mul_(2)
            return module(x, y)

    def given(module: Any, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> Any:
        with torch.no_grad():
            return torch.func.functional_call(module, {"lin.weight": weight}, (x, y))

    torch._dynamo.reset()
    found = torch.compile(scaled, backend=backend)(winner, *inputs)
    torch.testing.assert_close(found, scaled(plain, *inputs))
    weight = torch.randn(16, 16)
    found = torch.compile(given, backend=backend)(winner, *inputs, weight)
    torch.testing.assert_close(found, given(plain, *inputs, weight))


# --- winners that were judged with a backward pass ---

TRAINED = """
import torch
from torch import nn

class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, weight, bias, slope):
        z = x.detach() @ weight.detach().t() + bias.detach()
        ctx.save_for_backward(x, weight, z)
        ctx.slope = slope
        {keep}
        return torch.relu(z) * slope + y.detach()

    @staticmethod
    def backward(ctx, g):
        x, weight, z = (t.detach() for t in ctx.saved_tensors)
        {take}
        gz = g.detach() * ctx.slope * (z > 0)
        return gz @ weight, g.detach(), {weight}, gz.sum(0), None

class ModelNew(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope

    def forward(self, x, y):
        return Fused.apply(x, y, self.lin.weight, self.lin.bias, self.slope)
"""


def trained(folder: Path, task: str = TASK, keep: str = "pass", take: str = "pass",
            weight: str = "gz.t() @ x") -> Any:  # fmt: skip
    """Return the drop-in file of a winner that was judged with its backward pass."""
    source = TRAINED.format(keep=keep, take=take, weight=weight)
    what = replace(judged(import_source(task, folder)), gradients=(0, 1))
    return import_source(drop_in_source(task, source, Release(judged=what)), folder)


def grads(module: Any, inputs: list[torch.Tensor], *, again: bool = False) -> list[torch.Tensor]:
    inputs = [each.clone().requires_grad_() for each in inputs]
    wanted = [*inputs, *(each for each in module.parameters() if each.requires_grad)]
    found = torch.autograd.grad(module(*inputs).square().sum(), wanted, create_graph=again)
    return list(found)


def test_first_derivatives_are_the_kernels_and_second_ones_raise(tmp_path: Path) -> None:
    """A backward of kernels has no derivative: create_graph=True raises and names the remedy."""
    plain, winner, inputs = pair(trained(tmp_path))
    torch.testing.assert_close(grads(winner, inputs), grads(plain, inputs))
    assert 1 == winner.kernel_stats()["kernel"]
    with pytest.raises(RuntimeError, match=r"no second derivatives .* use the plain class Model"):
        grads(winner, inputs, again=True)


def test_a_parameter_that_was_frozen_when_judged_may_be_trained(tmp_path: Path) -> None:
    """Kernels that return no gradient for it do not run once it requires one."""
    task = TASK.replace("self.slope = slope", "self.slope = slope\n        self.lin.weight."
                        "requires_grad_(False)")  # fmt: skip
    plain, winner, inputs = pair(trained(tmp_path, task, weight="None"))
    torch.testing.assert_close(grads(winner, inputs), grads(plain, inputs))
    assert 1 == winner.kernel_stats()["kernel"]
    for module in (plain, winner):
        module.requires_grad_(True)
    torch.testing.assert_close(grads(winner, inputs), grads(plain, inputs))


def test_a_backward_hook_of_a_submodule_is_called(tmp_path: Path) -> None:
    """Kernels have no submodules, so the plain forward runs where one is watched."""
    _, winner, inputs = pair(trained(tmp_path))
    grads(winner, inputs)
    seen: list[object] = []
    winner.lin.register_full_backward_hook(lambda *_: seen.append(1))
    grads(winner, inputs)
    assert [1] == seen


LATEST = {"keep": "Fused.z = z", "take": "z = Fused.z"}
STATIC = {
    "keep": "Fused.out = getattr(Fused, 'out', torch.zeros(16, 16))",
    "weight": "Fused.out.copy_(gz.t() @ x)",
}
BY_VERSION = candidate(
    construct="self.kept = None",
    body="self.kept, self.at = (weight.clone(), weight._version) "
    "if self.kept is None or self.at != weight._version else (self.kept, self.at); "
    "weight = self.kept",
)


@pytest.mark.parametrize("what", [LATEST, STATIC])
def test_gradients_of_two_calls_are_checked_together(tmp_path: Path, what: dict[str, str]) -> None:
    """Values of the latest forward, or one buffer for a gradient: the release check finds it."""
    checked = gpu_release_checks.run_check(trained(tmp_path), "cpu", "gradients")
    assert checked.passed, checked.reason
    checked = gpu_release_checks.run_check(trained(tmp_path, **what), "cpu", "gradients")
    assert not checked.passed
    assert "gradient" in checked.reason


def test_weights_that_are_kept_by_their_version_are_found(tmp_path: Path) -> None:
    """`weight.data.mul_(…)` changes no version: a release check does it."""
    checked = gpu_release_checks.run_check(drop_in(tmp_path, BY_VERSION), "cpu", "state dict")
    assert not checked.passed
    assert "on .data" in checked.reason
