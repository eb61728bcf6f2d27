"""Wheels of a package, by setuptools: pure Python, or with compiled kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from actors.ship import native_build
from actors.ship.errors import ShipError
from actors.ship.native_build import Library, LibraryRequest, Rung, Target
from actors.ship.package import TORCH, OpenedPackage

BUILD = "from setuptools import build_meta; build_meta.build_wheel({folder!r}, {settings!r})"
# The release of torch, the tag of Python, and the capabilities that are built for.
ASK_TARGET = (
    "import json, os, re, sys, torch\n"
    "given = os.environ.get('TORCH_CUDA_ARCH_LIST', '')\n"
    "found = [[int(a), int(b)] for a, b in re.findall(r'(\\d+)\\.(\\d)', given)]\n"
    "if not found and torch.cuda.is_available():\n"
    "    found = [list(torch.cuda.get_device_capability())]\n"
    "print(json.dumps({'torch': '.'.join(torch.__version__.split('.')[:2]),\n"
    "    'python': sys.implementation.cache_tag, 'capabilities': found}))\n"
)


def build(package: OpenedPackage, abi: str, cpu: str) -> tuple[Path, list[str]]:
    """Build a wheel into the package's folder `wheels`; return its path, and notes for the user."""
    with tempfile.TemporaryDirectory(prefix="stark-wheel-") as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(
            package.folder, tree, ignore=shutil.ignore_patterns("wheels", "__pycache__", "build")
        )
        notes: list[str] = []
        tags: list[str] = []
        if abi != "jit":
            highest: Rung = "stable" if abi == "stable" else "limited"
            tags, notes = _compiled(package, tree, highest, cpu)
        return _built(tree, package.folder / "wheels", tags), notes


def _compiled(
    package: OpenedPackage, tree: Path, highest: Rung, cpu: str
) -> tuple[list[str], list[str]]:
    """Compile what the kernels ask for into the tree; return the wheel's options, and notes."""
    requests = requests_of(package, tree)
    if not requests:
        return [], ["no C++ or CUDA: the wheel is pure Python"]
    target = msgspec.json.decode(_output(tree, "-c", ASK_TARGET))
    if any(request.is_cuda for request in requests.values()) and not target["capabilities"]:
        raise ShipError(
            "no card is here to build CUDA kernels for: name its compute capability,"
            f" such as {native_build.ARCHITECTURES}=9.0a"
        )
    libraries, notes = native_build.build_all(
        requests,
        highest,
        msgspec.convert({**target, "cpu": cpu}, Target),
        tree / package.module / "native",
        tree.parent / "native",
    )
    index = msgspec.json.format(msgspec.json.encode({"libraries": libraries}), indent=1)
    (tree / package.module / "native" / "index.json").write_bytes(index + b"\n")
    release = next((each.torch for each in libraries.values() if each.torch), "")
    if release:  # the wheel says so, and an installer finds it before a user does
        metadata = tree / "pyproject.toml"
        text = metadata.read_text(encoding="utf-8")
        metadata.write_text(text.replace(f'"{TORCH}"', f'"torch=={release}.*"'), encoding="utf-8")
    return _tags(libraries.values()), notes


def requests_of(package: OpenedPackage, tree: Path) -> dict[str, LibraryRequest]:
    """Return what the kernels ask for, by importing and calling them once."""
    file = tree.parent / "requests.json"
    done = _run(tree, "-m", f"{package.module}.prebuild", "--requests", str(file))
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, LibraryRequest])
    except (OSError, msgspec.DecodeError) as error:
        said = done.stderr.strip().splitlines() or ["no output"]
        raise ShipError(f"the kernels can't be imported here: {said[-1]}") from error
    failed = [line for line in done.stdout.splitlines() if "can't be built here" in line]
    if failed and not found:
        raise ShipError(failed[0])
    return found


def _tags(libraries: Collection[Library]) -> list[str]:
    """Return setuptools' options for the tags of a wheel with these libraries."""
    platform_tag = f"linux_{next(library.machine for library in libraries)}"
    python = next((library.python for library in libraries if library.python), "")
    tag = python.replace("cpython-", "cp") if python else "py3"
    rungs = {library.rung for library in libraries}
    build = "2stable" if rungs == {"stable"} else "0python" if "python" in rungs else "1limited"
    return ["--plat-name", platform_tag, "--python-tag", tag, "--build-number", build]


def _built(tree: Path, folder: Path, tags: Sequence[str]) -> Path:
    """Run setuptools in a copy of the package; return the wheel, placed whole."""
    out = tree.parent / "wheels"
    out.mkdir(exist_ok=True)
    settings = {"--build-option": list(tags)}
    done = _run(tree, "-c", BUILD.format(folder=str(out), settings=settings))
    made = sorted(out.glob("*.whl"))
    if done.returncode or not made:
        said = done.stderr.strip().splitlines() or ["setuptools made no wheel"]
        raise ShipError(f"the wheel can't be built: {said[-1]}")
    folder.mkdir(exist_ok=True)
    target = folder / made[0].name
    scratch = folder / f".{target.name}.new"
    try:
        shutil.copyfile(made[0], scratch)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return target


def _run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=tree, env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _output(tree: Path, *words: str) -> str:
    done = _run(tree, *words)
    if done.returncode:
        raise ShipError((done.stderr.strip().splitlines() or ["Python failed"])[-1])
    return done.stdout
