"""Laws of compiled forms: the highest rung that works, for the machines that a wheel says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cuda_samples import TORCH_CPP, TORCH_CUDA
from package_samples import COMPILED_KERNELS, PLAIN_KERNELS, package_of

from actors.ship import hub_layout, installed_package, wheels
from actors.ship.errors import ShipError
from actors.ship.native_build import CPU_FLAGS, LibraryRequest, Target, build_all, portable
from actors.ship.package import OpenedPackage, opened

TOP = Path(__file__).parents[2]
PLAIN_C = 'extern "C" void twice(float* x, long n) { for (long i = 0; i < n; ++i) x[i] *= 2; }'
BOUND = """
#include <torch/extension.h>
int three() { return 3; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("three", &three); }
"""
# Everything that a stable operator may take and return.
MANY_TYPES = """
#include <torch/extension.h>
std::vector<torch::Tensor> both(const torch::Tensor& x, int times, float shift, bool negate) {
  auto a = torch::empty_like(x);
  auto b = torch::zeros({x.size(0), 2}, x.options());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = x.data_ptr<float>()[i] * times + shift;
    a.data_ptr<float>()[i] = negate ? -v : v;
  }
  return {a, b};
}
int64_t rows(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2, "two dimensions, got ", x.dim());
  return x.size(0);
}
void fill(torch::Tensor& x, double value) {
  std::fill_n(x.data_ptr<float>(), x.numel(), static_cast<float>(value));
}
"""
OTHER_VERSION = """
#include <torch/extension.h>
int64_t rows(torch::Tensor x) { return -1; }
"""
# Not in the stable part: the rung `limited` has it.
NEEDS_TORCH = """
#include <torch/extension.h>
torch::Tensor summed(torch::Tensor x) { return x.cumsum(-1).logsumexp(-1); }
"""


def request(text: str, *functions: str, **options: Any) -> LibraryRequest:
    return LibraryRequest(
        name="part", cpp_sources=[text], cuda_sources=[], functions=list(functions) or None,
        **options,
    )  # fmt: skip


def test_a_wheel_for_other_machines_does_not_use_this_processors_instructions() -> None:
    """-march=native becomes the level that was asked for, and the record says what that needs."""
    flags = ["-O3", "-march=native", "-fopenmp"]
    changed, needs = portable(flags, "v3")
    assert (["-O3", "-march=x86-64-v3", "-fopenmp"], CPU_FLAGS["v3"]) == (changed, needs)
    assert flags == portable(flags, "native")[0]
    assert (["-O2"], ()) == portable(["-O2"], "v4")


def test_a_repository_for_the_hub_names_every_source(tmp_path: Path) -> None:
    """build.toml can be read, its sources exist, and Python finds each function by its operator."""
    made = package_of(tmp_path, PLAIN_KERNELS.format(scale=1))
    package = opened(tmp_path / made.name)
    asked = request(MANY_TYPES, "both", "rows", extra_cflags=["-O3", "-march=native"])
    files = hub_layout.repository_files("fused-gate", package, {"0123456789abcdef": asked})
    built = tomllib.loads(files["build.toml"])
    assert ("fused-gate", ["cpu"]) == (built["general"]["name"], built["general"]["backends"])
    (kernel,) = built["kernel"].values()
    assert [] == [name for name in kernel["src"] + built["torch"]["src"] if name not in files]
    assert ["-O3", "-march=x86-64-v3"] == kernel["cxx-flags"]
    assert 'm.def("both_01234567"' in files["kernels/part_01234567.cpp"]
    assert "torch/extension.h" not in files["kernels/part_01234567.cpp"]  # it needs Python
    alone = tomllib.loads(hub_layout.repository_files("a", package, {})["build.toml"])
    assert {"pyext": ["py", "json"]} == alone["torch-noarch"]  # the package reads JSON files
    assert 5 == alone["general"]["edition"]


@pytest.mark.parametrize("module", ["a", "a__b_", "_a"])
def test_a_name_that_the_hub_refuses_is_refused(tmp_path: Path, module: str) -> None:
    """kernel-builder takes two or more lower-case letters, digits and hyphens."""
    package = OpenedPackage(
        folder=tmp_path, module=module, name=module, version="1", license="", parts=()
    )
    with pytest.raises(ShipError, match="the hub has no kernels called"):
        hub_layout.write(package, tmp_path / "hub")


def test_a_repository_of_python_alone_is_the_package(tmp_path: Path) -> None:
    """The Python package lies below torch-ext; an existing folder is not touched."""
    made = package_of(tmp_path, PLAIN_KERNELS.format(scale=1))
    package = opened(tmp_path / made.name)
    hub_layout.write(package, tmp_path / "hub")
    assert (tmp_path / "hub" / "torch-ext" / "fused_gate" / "gate" / "kernels.py").is_file()
    with pytest.raises(ShipError, match="exists and is not empty"):
        hub_layout.write(package, tmp_path / "hub")


@pytest.mark.long
@pytest.mark.timeout(1800)  # four builds with torch's headers
def test_each_source_is_built_on_the_highest_rung_that_works(tmp_path: Path) -> None:
    """C is stable as it is; tensors, numbers and lists are stable operators; all else is named."""
    import torch

    requests = {
        "c0de000000000001": request(PLAIN_C, no_implicit_headers=True, is_python_module=False),
        "c0de000000000002": request(MANY_TYPES, "both", "rows", "fill"),
        "c0de000000000003": request(NEEDS_TORCH, "summed"),
        "c0de000000000004": request(BOUND),
        "c0de000000000005": request(OTHER_VERSION, "rows"),
    }
    target = Target(torch="2", python=sys.implementation.cache_tag or "", cpu="v2")
    folder = tmp_path / "native"
    made, notes = build_all(requests, "stable", target, folder, tmp_path / "scratch")
    rungs = ["stable", "stable", "limited", "python", "stable"]
    kinds = ["path", "operators", "operators", "python", "operators"]
    assert (rungs, kinds) == ([m.rung for m in made.values()], [m.kind for m in made.values()])
    assert any("part: stable: main.cpp, line " in note and "cumsum" in note for note in notes)
    assert any("part: stable: the source binds itself to Python" in note for note in notes)
    for each in made.values():
        if each.kind == "operators":
            torch.ops.load_library(str(folder / each.file))
    ops = torch.ops.stark_native_c0de000000000002
    x = torch.randn(4, 8)
    first, second = ops.both(x, 3, 0.5, True)
    torch.testing.assert_close(first, -(x * 3 + 0.5))
    assert torch.equal(torch.zeros(4, 2), second)
    assert 4 == ops.rows(x)
    assert -1 == torch.ops.stark_native_c0de000000000005.rows(x)
    ops.fill(x, 2.0)
    assert torch.equal(torch.full((4, 8), 2.0), x)
    with pytest.raises(RuntimeError, match="two dimensions"):
        ops.rows(torch.zeros(1))
    summed = torch.ops.stark_native_c0de000000000003.summed(x)
    torch.testing.assert_close(summed, x.cumsum(-1).logsumexp(-1))
    said = subprocess.run(
        ["nm", "-D", "-C", "--undefined-only", str(folder / made["c0de000000000002"].file)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert [] == [line for line in said.splitlines() if " at::" in line or " c10::" in line]


@pytest.mark.long
@pytest.mark.timeout(1200)  # two builds with torch's headers
def test_a_compiled_wheel_needs_no_compiler(tmp_path: Path) -> None:
    """Installed by itself, with an empty PATH and cache, its kernels run; torch is all it needs."""
    made = package_of(tmp_path, COMPILED_KERNELS)
    package = opened(tmp_path / made.name)
    os.environ["STARK_KERNEL_CACHE"] = str(tmp_path / "cache")
    try:
        wheel, notes = wheels.build(package, "stable", "v2")
    finally:
        del os.environ["STARK_KERNEL_CACHE"]
    assert ["fused: stable"] == [note.partition(", ")[0] for note in notes]
    assert wheel.name.endswith("-2stable-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        index = json.loads(archive.read("fused_gate/native/index.json"))
    (record,) = index["libraries"].values()
    assert ("", "") == (record["torch"], record["python"])
    (tmp_path / "empty").mkdir()
    with installed_package.environment(wheel) as installed:
        done = subprocess.run(
            [installed.python, "-m", "fused_gate.prebuild"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path / "empty")},
        )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "the kernels ran" in done.stdout
    assert ": prebuilt" in done.stdout


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_a_library_for_cards_is_built_without_one(tmp_path: Path) -> None:
    """Neither a card nor a torch with CUDA is needed, and torch's CUDA library is found at use."""
    asked = LibraryRequest(
        name="fused", cpp_sources=[TORCH_CPP], cuda_sources=[TORCH_CUDA], functions=["fused"]
    )
    target = Target(torch="", python="", cpu="v3", capabilities=((9, 0),))
    made, notes = build_all({"cafe": asked}, "stable", target, tmp_path / "native", tmp_path)
    assert "stable" == made["cafe"].rung, notes
    text = (tmp_path / "native" / made["cafe"].file).read_bytes()
    assert b"libtorch_cuda.so\0" in text
    assert b"sm_90a" in text
