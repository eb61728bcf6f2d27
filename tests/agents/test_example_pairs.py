"""The in-context examples: models imitate them, so that they must build and be right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import prompts

CHECK = """
import sys, torch
torch.set_num_threads(2)
import before
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
with ThreadPoolExecutor() as builds:  # most of it is a compiler that reads torch's headers
    candidates = list(builds.map(import_module, ("first", "after")))
torch.manual_seed(0)
device = sys.argv[1]
model = before.Model(*before.get_init_inputs()).to(device)
for candidate in candidates:
    new = candidate.ModelNew(*before.get_init_inputs()).to(device)
    new.load_state_dict(model.state_dict())
    for inputs in (before.get_inputs(), [torch.randn(3, 2048) * 5 + 1]):
        inputs = [one.to(device) for one in inputs]
        kept = [one.clone() for one in inputs]
        expected, actual = model(*inputs), new(*inputs)
        assert type(expected) is type(actual) and len(expected) == len(actual)
        for one, other in zip(expected, actual):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
        assert all(torch.equal(one, other) for one, other in zip(kept, inputs))
print("same")
"""


def build_and_compare(backend: str, device: str, folder: Path) -> None:
    for name in ("before", "first", "after"):
        text = prompts.read(f"examples/{backend}-{name}.py")
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", CHECK, device],
        cwd=folder,
        env={
            **os.environ,
            "TORCH_EXTENSIONS_DIR": str(folder / "build"),
            # ninja may be the one that was installed beside this interpreter.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.stdout.endswith("same\n"), done.stderr[-4000:]


@pytest.mark.timeout(400)
def test_the_cpp_pair_builds_and_agrees(tmp_path: Path) -> None:
    """Both candidates of the C++ example build and give the module's own outputs."""
    build_and_compare("cpp", "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_the_gpu_pairs_build_and_agree(backend: str, tmp_path: Path) -> None:
    """The same of the CUDA and the Triton example, on a device."""
    build_and_compare(backend, "cuda", tmp_path)
