"""Wheels of a package, by setuptools: pure Python, or with compiled kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from actors.ship.errors import ShipError
from actors.ship.package import OpenedPackage

BUILD = "from setuptools import build_meta; print(build_meta.build_wheel({folder!r}))"


def build(package: OpenedPackage, abi: str, cpu: str) -> tuple[Path, list[str]]:
    """Build a wheel into the package's folder `wheels`; return its path, and notes for the user."""
    with tempfile.TemporaryDirectory(prefix="stark-wheel-") as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(
            package.folder, tree, ignore=shutil.ignore_patterns("wheels", "__pycache__", "build")
        )
        notes: list[str] = []
        return _built(tree, package.folder / "wheels"), notes


def _built(tree: Path, folder: Path) -> Path:
    """Run setuptools in a copy of the package; return the wheel, placed whole."""
    out = tree.parent / "wheels"
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(folder=str(out))],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    made = sorted(out.glob("*.whl"))
    if done.returncode or not made:
        said = done.stderr.strip().splitlines() or ["setuptools made no wheel"]
        raise ShipError(f"the wheel can't be built: {said[-1]}")
    folder.mkdir(exist_ok=True)
    target = folder / made[0].name
    scratch = folder / f".{target.name}.new"
    shutil.copyfile(made[0], scratch)
    scratch.replace(target)
    return target
