"""CUDA candidates compile if nvcc is installed, and agree with PyTorch if there is a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from recipe_runner import Bench, candidate, task
from test_recipes_numbers import FAMILIES

CHANGES: list[dict[str, object]] = [
    {},
    {"vector": 4, "unroll": 2, "passes": "buffer", "threads": 32, "bias": "kernel"},  # as in halves
    {"vector": 2, "unroll": 4, "block": 512, "maths": "quick", "memory": "reuse"},
]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize(
    "change", [CHANGES[0], pytest.param(CHANGES[1], marks=pytest.mark.long), CHANGES[2]]
)
def test_every_family_compiles(change: dict[str, object], tmp_path: Path) -> None:
    """One compilation for each set of knobs has the kernels of all families."""
    sources = [candidate(source, change, "cuda") for source in FAMILIES.values()]
    (tmp_path / "all.cu").write_text(one_file(sources))
    done = subprocess.run(
        ["nvcc", "-arch=sm_80", "-std=c++17", "-cubin", "-o", str(tmp_path / "all.cubin"),
         str(tmp_path / "all.cu")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr


def one_file(candidates: list[str]) -> str:
    """The kernels of all candidates in one file."""
    parts = []
    for number, made in enumerate(candidates):
        text = re.findall(r'^SOURCE = r"""\n(.*?)^"""$', made, re.DOTALL | re.MULTILINE)[0]
        text = re.sub(r"\bk(\d)", rf"f{number}k\1", text)
        if parts:  # all define the same names: each gets a namespace
            text = re.sub(r"#define (FN|NOT|TEAM|JOIN_\w+)", r"#undef \1\n#define \1", text)
        parts.append(f"namespace family{number} {{\n{text}\n}}")
    return "\n".join(parts).replace("#undef JOIN_sum(a", "#undef JOIN_sum")


@pytest.mark.gpu
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_agrees_on_the_card(
    bench: Bench, name: str, change: dict[str, object]
) -> None:
    """The errors are as small as on the CPU."""
    torch = bench.torch
    drawn, reference, made = bench.models(FAMILIES[name], candidate(FAMILIES[name], change, "cuda"))
    inputs = [value.cuda() for value in drawn.get_inputs()]
    torch.backends.cuda.matmul.allow_tf32 = False
    assert bench.error(reference.cuda(), made.cuda(), inputs) < 8


def test_a_pool_of_a_large_tensor_counts_in_64_bits() -> None:
    """Its results are few, but 2,048 × 2,048 numbers of 1,024 images are beyond 32 bits."""
    pool = "return F.avg_pool2d(x, 11)"
    large = task("pass", pool, "torch.rand(16, 64, 2048, 2048)")
    small = task("pass", pool, "torch.rand(16, 64, 204, 204)")
    assert "const long long u0" in candidate(large, {"fusion": "all"}, "cuda")
    assert "const int u0" in candidate(small, {"fusion": "all"}, "cuda")
