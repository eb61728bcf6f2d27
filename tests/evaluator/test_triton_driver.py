"""Triton's module that calls the driver: compiled once, written into each candidate's own cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# A package of Triton's shape, whose "compilation" is a file in the cache of the moment.
DRIVER = """\
import os, pathlib
class CudaUtils:
    def __init__(self):
        folder = pathlib.Path(os.environ["TRITON_CACHE_DIR"], "ABC")
        folder.mkdir(parents=True)
        (folder / "cuda_utils.so").write_bytes(b"compiled")
"""
PROGRAM = """\
import os, sys
from actors.evaluator.children import triton_driver
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]
process = triton_driver.start()
triton_driver.keep(process)
os.environ["TRITON_CACHE_DIR"] = sys.argv[2]
triton_driver.install()
triton_driver.install()
print("none" if process is None else "compiled")
"""


def run(packages: Path, *folders: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(packages)!r})\n{PROGRAM}"]
        + [str(folder) for folder in folders],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def with_driver(packages: Path, text: str) -> Path:
    folder = packages / "triton/backends/nvidia"
    folder.mkdir(parents=True)
    for package in (packages / "triton", packages / "triton/backends", folder):
        (package / "__init__.py").touch()
    (folder / "driver.py").write_text(text)
    return packages


def test_each_candidate_finds_it_in_its_own_cache(tmp_path: Path) -> None:
    """What one process compiled is a file of another cache; what is there already stays."""
    packages = with_driver(tmp_path / "packages", DRIVER)
    assert run(packages, tmp_path / "zygote", tmp_path / "candidate") == "compiled"
    written = tmp_path / "candidate/ABC/cuda_utils.so"
    assert written.read_bytes() == b"compiled"
    written.write_bytes(b"the candidate's own")
    assert run(packages, tmp_path / "other", tmp_path / "candidate") == "compiled"
    assert written.read_bytes() == b"the candidate's own"


def test_a_broken_triton_is_the_candidates_own_affair(tmp_path: Path) -> None:
    """Without that module, or where it can't be compiled, children start all the same."""
    without = with_driver(tmp_path / "without", "raise RuntimeError('of another version')")
    assert run(without, tmp_path / "zygote", tmp_path / "candidate") == "none"
    failing = with_driver(tmp_path / "failing", "class CudaUtils:\n    def __init__(self): 1 / 0\n")
    assert run(failing, tmp_path / "zygote", tmp_path / "candidate") == "compiled"
    assert not (tmp_path / "candidate").exists()
