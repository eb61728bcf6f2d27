"""Laws of a winner's file: in every use it behaves like the task's module."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from drop_in_samples import TASK, candidate, drop_in, imported, judged, pair

from actors.release.composition import drop_in_source
from protocol.release import Release

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """The drop-in file of a candidate that is right without gradients."""
    return drop_in(tmp_path, candidate())


def test_kernels_run_for_the_judged_inputs(file: Any) -> None:
    """Without gradients and on the judged shapes the candidate's forward runs."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert {"kernel": 1, "plain": 0, "reasons": {}} == winner.kernel_stats()


def test_a_constructor_may_move_call_and_copy_its_module(tmp_path: Path) -> None:
    """Before: "'ModelNew' object has no attribute '_kernel_guard'", and no winner was released."""
    own = "self.to(memory_format=torch.channels_last); self.size = self(*get_inputs()).shape"
    task = "import copy\n" + TASK.replace("self.eval()", f"self.eval(); {own}; copy.deepcopy(self)")
    plain, winner, inputs = pair(drop_in(tmp_path, candidate(), task))
    with torch.no_grad():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert {"kernel": 1, "plain": 0, "reasons": {}} == winner.kernel_stats()


def test_gradients_are_those_of_the_plain_module(file: Any) -> None:
    """In a network with a residual path all gradients equal those of the plain module."""
    plain, winner, (x, y) = pair(file)
    first = torch.nn.Linear(16, 16)
    grads = []
    for module in (plain, winner):
        first.zero_grad()
        hidden = first(x)
        (module(hidden, hidden) + y).square().mean().backward()
        grads.append([first.weight.grad.clone(), *[p.grad.clone() for p in module.parameters()]])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_cuda_sources_are_compiled_for_the_card_with_its_own_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were judged: wgmma needs sm_90a, torch alone builds sm_90; afterwards as before."""
    seen = "import os\nfrom torch.utils import cpp_extension\n"
    seen += "SEEN = os.environ.get('TORCH_CUDA_ARCH_LIST')"
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    for device, wanted in (("cuda", "9.0a"), ("cpu", None)):
        on_device = msgspec.structs.replace(judged(imported(TASK, tmp_path)), device=device)
        text = drop_in_source(TASK, candidate(before=seen), Release(judged=on_device))
        assert wanted == imported(text, tmp_path)._kernels.SEEN
        assert "TORCH_CUDA_ARCH_LIST" not in os.environ


def test_importing_a_winner_does_not_import_the_compiler(file: Any) -> None:
    """`torch._dynamo` takes as long to import as torch, and only torch.compile needs it."""
    program = "import sys, torch, runpy; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-P", "-c", program, file.__file__],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "torch._dynamo" not in done.stdout.split()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_winner_that_holds_the_plain_forward_says_so(file: Any, backend: str) -> None:
    """With other shapes the graph holds the plain forward, whole, and one warning tells it."""
    torch._dynamo.reset()
    winner = file.ModelNew(*file.get_init_inputs())
    others = [torch.cat([each, each]) for each in file.get_inputs()]
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.compile(winner, backend=backend, fullgraph=True)(*others)
    assert [one for one in caught if "while torch.compile traced it" in str(one.message)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_winner_runs_its_kernels_and_is_right(file: Any, backend: str) -> None:
    """`torch.compile(fullgraph=True)` sees one operator, which runs the kernels at each call."""
    plain, winner, inputs = pair(file)
    compiled = torch.compile(winner, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _number in range(3):
            torch.testing.assert_close(compiled(*inputs), plain(*inputs))
    assert winner.kernel_stats()["kernel"] == 3


def test_a_compiled_winner_trains(file: Any) -> None:
    """When gradients are wanted the compiler sees the plain forward."""
    plain, winner, inputs = pair(file)
    for module in (plain, torch.compile(winner, backend="aot_eager", fullgraph=True)):
        module(*inputs).square().mean().backward()
    for one, other in zip(plain.parameters(), winner.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_export_and_trace_hold_the_plain_operations(file: Any) -> None:
    """A graph that leaves this process holds no address and no operator of this process."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        exported = torch.export.export(winner, tuple(inputs))
        traced = torch.jit.trace(winner, tuple(inputs))
        assert "stark" not in str(exported.graph)
        assert "stark" not in str(traced.graph)
        torch.testing.assert_close(exported.module()(*inputs), plain(*inputs))
        torch.testing.assert_close(traced(*inputs), plain(*inputs))


def test_transformations_of_torch_func_run_the_plain_forward(file: Any) -> None:
    """A batched tensor has no memory that a kernel could read. Before, torch.vmap was refused."""
    plain, winner, inputs = pair(file)
    stacked = [torch.stack([value, -value]) for value in inputs]
    with torch.no_grad():
        winner(*inputs)
        torch.testing.assert_close(torch.vmap(winner)(*stacked), torch.vmap(plain)(*stacked))
    grads = [
        torch.func.grad(
            lambda own, module=module: torch.func.functional_call(module, own, tuple(inputs)).sum()
        )(dict(plain.named_parameters()))
        for module in (winner, plain)
    ]
    torch.testing.assert_close(*grads)
    assert 1 == winner.kernel_stats()["kernel"]


def misaligned(value: torch.Tensor) -> torch.Tensor:
    return torch.cat([value.new_zeros(1), value.reshape(-1)])[1:].view(value.shape)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda value: value[:2], "shape"),
        (lambda value: value.t().contiguous().t(), "strides"),
        (misaligned, "begin"),
        (lambda value: value.double(), "float64"),
    ],
)
def test_other_inputs_run_the_plain_forward_with_one_warning(
    file: Any, change: Any, reason: str
) -> None:
    """Another batch, strides, address or dtype: right or refused, counted, with one warning."""
    plain, winner, inputs = pair(file)
    other = [change(value) for value in inputs]
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _number in range(2):
            try:
                expected = plain(*other)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    winner(*other)
            else:
                torch.testing.assert_close(winner(*other), expected)
    stats = winner.kernel_stats()
    assert (0, 2) == (stats["kernel"], stats["plain"])
    assert [True] == [reason in str(each.message) for each in caught]


def test_other_constructor_arguments_run_the_plain_forward(file: Any) -> None:
    """A candidate may have a constructor argument as a constant, so all are compared."""
    inputs = file.get_inputs()
    for winner in (file.ModelNew(16, 0.25), file.ModelNew(features=16, slope=0.25)):
        plain = file.Model(16, 0.25)
        plain.load_state_dict(winner.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(winner(*inputs), plain(*inputs))
        assert winner.kernel_stats()["kernel"] == 0
    named = file.ModelNew(features=16, slope=0.5)
    with torch.no_grad():
        named(*inputs)
    assert named.kernel_stats()["kernel"] == 1


def test_half_precision_and_autocast_run_the_plain_forward(file: Any) -> None:
    """Kernels for one precision never get tensors of another."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(winner(*inputs), plain(*inputs))
        halves = [value.bfloat16() for value in inputs]
        assert torch.equal(winner.bfloat16()(*halves), plain.bfloat16()(*halves))
    assert winner.kernel_stats()["kernel"] == 0


def test_the_kernels_use_changed_parameters(file: Any) -> None:
    """After a load, an assignment, a replacement and a step in place the results are right."""
    plain, winner, inputs = pair(file)

    def require_agreement() -> None:
        with torch.no_grad():
            torch.testing.assert_close(winner(*inputs), plain(*inputs))

    require_agreement()
    state = {name: value * 2 for name, value in plain.state_dict().items()}
    for assign in (False, True):
        for module in (plain, winner):
            module.load_state_dict(copy.deepcopy(state), assign=assign)
        require_agreement()
    for module in (plain, winner):
        module.lin.weight = torch.nn.Parameter(torch.ones(16, 16))
    require_agreement()
    with torch.no_grad():
        for module in (plain, winner):
            module.lin.weight.mul_(3)
    require_agreement()
    assert winner.kernel_stats()["kernel"] == 5


def test_copies_and_pickles_are_independent_winners(file: Any) -> None:
    """A copy has its own parameters, and its kernels read these."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        winner(*inputs)
        for copied in (copy.deepcopy(winner), pickle.loads(pickle.dumps(winner))):  # noqa: S301
            copied.lin.weight.zero_()
            torch.testing.assert_close(
                copied(*inputs), torch.relu(copied.lin.bias) * 0.5 + inputs[1]
            )
            assert copied.kernel_stats()["kernel"] == 1
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert list(plain.state_dict()) == list(winner.state_dict())


def test_a_changed_module_runs_the_plain_forward(file: Any) -> None:
    """The kernels ignore a changed attribute or a hook, so the plain forward runs."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        winner(*inputs)
        for module in (plain, winner):
            module.slope = 2.0
        assert torch.equal(winner(*inputs), plain(*inputs))
        hook_calls: list[int] = []
        hooked = file.ModelNew(16)
        hooked(*inputs)
        hooked.lin.register_forward_hook(lambda *_: hook_calls.append(1))
        hooked(*inputs)
        assert [1] == hook_calls


def test_without_a_compiler_the_plain_forward_runs_with_a_warning(tmp_path: Path) -> None:
    """The import succeeds, and one warning names the error."""
    file = drop_in(tmp_path, "raise RuntimeError('Ninja is required to load C++ extensions')")
    winner, inputs = file.ModelNew(16), file.get_inputs()
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="can't be built here.*Ninja"):
        winner(*inputs)
    assert winner.kernel_stats()["plain"] == 1


def test_a_candidate_that_raises_is_replaced_by_the_plain_forward(tmp_path: Path) -> None:
    """A launch that fails costs speed, but the call succeeds."""
    file = drop_in(tmp_path, candidate(body="raise RuntimeError('CUDA error 700')"))
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        assert torch.equal(winner(*inputs), plain(*inputs))


def test_a_candidate_with_other_parameter_names_gets_the_modules_values(
    tmp_path: Path,
) -> None:
    """The judge accepts such a candidate, so its file must work with loaded weights, too."""
    source = candidate(construct="self.w, self.b = self.lin.weight, self.lin.bias; del self.lin")
    source = source.replace("self.lin.weight, self.lin.bias))", "self.w, self.b))")
    file = drop_in(tmp_path, source)
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
        for module in (plain, winner):
            module.lin.weight.mul_(2)
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert winner.kernel_stats()["kernel"] == 2


@pytest.mark.parametrize(
    "text", ["x = 1", "a = '" + "''b''" + "'\nc = " + '"""d"""', "p = 'q'\\", "r = 1\r\n"]
)
def test_the_candidates_text_is_not_changed(tmp_path: Path, text: str) -> None:
    """Quotes, backslashes and line ends of a candidate survive as a string of the file."""
    assert text == drop_in(tmp_path, text)._KERNELS


def test_nested_inputs_and_outputs(tmp_path: Path) -> None:
    """Lists, dictionaries and plain values are compared, and returned in their nesting."""
    task = (
        TASK.replace("def forward(self, x, y):", "def forward(self, xy, scale):")
        .replace(
            "return self.drop(torch.relu(self.lin(x)) * self.slope) + y",
            "return {'sum': (self.lin(xy['x']) + xy['y'][0]) * scale, 'rest': [xy['x'] + 1]}",
        )
        .replace(
            "[torch.randn(4, 16), torch.randn(4, 16)]",
            "[{'x': torch.randn(4, 16), 'y': [torch.randn(4, 16)]}, 2.0]",
        )
    )
    file = drop_in(tmp_path, task.replace("class Model(", "class ModelNew("), task)
    plain, winner, inputs = pair(file)
    compiled = torch.compile(winner, backend="eager", fullgraph=True)
    with torch.no_grad():
        for module in (winner, compiled):
            got, expected = module(*inputs), plain(*inputs)
            torch.testing.assert_close(got["sum"], expected["sum"])
            torch.testing.assert_close(got["rest"][0], expected["rest"][0])
        assert winner.kernel_stats()["kernel"] == 2
        torch.testing.assert_close(winner(inputs[0], 3.0)["sum"], plain(inputs[0], 3.0)["sum"])
    assert winner.kernel_stats()["plain"] == 1


NORM_TASK = TASK.replace("self.eval()", "self.norm = nn.InstanceNorm1d(16)").replace(
    "nn.Dropout(0.5)", "nn.Identity()"
)


def test_a_norm_without_statistics_has_no_buffers_that_a_call_could_change(tmp_path: Path) -> None:
    """Its buffers are None; in training mode its winner runs the kernels under torch.compile."""
    text = candidate(construct="self.norm = nn.InstanceNorm1d(16)")
    plain, winner, inputs = pair(drop_in(tmp_path, text, NORM_TASK))
    assert plain.training
    compiled = torch.compile(winner, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), plain(*inputs))
    assert 1 == winner.kernel_stats()["kernel"]


@pytest.mark.parametrize("value", [(1, 2), [1, (2, 3)], {"a": (1,)}])
def test_an_exported_module_keeps_its_kernels(tmp_path: Path, value: Any) -> None:
    """torch.export leaves equal copies of attributes in a module; other values still count."""
    task = TASK.replace("self.eval()", f"self.eval(); self.sizes = {value!r}")
    plain, winner, inputs = pair(drop_in(tmp_path, candidate(), task))
    with torch.no_grad():
        winner(*inputs)
        torch.export.export(winner, tuple(inputs))
        before = winner.kernel_stats()["kernel"]
        winner(*inputs)
        assert before + 1 == winner.kernel_stats()["kernel"], winner.kernel_stats()
        winner.sizes = type(value)()
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert (
        1 == winner.kernel_stats()["reasons"]["the attribute sizes was changed after construction"]
    )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_torch_jit_script_says_what_to_use(file: Any) -> None:
    """Before: "can't take variable number of arguments", with a line of the guard."""
    _, winner, _ = pair(file)
    for module in (winner, torch.nn.Sequential(winner)):
        with pytest.raises(RuntimeError, match=r"use the plain class Model, or torch\.export"):
            torch.jit.script(module)


def test_torch_fx_records_the_plain_operations(file: Any) -> None:
    """Before: "symbolically traced variables cannot be used as inputs to control flow"."""
    plain, winner, inputs = pair(file)
    with torch.no_grad():
        expected = plain(*inputs)
        torch.testing.assert_close(winner(*inputs), expected)
        graph = torch.fx.symbolic_trace(winner)
        assert graph.graph.find_nodes(op="placeholder", target="x")
        torch.testing.assert_close(graph(*inputs), expected)
    assert winner.kernel_stats()["kernel"] == 1
