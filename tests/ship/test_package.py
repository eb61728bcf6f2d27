"""Laws of a package: it is the original module in every use, and its kernels run where they may."""

from __future__ import annotations

import importlib
import io
import json
import os
import platform
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from package_samples import COMPILED_KERNELS, PLAIN_KERNELS, imported, package_of, winner_file

from actors.release.decomposition import drop_in_parts
from actors.ship.kernel_sources import packaged
from actors.ship.new_folder import new_folder, place
from actors.ship.package import package_files
from actors.ship.shipped_winner import of_file

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
RIGHT = PLAIN_KERNELS.format(scale=1)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A package whose kernels are right without gradients, and wrong with them."""
    folder = tmp_path_factory.mktemp("package")
    made = package_of(folder, RIGHT)
    return imported(folder / made.name, made.module)


def pair(part: Any) -> tuple[Any, Any, list[torch.Tensor]]:
    """Return an original module, a winner with its parameters, and inputs."""
    plain = part.Model(*part.get_init_inputs())
    winner = part.ModelNew(*part.get_init_inputs())
    winner.load_state_dict(plain.state_dict())
    return plain, winner, part.get_inputs()


def arguments(module: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the operator's arguments."""
    return [*inputs, *(tensor.detach() for tensor in module.state_dict().values())]


def test_the_parts_of_a_winners_file_are_those_that_it_was_made_of(tmp_path: Path) -> None:
    """Task and candidate come back character by character, the candidate with its quotes."""
    for candidate in (RIGHT, RIGHT + "\nTEXT = '''a\\n'''\n", RIGHT + '\n"""b"""\n' + "'''c'''\n"):
        text = winner_file(tmp_path, candidate).read_text()
        parts = drop_in_parts(text)
        assert candidate == parts.candidate
        assert text.startswith(parts.task)
        assert parts.judged.startswith("_JUDGED = {")
        assert "cpu" == parts.device


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from torch.utils.cpp_extension import load as l", "from ..extensions import load as l"),
        ("from torch.utils import cpp_extension", "from .. import extensions as cpp_extension"),
        (
            "from torch.utils import data, cpp_extension as e",
            "from torch.utils import data; from .. import extensions as e",
        ),
        ("import torch.utils.cpp_extension as e", "from .. import extensions as e"),
        ("import torch.utils.data", "import torch.utils.data"),
    ],
)  # fmt: skip
def test_a_candidates_builds_go_through_the_package(line: str, expected: str) -> None:
    """Each way to import torch's builder is replaced, and nothing else in the line."""
    assert f"{expected}\nx = 'ä'\n" == packaged(f"{line}\nx = 'ä'\n")


def test_a_builder_named_in_full_is_imported_after_the_future_imports() -> None:
    """`torch.utils.cpp_extension.load_inline(…)` becomes the package's, wherever it stands."""
    source = (
        '"""é"""\nfrom __future__ import annotations\nimport torch.utils.cpp_extension\n'
        "def f():\n    return torch.utils.cpp_extension.load_inline(1)\n"
    )
    changed = packaged(source)
    assert "return _extensions.load_inline(1)" in changed
    assert "annotations\nfrom .. import extensions as _extensions\nimport torch" in changed


def test_kernels_run_and_gradients_are_the_originals(package: Any) -> None:
    """Without gradients the kernels run; with them the original, whose gradients are right."""
    plain, winner, inputs = pair(package)
    with torch.no_grad():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
    assert 1 == winner.kernel_stats()["kernel"]
    for module in (plain, winner):
        module(*inputs).square().sum().backward()
    torch.testing.assert_close(winner.lin.weight.grad, plain.lin.weight.grad)


def test_the_operator_follows_its_arguments(package: Any) -> None:
    """Called with the parameters of two modules in turn it has the outputs of each."""
    for _ in range(2):
        plain, _, inputs = pair(package)
        before = package.stats()["kernel"]
        torch.testing.assert_close(package.forward(*arguments(plain, inputs)), plain(*inputs))
        assert before + 1 == package.stats()["kernel"]


def test_the_operator_is_right_for_other_shapes_and_dtypes(package: Any) -> None:
    """What the kernels were not made for runs the original, as a function of the same tensors."""
    plain, _, _ = pair(package)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        inputs = [torch.randn(7, 16, dtype=dtype) for _ in range(2)]
        plain = plain.to(dtype)
        before = package.stats()["plain"]
        torch.testing.assert_close(package.forward(*arguments(plain, inputs)), plain(*inputs))
        assert before + 1 == package.stats()["plain"]


def test_the_operator_has_the_originals_first_and_second_derivatives(package: Any) -> None:
    """torch.autograd.gradcheck and gradgradcheck of the operator, in float64."""
    plain, _, _ = pair(package)
    inputs = [torch.randn(2, 16, dtype=torch.float64) for _ in range(2)]
    tensors = [t.detach().clone().requires_grad_() for t in arguments(plain.double(), inputs)]
    assert torch.autograd.gradcheck(package.forward, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(package.forward, tensors, fast_mode=True)


def test_an_error_of_outputs_is_none_of_their_derivative(package: Any) -> None:
    """The battery draws the outputs' gradients. Before, they had a right kernel's rounding."""
    checks = importlib.import_module(f"{package.__name__.rpartition('.')[0]}.check_inputs")
    x = torch.randn(4, 16, requires_grad=True)
    (exact,), (off,) = (checks.differentiate([x.sin() + error], [x]) for error in (0.0, 0.1))
    assert torch.equal(exact, off)
    assert exact.count_nonzero() == exact.numel()


def test_opcheck_finds_nothing(package: Any) -> None:
    """The schema, the fake kernel, the autograd registration and AOT dispatch agree."""
    plain, _, inputs = pair(package)
    torch.library.opcheck(package.forward, tuple(arguments(plain, inputs)))


NORM_TASK = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features), requires_grad=False)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(x)) * self.scale


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]
"""


def test_buffers_and_frozen_parameters_have_no_derivative(tmp_path: Path) -> None:
    """Before: no module with a batch norm was shipped; a running mean can't require a gradient."""
    kernels = NORM_TASK.replace("class Model", "class ModelNew").replace("torch.relu(", "(")
    kernels = kernels.replace("(self.norm(x)) * self.scale", "self.norm(x).relu() * self.scale")
    made = package_files("norm", [of_file(winner_file(tmp_path, kernels, NORM_TASK))])
    with new_folder(tmp_path / "norm", made.files) as scratch:
        place(scratch, tmp_path / "norm")
    part = imported(tmp_path / "norm", "norm")
    root = part.__name__.rpartition(".")[0]
    subject = importlib.import_module(f"{root}.comparison").Subject(part, "cpu")
    checks = importlib.import_module(f"{root}.operator_checks").CHECKS
    for name in ("opcheck", "operator gradients"):
        checks[name](subject)
    assert part.stats()["kernel"], part.stats()


CONSTANT_TASK = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features))
        self.register_buffer("prior", torch.linspace(-1, 1, features), persistent=False)

    def forward(self, x):
        return torch.softmax((x + self.prior) * self.weight, dim=-1)


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]
"""


def test_a_buffer_outside_of_the_state_dict_is_a_constant_of_a_compiled_derivative(
    tmp_path: Path,
) -> None:
    """Before: nothing was shipped ("Please convert all Tensors to FakeTensors first")."""
    kernels = CONSTANT_TASK.replace("class Model", "class ModelNew")
    made = package_files("prior", [of_file(winner_file(tmp_path, kernels, CONSTANT_TASK))])
    with new_folder(tmp_path / "prior", made.files) as scratch:
        place(scratch, tmp_path / "prior")
    part = imported(tmp_path / "prior", "prior")
    root = part.__name__.rpartition(".")[0]
    subject = importlib.import_module(f"{root}.comparison").Subject(part, "cpu")
    checks = importlib.import_module(f"{root}.operator_checks").CHECKS
    for name in ("opcheck", "operator gradients"):
        checks[name](subject)
    assert part.stats()["kernel"], part.stats()


RECORD_TASK = """\
from dataclasses import dataclass
import torch
from torch import nn


@dataclass
class Pair:
    up: torch.Tensor
    gate: torch.Tensor


class Model(nn.Module):
    def forward(self, pair, x):
        return torch.sigmoid(pair.gate) * pair.up + x


def get_inputs():
    return [Pair(torch.randn(4, 16), torch.randn(4, 16)), torch.randn(4, 16)]


def get_init_inputs():
    return []
"""


def test_torch_fx_records_a_module_that_takes_a_dataclass(tmp_path: Path) -> None:
    """Before: "symbolically traced variables cannot be used as inputs to control flow"."""
    kernels = RECORD_TASK.replace("class Model", "class ModelNew")
    made = package_files("pair", [of_file(winner_file(tmp_path, kernels, RECORD_TASK))])
    with new_folder(tmp_path / "pair", made.files) as scratch:
        place(scratch, tmp_path / "pair")
    part = imported(tmp_path / "pair", "pair")
    plain, winner, inputs = pair(part)
    assert torch.equal(winner(*inputs), plain(*inputs))
    assert {"kernel": 1, "plain": 0, "reasons": {}} == winner.kernel_stats()
    assert torch.equal(torch.fx.symbolic_trace(winner)(*inputs), plain(*inputs))


@pytest.mark.parametrize(
    ("parameters", "result"),
    [
        ("pair, x, *, scale=1.0", "torch.sigmoid(pair.gate) * pair.up + x * scale"),
        ("pair, *others", "torch.cat(others) + torch.sigmoid(pair.gate) * pair.up"),
    ],
)
def test_torch_fx_records_the_originals_forward(
    tmp_path: Path, parameters: str, result: str
) -> None:
    """Before: a TraceError with *args, for torch.fx changed the code of the winner's forward."""
    task = RECORD_TASK.replace("pair, x)", f"{parameters})")
    task = task.replace("torch.sigmoid(pair.gate) * pair.up + x", result)
    kernels = task.replace("class Model", "class ModelNew")
    made = package_files("pair", [of_file(winner_file(tmp_path, kernels, task))])
    with new_folder(tmp_path / "pair", made.files) as scratch:
        place(scratch, tmp_path / "pair")
    part = imported(tmp_path / "pair", "pair")
    plain, winner, inputs = pair(part)
    with pytest.warns(RuntimeWarning, match="torch.fx records plain operations"):
        graph = torch.fx.symbolic_trace(winner)
    expected = torch.fx.symbolic_trace(plain)
    assert torch.equal(graph(*inputs), plain(*inputs))
    assert [*map(str, expected.graph.nodes)] == [*map(str, graph.graph.nodes)]
    assert torch.equal(part.ModelNew.forward(winner, *inputs), plain(*inputs))
    assert 1 == winner.kernel_stats()["kernel"]


def test_torch_fx_records_a_subclass_and_a_model_with_a_winner(package: Any) -> None:
    """A forward of the subclass is its own; a winner inside of a model is its original's."""

    class Twice(package.ModelNew):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x, y)

    plain, winner, inputs = pair(package)
    twice = Twice(*package.get_init_inputs())
    twice.load_state_dict(plain.state_dict())
    assert torch.equal(torch.fx.symbolic_trace(twice)(*inputs), 2 * plain(*inputs))

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.winner = winner

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.winner(x, y=y))  # type: ignore[no-any-return]

    graph = torch.fx.symbolic_trace(Whole())
    assert torch.equal(graph(*inputs), torch.relu(plain(*inputs)))


def test_an_exported_module_holds_the_operator_for_any_batch(package: Any) -> None:
    """torch.export with a dynamic batch: the saved program agrees at the judged size and others."""
    plain, winner, inputs = pair(package)
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "y": {0: batch}}
    program = torch.export.export(winner, tuple(inputs), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    before = package.stats()["kernel"]
    for size in (4, 9):
        inputs = [torch.randn(size, 16), torch.randn(size, 16)]
        torch.testing.assert_close(loaded(*inputs), plain(*inputs))
    # torch 2.11 loads parameters from anywhere in the file; the original runs, and says so.
    aligned = all(tensor.data_ptr() % 64 == 0 for tensor in loaded.state_dict().values())
    assert before + aligned == package.stats()["kernel"], package.stats()
    assert package.NAMESPACE in str(program.graph)


def test_a_changed_attribute_is_exported_as_the_original(package: Any) -> None:
    """A module that is not as it was constructed is exported as plain operations."""
    _, winner, inputs = pair(package)
    winner.slope = 2.0
    program = torch.export.export(winner, tuple(inputs))
    assert "stark_" not in str(program.graph)
    torch.testing.assert_close(program.module()(*inputs), winner(*inputs))


def test_a_compiled_module_has_one_graph_for_each_layout(package: Any) -> None:
    """fullgraph=True passes with the judged size and with others; dynamic sizes share a graph."""
    torch._dynamo.reset()
    plain, winner, inputs = pair(package)
    graphs = []

    def counting(graph: Any, _examples: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(winner, fullgraph=True, backend=counting)
    with torch.no_grad():
        for size in (4, 5, 6, 7, 8):
            inputs = [torch.randn(size, 16), torch.randn(size, 16)]
            torch.testing.assert_close(compiled(*inputs), plain(*inputs))
    assert 1 == winner.kernel_stats()["kernel"]
    assert len(graphs) <= 3


def test_two_versions_and_two_copies_live_side_by_side(tmp_path: Path, package: Any) -> None:
    """Another version has operators of its own; the same version twice shares them."""
    (tmp_path / "second").mkdir()
    second = package_of(tmp_path / "second", PLAIN_KERNELS.format(scale=3))
    folder = tmp_path / "second" / second.name
    others = [imported(folder, second.module) for _ in range(2)]
    plain, _, inputs = pair(package)
    given = arguments(plain, inputs)
    torch.testing.assert_close(package.forward(*given), plain(*inputs))
    for other in others:
        wrong = other.forward(*given)
        assert not torch.allclose(wrong, plain(*inputs))
        torch.testing.assert_close(wrong, others[0].forward(*given))


def test_each_judged_case_runs_the_kernels(tmp_path: Path) -> None:
    """Module and operator run the kernels in each dtype that was judged, and in no other."""
    made = package_of(tmp_path, RIGHT, dtypes=("", "bfloat16"))
    part = imported(tmp_path / made.name, made.module)
    for dtype, kernels in ((torch.float32, 1), (torch.bfloat16, 1), (torch.float64, 0)):
        plain, winner, inputs = pair(part)
        plain.to(dtype)
        winner.to(dtype)
        inputs = [each.to(dtype) for each in inputs]
        before = part.stats()["kernel"]
        close = {"rtol": 0.1, "atol": 0.05}  # the kernels round to bfloat16 elsewhere
        with torch.no_grad():
            torch.testing.assert_close(winner(*inputs), plain(*inputs), **close)
        got = part.forward(*arguments(plain, inputs))
        torch.testing.assert_close(got, plain(*inputs), **close)
        assert before + 2 * kernels == part.stats()["kernel"]


SEQUENTIAL = """\
import torch
from torch import nn


class Model(nn.Sequential):
    def __init__(self, features):
        super().__init__(nn.Linear(features, features), nn.BatchNorm1d(features))
        self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)
        self.eval()

    def forward(self, input):
        total = super().forward(input["self"]) * self.scale
        return {"total": total, "rows": (input["out"] + 1, total.sum(0))}


def get_inputs():
    return [{"self": torch.randn(4, 16), "out": torch.arange(3)}]


def get_init_inputs():
    return [16]
"""


def test_any_names_nesting_and_buffers_make_an_operator(tmp_path: Path) -> None:
    """Names that begin with a digit, dicts, integers, buffers outside of the state dict."""
    kernels = SEQUENTIAL.replace("class Model", "class ModelNew")
    made = package_files("fused-gate", [of_file(winner_file(tmp_path, kernels, SEQUENTIAL))])
    with new_folder(tmp_path / "p", made.files) as scratch:
        place(scratch, tmp_path / "p")
    part = imported(tmp_path / "p", made.module)
    plain, winner, inputs = pair(part)
    with torch.no_grad():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
        for size in (4, 6):
            inputs = [{"self": torch.randn(size, 16), "out": torch.arange(3)}]
            flat = part.forward(*arguments(plain, list(inputs[0].values())))
            expected = plain(*inputs)
            torch.testing.assert_close(flat, (expected["total"], *expected["rows"]))
        program = torch.export.export(winner, tuple(inputs))
        torch.testing.assert_close(program.module()(*inputs), plain(*inputs))
    assert part.NAMESPACE in str(program.graph)
    torch.library.opcheck(part.forward, tuple(arguments(plain, list(inputs[0].values()))))


def test_strict_mode_raises_in_place_of_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With STARK_STRICT=1 a call that the kernels can't take raises and names the reason."""
    monkeypatch.setenv("STARK_STRICT", "1")
    made = package_of(tmp_path, RIGHT + "# strict\n")
    strict = imported(tmp_path / made.name, made.module)
    _, winner, inputs = pair(strict)
    with torch.no_grad():
        winner(*inputs)
        with pytest.raises(RuntimeError, match=r"STARK_STRICT=1.*shape \[8, 16\]"):
            winner(*(torch.cat([each, each]) for each in inputs))


def test_a_second_build_of_the_same_winner_has_the_same_version(tmp_path: Path) -> None:
    """The version is a digest of the content: another kernel, another version and namespace."""
    for name in "abc":
        (tmp_path / name).mkdir()
    first = package_of(tmp_path / "a", RIGHT)
    again = package_of(tmp_path / "b", RIGHT)
    other = package_of(tmp_path / "c", RIGHT + "# other\n")
    assert (first.version, first.files) == (again.version, again.files)
    assert first.version != other.version
    assert set(first.namespaces.values()) & set(other.namespaces.values()) == set()


@pytest.mark.parametrize(("cuda", "compiler"), [("", "C++"), ("__global__ void f();", "(nvcc)")])
def test_without_a_compiler_the_reason_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, compiler: str
) -> None:
    """It names the compiler, and why the library in the wheel does not serve this machine."""
    made = package_of(tmp_path, RIGHT + "# without a compiler\n")
    part = imported(tmp_path / made.name, made.module)
    extensions = importlib.import_module(part.__name__.rpartition(".")[0] + ".extensions")
    asked = {"name": "f", "cpp_sources": "void f();", "cuda_sources": cuda}
    monkeypatch.setenv("STARK_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    if cuda:
        (tmp_path / "g++").touch(mode=0o755)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="no prebuilt library"):
        extensions.load_inline(**asked)
    (digest,) = extensions.requests
    native = tmp_path / made.name / made.module / "native"
    native.mkdir()
    record = {"machine": "another", "kind": "operators", "file": "f.so"}
    (native / "index.json").write_text(json.dumps({"libraries": {digest: record}}))
    with pytest.raises(RuntimeError, match=re.escape(f"{compiler}") + ".*built for another"):
        extensions.load_inline(**asked)


def test_without_a_compiler_the_battery_tells_that_the_original_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: five checks of a right package failed in an environment without a compiler."""
    monkeypatch.setenv("STARK_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    made = package_of(tmp_path, COMPILED_KERNELS)
    part = imported(tmp_path / made.name, made.module)
    root = part.__name__.rpartition(".")[0]
    battery = importlib.import_module(f"{root}.battery")
    rows = battery.run("gate", "cpu", ("values", "odd shapes", "operator", "threads"))
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    no_kernels = dict.fromkeys(("values", "operator"), "not made")
    assert {**no_kernels, "odd shapes": "passed", "threads": "passed"} == outcomes
    assert rows["values"]["note"].startswith("the original runs, and is right: its kernels can't")
    assert "no C++ compiler" in rows["values"]["note"]


def test_kernels_that_raise_fail_the_battery(tmp_path: Path) -> None:
    """The original runs then, too, but with a compiler that is a fault of the package."""
    made = package_of(tmp_path, RIGHT.replace("x, y, weight", "raise ValueError; x, y, weight"))
    part = imported(tmp_path / made.name, made.module)
    battery = importlib.import_module(f"{part.__name__.rpartition('.')[0]}.battery")
    row = battery.run("gate", "cpu", ("values",))["values"]
    assert "failed" == row["outcome"]
    assert "the kernels did not run: ['its kernels failed (ValueError" in row["note"]


def test_a_cache_that_cant_be_written_is_named_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: "[Errno 2] No such file or directory: '/proc/…'"; without a compiler that is said."""
    made = package_of(tmp_path, RIGHT + "# a cache that can't be written\n")
    part = imported(tmp_path / made.name, made.module)
    extensions = importlib.import_module(part.__name__.rpartition(".")[0] + ".extensions")
    asked = {"name": "f", "cpp_sources": "void f();"}
    monkeypatch.delenv("STARK_KERNEL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with pytest.raises(RuntimeError, match=r"/proc/none/stark-kernels/packages can't be written"):
        extensions.load_inline(**asked)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/proc/none")
    with pytest.raises(RuntimeError, match="set STARK_KERNEL_CACHE to a folder that can be"):
        extensions.load_inline(**asked)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler"):
        extensions.load_inline(**asked)


def test_kernels_are_compiled_for_the_card_with_its_own_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were judged (wgmma needs sm_90a); the environment is as before, or the user's."""
    made = package_of(tmp_path, RIGHT + "# for a card\n")
    part = imported(tmp_path / made.name, made.module)
    extensions = importlib.import_module(part.__name__.rpartition(".")[0] + ".extensions")
    key = extensions.ARCHITECTURES
    monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for capability, name in (((9, 0), "9.0a"), ((8, 6), "8.6")):
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda found=capability: found)
        with extensions._own_architecture({"cuda_sources": ["x"]}):
            assert name == os.environ[key]
        assert key not in os.environ
    monkeypatch.setenv(key, "8.0;9.0")
    with extensions._own_architecture({"cuda_sources": ["x"]}):
        assert "8.0;9.0" == os.environ[key]
    assert "8.0;9.0" == os.environ[key]


def test_a_prebuilt_library_that_cant_be_loaded_is_compiled_instead(tmp_path: Path) -> None:
    """A wheel for another CUDA release names the loader's error, and the compiler is tried."""
    made = package_of(tmp_path, RIGHT + "# not loadable\n")
    part = imported(tmp_path / made.name, made.module)
    extensions = importlib.import_module(part.__name__.rpartition(".")[0] + ".extensions")
    native = tmp_path / made.name / made.module / "native"
    native.mkdir()
    named = {"machine": platform.machine(), "kind": "path", "file": "absent.so"}
    record = {**named, "torch": "", "python": "", "cpu": [], "capabilities": []}
    (native / "index.json").write_text(json.dumps({"libraries": {"d": record}}))
    found, reason = extensions._prebuilt("d")
    assert found is None
    assert "it can't be loaded" in reason
    assert "absent.so" in reason


def test_importing_a_package_warns_of_nothing(tmp_path: Path) -> None:
    """An import is silent, and does not import the compiler."""
    made = package_of(tmp_path, RIGHT + "# silent\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imported(tmp_path / made.name, made.module)


def test_two_versions_under_one_name_keep_their_kernels_in_one_graph(tmp_path: Path) -> None:
    """Dynamo looks globals up by a module's name. Before, it called the first version twice."""
    torch._dynamo.reset()
    inputs = [torch.randn(4, 16), torch.randn(4, 16)]
    winners, expected = [], []
    for scale in (1, 3):
        folder = tmp_path / str(scale)
        folder.mkdir()
        made = package_of(folder, PLAIN_KERNELS.format(scale=scale), name="versioned")
        for name in [name for name in sys.modules if name.partition(".")[0] == made.module]:
            del sys.modules[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder / made.name))
            part = importlib.import_module(f"{made.module}.gate")
        plain, winner, _ = pair(part)
        winners.append(winner)
        expected.append((plain(*inputs) - inputs[1]) * scale + inputs[1])
        assert part.ModelNew is sys.modules[part.ModelNew.__module__].ModelNew

    def both(*given: torch.Tensor) -> list[torch.Tensor]:
        return [winner(*given) for winner in winners]

    compiled = torch.compile(both, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), expected)
    for winner in winners:
        assert {"kernel": 1, "plain": 0, "reasons": {}} == winner.kernel_stats()
