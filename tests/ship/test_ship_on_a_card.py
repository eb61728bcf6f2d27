"""Laws of packages on a card; `pytest -m gpu` runs them on a machine with a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cuda_samples import PLAIN_CUDA, TASK, TORCH_CPP, TORCH_CUDA, TRITON
from package_samples import winner_file

from actors.ship.native_build import LibraryRequest, Target, build_all

pytestmark = pytest.mark.gpu
TOP = Path(__file__).parents[2]


def ship(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "ship.py"), *words],
        cwd=folder, env={**os.environ, "STARK_KERNEL_CACHE": str(folder / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    sys.stderr.write(done.stdout + done.stderr)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_a_cuda_winner_is_shipped_and_its_wheel_needs_no_nvcc(tmp_path: Path) -> None:
    """The battery passes on the card, streams and graphs included, and again from the wheel."""
    winner_file(tmp_path, PLAIN_CUDA, TASK, device="cuda")
    said = ship(tmp_path, "gate.py", "--name", "card-gate", "--out", "p")
    assert "not checked: CUDA graph" not in said
    ship(tmp_path, "wheel", "p", "--abi", "stable")
    wheel = next((tmp_path / "p" / "wheels").glob("*2stable*.whl"))
    said = ship(tmp_path, "check", str(wheel))
    assert "no compiler        passed    the kernels run" in said


def test_a_triton_winner_is_shipped(tmp_path: Path) -> None:
    """Triton's kernels need neither a compiler nor a build."""
    winner_file(tmp_path, TRITON, TASK, device="cuda")
    said = ship(tmp_path, "gate.py", "--name", "triton-gate", "--out", "p")
    assert "not checked: CUDA graph" not in said


def test_torchs_cuda_api_compiles_against_the_stable_abi(tmp_path: Path) -> None:
    """A launcher with tensors, a guard and the current stream is an operator for any torch."""
    request = LibraryRequest(
        name="fused", cpp_sources=[TORCH_CPP], cuda_sources=[TORCH_CUDA], functions=["fused"]
    )
    capability = torch.cuda.get_device_capability()
    target = Target(torch="", python="", cpu="v3", capabilities=(capability,))
    made, notes = build_all({"cafe": request}, "stable", target, tmp_path / "native", tmp_path)
    sys.stderr.write(f"{notes}\n")
    assert "stable" == made["cafe"].rung
    torch.ops.load_library(str(tmp_path / "native" / made["cafe"].file))
    x, bias = torch.randn(64, 32, device="cuda"), torch.randn(32, device="cuda")
    found = torch.ops.stark_native_cafe.fused(x, bias)
    torch.testing.assert_close(found, torch.relu(x + bias) * 2)
