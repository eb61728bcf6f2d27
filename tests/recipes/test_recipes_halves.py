"""The rule book in half precision: kernels read and write halves, and compute in float."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from recipe_runner import Bench, candidate, half_inputs, plan_work, task
from test_recipes_cuda import one_file
from test_recipes_numbers import FAMILIES, TUNED

from actors.agents.recipes import answer
from actors.agents.recipes.codegen.elements import element_of, read_as_float32
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from protocol.values import Reference

HALVES = ("float16", "bfloat16")


# PyTorch has no average pool over three dimensions in halves on a CPU.
ON_A_CPU = [name for name in FAMILIES if name != "pools over three dimensions"]
SOME = ("behind a product: bias, gate, slices", "pools with padding, before and after")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "bfloat16") for name in ON_A_CPU), *((name, "float16") for name in SOME)],
)
def test_each_family_agrees_with_float64_in_halves(bench: Bench, name: str, dtype: str) -> None:
    """Errors are at most eager PyTorch's, which rounds after every operation."""
    source = FAMILIES[name]
    change = TUNED if dtype == "bfloat16" else {}
    made = candidate(source, change, inputs=half_inputs(source, dtype))
    assert bench.worst(source, made, dtype) < 3


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_every_family_compiles_in_halves(tmp_path: Path) -> None:
    """One compilation has the kernels of all families in both halves."""
    change = {"vector": 4, "unroll": 2, "threads": 32, "bias": "kernel"}
    sources = [
        candidate(source, change, "cuda", half_inputs(source, dtype))
        for source in FAMILIES.values()
        for dtype in HALVES
    ]
    (tmp_path / "all.cu").write_text(one_file(sources))
    done = subprocess.run(
        ["nvcc", "-arch=sm_80", "-std=c++17", "-cubin", "-o", str(tmp_path / "all.cubin"),
         str(tmp_path / "all.cu")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_agrees_on_the_card_in_halves(bench: Bench, name: str, dtype: str) -> None:
    """The errors are as small as on the CPU."""
    source = FAMILIES[name]
    change = {"vector": 4, "unroll": 2}
    text = candidate(source, change, "cuda", half_inputs(source, dtype))
    drawn, reference, made = bench.models(source, text, dtype)
    inputs = [value.to(getattr(bench.torch, dtype)).cuda() for value in drawn.get_inputs()]
    assert bench.error(reference.cuda(), made.cuda(), inputs) < 3


def test_tensors_of_two_dtypes_are_refused() -> None:
    """A module between float32 and a half is not read as one dtype."""
    assert element_of("bfloat16[4, 8], int64[4]") == "bfloat16"
    assert element_of("") == element_of("float32[4], bool[4]") == "float32"
    with pytest.raises(UnsupportedSourceError, match="bfloat16 and float32"):
        element_of("bfloat16[4], float32[4]")
    with pytest.raises(UnsupportedSourceError, match="outputs are float32"):
        read_as_float32("bfloat16[4], float32[4]", "bfloat16", "outputs")


def test_the_measured_dtype_decides() -> None:
    """The same file in another case of its dtype gets kernels for that dtype."""
    source = task("pass", "return torch.tanh(x) + 1.0", "torch.randn(64, 32)")
    for dtype in HALVES:
        measured = f"{dtype}[64, 32]"
        work = plan_work(
            source, reference=Reference(eager_us=100.0, inputs=measured, outputs=measured)
        )
        assert answer(work).startswith("## Advice")
        text = candidate(source, {}, inputs=measured)
        assert f"tensor.dtype is torch.{dtype}" in text
        assert not re.search(r"const float \*p\d", text)
