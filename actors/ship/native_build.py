"""Compiled libraries of a package: each request of its kernels, on the highest rung that works.

    stable    operators over libtorch's stable ABI: any Python, any torch from 2.10
    limited   operators over libtorch: any Python, this release of torch
    python    an extension module of this Python and this release of torch

A source without torch's headers is on the rung `stable` as it is.  A rung that fails to compile is
reported with the compiler's first error, and the next one is tried.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from actors.ship.errors import ShipError
from protocol.frozen_struct import Value

HEADERS = Path(__file__).with_name("native_headers")
SCRIPT = Path(__file__).with_name("package_texts") / "compile_library.py"
COMPILE_S = 900.0
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
Rung = Literal["stable", "limited", "python"]
RUNGS: tuple[Rung, ...] = get_args(Rung)
# Headers that the stable rung replaces by its own.
TORCH_HEADERS = (
    *("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "torch/library.h"),
    *("ATen/ATen.h", "ATen/Parallel.h", "ATen/cuda/CUDAContext.h", "ATen/Dispatch.h"),
    *("c10/cuda/CUDAStream.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAException.h"),
)
INCLUDES_TORCH = re.compile(r'#\s*include\s*[<"](?:torch|ATen|c10|pybind11)/')
BINDS_PYTHON = re.compile(r"PYBIND11_MODULE|\bpy::|pybind11/")
ERROR = re.compile(r"^(?:.*?[/\\])?([^/\\\s]+?)[:(](\d+)[^\n]*?error[: ]+\s*(.+)$", re.MULTILINE)
LINK_ERROR = re.compile(r"^\S*\bld(?:\.\w+)?: (.+)$", re.MULTILINE)
CPU_FLAGS = {  # level of x86-64 -> what /proc/cpuinfo calls the features that compilers use
    "v2": ("sse4_2", "popcnt"),
    "v3": ("avx2", "fma", "bmi2", "f16c"),
    "v4": ("avx2", "fma", "bmi2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
}
NATIVE_FEATURE = re.compile(r"avx|fma|f16c|bmi|amx|sse4|popcnt|vaes|gfni")


class LibraryRequest(Value, frozen=True, kw_only=True):
    """What a candidate asked of torch's `load_inline`; `extensions.py` of a package writes it."""

    name: str
    cpp_sources: list[str]
    cuda_sources: list[str]
    functions: list[str] | dict[str, str] | str | None = None
    extra_cflags: list[str] | None = None
    extra_cuda_cflags: list[str] | None = None
    extra_ldflags: list[str] | None = None
    extra_include_paths: list[str] | None = None
    with_cuda: bool | None = None
    is_python_module: bool = True
    with_pytorch_error_handling: bool = True
    no_implicit_headers: bool = False

    @property
    def text(self) -> str:
        return "\n".join([*self.cpp_sources, *self.cuda_sources])

    @property
    def names(self) -> list[str]:
        """The functions that Python calls."""
        return [self.functions] if isinstance(self.functions, str) else list(self.functions or ())

    @property
    def is_cuda(self) -> bool:
        return bool(self.cuda_sources) or bool(self.with_cuda)

    @property
    def needs_no_torch(self) -> bool:
        return (
            self.no_implicit_headers
            and not self.is_python_module
            and not INCLUDES_TORCH.search(self.text)
        )


class Library(Value, frozen=True, kw_only=True):
    """A compiled library, as `native/index.json` of a package records it."""

    file: str
    kind: Literal["path", "operators", "python"]
    rung: Rung
    machine: str
    torch: str  # the release that it needs, such as 2.13; "": any from 2.10
    python: str  # the tag of the Python that it needs; "": any
    cpu: tuple[str, ...]  # features of the processor
    capabilities: tuple[tuple[int, int], ...]  # of the card; (): no kernels for one
    namespace: str = ""
    functions: tuple[str, ...] = ()


class Target(Value, frozen=True, kw_only=True):
    """What libraries are built for."""

    torch: str  # the release that is installed
    python: str
    cpu: str  # native, or a level of x86-64
    capabilities: tuple[tuple[int, int], ...] = ()


def build_all(
    requests: Mapping[str, LibraryRequest],
    highest: Rung,
    target: Target,
    folder: Path,
    scratch: Path,
) -> tuple[dict[str, Library], list[str]]:
    """Build each request into `folder`; return digest -> library, and notes for the user.

    Raises ShipError where a request can't be built on any rung.
    """
    made: dict[str, Library] = {}
    notes: list[str] = []
    for digest, request in requests.items():
        failures: list[str] = []
        for rung in RUNGS[RUNGS.index(highest) :]:
            place = scratch / f"{digest}-{rung}"
            try:
                library = _build(request, digest, rung, target, place)
            except _RungError as error:
                failures.append(f"{request.name}: {rung}: {error}")
                continue
            folder.mkdir(exist_ok=True)
            shutil.copyfile(place / "lib" / library.file, folder / library.file)
            made[digest] = library
            break
        if digest not in made:
            raise ShipError(f"no compiled form works: {'; '.join(failures)}")
        notes += failures
        notes.append(f"{request.name}: {made[digest].rung}, {made[digest].file}")
    return made, notes


class _RungError(Exception):
    """A request can't be built on one rung."""


def _build(
    request: LibraryRequest, digest: str, rung: Rung, target: Target, place: Path
) -> Library:
    """Build a request on one rung in the folder `place`; raise _RungError where it can't be."""
    namespace = f"stark_native_{digest}"
    name = re.sub(r"\W", "_", f"{request.name}_{digest}")
    cflags, cpu = portable(request.extra_cflags or [], target.cpu)
    _write_job(request, rung, place, name, namespace, cflags)
    _compile(place, target.capabilities if request.is_cuda else ())
    found = next((place / "lib").rglob("*.so"), None)
    if found is None:
        raise _RungError("the compiler made no library")
    file = f"{name}.so"
    found.rename(place / "lib" / file)
    operators = bool(request.names) and rung != "python"
    return Library(
        file=file,
        kind="operators" if operators else "python" if request.is_python_module else "path",
        rung="stable" if request.needs_no_torch else rung,
        machine=platform.machine(),
        torch="" if rung == "stable" or request.needs_no_torch else target.torch,
        python="" if rung != "python" else target.python,
        cpu=cpu,
        capabilities=target.capabilities if request.is_cuda else (),
        namespace=namespace if operators else "",
        functions=tuple(request.names) if operators else (),
    )


def _write_job(
    request: LibraryRequest,
    rung: Rung,
    place: Path,
    name: str,
    namespace: str,
    cflags: Sequence[str],
) -> None:
    """Write what the compiling process reads: sources, headers, the script and its spec.json."""
    sources = _sources(request, rung, namespace)
    (place / "lib").mkdir(parents=True)
    for file, text in sources.items():
        (place / file).write_text(text, encoding="utf-8")
    includes = [str(HEADERS / rung)] if rung != "python" else []
    if rung == "stable":
        _write_forwarding_headers(place / "include")
        includes.insert(0, str(place / "include"))
    card = ["-DUSE_CUDA"] if request.is_cuda else []  # declares what the stable ABI has for it
    spec = {
        "name": name,
        "sources": [file for file in sources if file.endswith((".cpp", ".cu"))],
        "include_dirs": includes + (request.extra_include_paths or []),
        "cxx": [*card, *cflags],
        "nvcc": [*card, *(request.extra_cuda_cflags or [])],
        # torch loads libraries into one scope: two versions have functions of the same names.
        "link": ["-Wl,-Bsymbolic", *(request.extra_ldflags or [])],
        "cuda": request.is_cuda,
        "agnostic": rung != "python",
        "out": "lib",
    }
    (place / "spec.json").write_bytes(msgspec.json.encode(spec))
    shutil.copyfile(SCRIPT, place / SCRIPT.name)


def _sources(request: LibraryRequest, rung: Rung, namespace: str) -> dict[str, str]:
    """Return the files of one rung: name -> text; raise _RungError where it can't serve."""
    cpp, cuda = "\n".join(request.cpp_sources), "\n".join(request.cuda_sources)
    if request.needs_no_torch:
        return {"main.cpp": cpp, **({"kernels.cu": cuda} if cuda else {})}
    if rung == "python":
        return _python_sources(request, cpp, cuda)
    if BINDS_PYTHON.search(request.text):
        raise _RungError("the source binds itself to Python (pybind11)")
    if request.is_python_module and not request.names:
        raise _RungError("it names no functions")
    if not request.names and rung == "stable":
        raise _RungError("it registers its own operators")
    head = '#include "light_torch.h"\n' if rung == "stable" else "#include <torch/extension.h>\n"
    files = {"main.cpp": head + cpp + _registration(request.names, rung, namespace)}
    if cuda:
        own = '#include "light_torch.h"\n' if rung == "stable" else "#include <torch/types.h>\n"
        files["kernels.cu"] = own + "#include <cuda.h>\n#include <cuda_runtime.h>\n" + cuda
    return files


def _registration(names: Sequence[str], rung: Rung, namespace: str) -> str:
    """Return the code that registers the functions as operators."""
    if not names:
        return ""
    operator = "stark::Operator<&::{name}>"
    if rung == "limited":
        lines = [f'  m.def("{n}", &{operator.format(name=n)}::call);' for n in names]
        body = "\n".join([f"TORCH_LIBRARY_FRAGMENT({namespace}, m) {{", *lines, "}"])
        return f'\n#include "operators.h"\n{body}\n'
    defs = [f'  m.def({operator.format(name=n)}::schema("{n}").c_str());' for n in names]
    impls = [f'  m.impl("{n}", TORCH_BOX(&{operator.format(name=n)}::call));' for n in names]
    lines = [
        f"STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {{", *defs, "}",
        f"STABLE_TORCH_LIBRARY_IMPL({namespace}, CompositeExplicitAutograd, m) {{", *impls, "}",
    ]  # fmt: skip
    return '\n#include "operators.h"\n' + "\n".join(lines) + "\n"


def _python_sources(request: LibraryRequest, cpp: str, cuda: str) -> dict[str, str]:
    """Return what torch's `load_inline` itself would compile."""
    head = "" if request.no_implicit_headers else "#include <torch/extension.h>\n"
    wrapped = "torch::wrap_pybind_function({0})" if request.with_pytorch_error_handling else "{0}"
    lines = [f'  m.def("{name}", {wrapped.format(name)}, "{name}");' for name in request.names]
    bound = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"] if lines else []
    files = {"main.cpp": head + cpp + "\n" + "\n".join(bound) + "\n"}
    if cuda:
        own = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
        files["kernels.cu"] = ("" if request.no_implicit_headers else own) + cuda
    return files


def _write_forwarding_headers(folder: Path) -> None:
    """Write headers of torch's names that hold the stable part alone."""
    for name in TORCH_HEADERS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#pragma once\n#include "light_torch.h"\n', encoding="utf-8")


def portable(flags: Sequence[str], cpu: str) -> tuple[list[str], tuple[str, ...]]:
    """Return flags for the processors that are meant, and the features that these must have."""
    if "-march=native" not in flags:
        return list(flags), ()
    if platform.machine() not in ("x86_64", "AMD64"):
        return [flag for flag in flags if flag != "-march=native"], ()
    if cpu == "native":
        return list(flags), tuple(sorted(filter(NATIVE_FEATURE.match, _own_cpu_flags())))
    level = f"-march=x86-64-{cpu}"
    return [level if flag == "-march=native" else flag for flag in flags], CPU_FLAGS[cpu]


def _own_cpu_flags() -> Iterator[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            yield from line.partition(":")[2].split()
            return


def _compile(place: Path, capabilities: Sequence[tuple[int, int]]) -> None:
    """Run setuptools with torch's extension classes; raise _RungError with the first error."""
    # From Hopper on, "a" permits instructions of one architecture alone, such as wgmma.
    names = [f"{major}.{minor}{'a' if major >= 9 else ''}" for major, minor in capabilities]
    environment = {ARCHITECTURES: ";".join(names), **os.environ} if names else None
    try:
        done = subprocess.run(
            [sys.executable, SCRIPT.name],
            cwd=place, env=environment, capture_output=True, text=True, check=False,
            timeout=COMPILE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _RungError(f"the compiler took more than {COMPILE_S:g} s") from error
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    found = ERROR.search(said)
    if found:
        raise _RungError(f"{found[1]}, line {found[2]}: {found[3].strip()[:200]}")
    linked = LINK_ERROR.search(said)
    if linked:
        raise _RungError(f"the linker: {linked[1].strip()[:200]}")
    raise _RungError((said.strip().splitlines() or ["the compiler failed"])[-1][:300])
