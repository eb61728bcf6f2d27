"""A package as a repository for Hugging Face's kernel-builder; nothing is uploaded.

    build.toml, flake.nix      what is built, for which backends, and with what
    torch-ext/MODULE/          the package
    torch-ext/torch_binding.cpp, kernels/*   sources, for kernels in C++ or CUDA

Imports in a package are relative and its operators have a namespace of their own, as the hub wants
it.  kernel-builder makes one library of all sources, whose operators `extensions.py` finds.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from actors.ship import native_build
from actors.ship.errors import ShipError
from actors.ship.native_build import LibraryRequest
from actors.ship.new_folder import check_free, new_folder, place
from actors.ship.package import OpenedPackage
from actors.ship.wheels import requests_of

LEFT_OUT = shutil.ignore_patterns("__pycache__", "native", "wheels")
NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")  # of a kernel
EDITION = 5  # of build.toml
FLAKE = """\
{
  inputs.kernel-builder.url = "github:huggingface/kernels";

  outputs =
    { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
"""
# Name among the kernels -> file; the second one stands for torch's header that needs Python.
HEADERS = {"operators.h": "operators.h", "torch_extension.h": "torch/extension.h"}
REGISTER = '#include "registration.h"\n\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'
# The name of the library is a macro, which the registration has to expand.
EXPANDED = """\
#include "operators.h"
#define STARK_FRAGMENT(NAME, MODULE) TORCH_LIBRARY_FRAGMENT(NAME, MODULE)
STARK_FRAGMENT(TORCH_EXTENSION_NAME, m) {{
{definitions}
}}
"""


def write(package: OpenedPackage, out: Path) -> list[str]:
    """Write the repository into `out`; return notes for the user; raise ShipError."""
    check_free(out)
    name = hub_name(package)
    with tempfile.TemporaryDirectory(prefix="stark-hub-") as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(package.folder, tree, ignore=LEFT_OUT)
        requests = requests_of(package, tree)
        refused = [text for text in map(_refusal, requests.values()) if text]
        if refused:
            raise ShipError(f"the hub wants operators: {'; '.join(refused)}")
        with new_folder(out, repository_files(name, package, requests)) as made:
            shutil.copytree(tree / package.module, made / "torch-ext" / package.module)
            if requests:
                index = made / "torch-ext" / package.module / "native" / "index.json"
                index.parent.mkdir()
                index.write_text(json.dumps({"libraries": _index(requests)}, indent=1) + "\n")
            place(made, out)
    notes = ["untried: kernel-builder itself was not run"]
    return [f"{len(requests)} sources of C++ or CUDA" if requests else "Python alone", *notes]


def hub_name(package: OpenedPackage) -> str:
    """Return the kernel's name, which is the module's with hyphens; raise ShipError."""
    name = package.module.replace("_", "-")
    if not NAME.fullmatch(name):
        raise ShipError(
            f"{package.folder}: the hub has no kernels called {name}: ship it with --name, two or"
            " more letters, digits and single hyphens, such as fused-gelu"
        )
    return name


def _refusal(request: LibraryRequest) -> str:
    """Return why a library can't be operators of the hub, or ""."""
    if native_build.BINDS_PYTHON.search(request.text):
        return f"{request.name} binds itself to Python (pybind11)"
    if not request.names:
        return f"{request.name} names no functions"
    return ""


def repository_files(
    name: str, package: OpenedPackage, requests: Mapping[str, LibraryRequest]
) -> dict[str, str]:
    """Return the repository's files besides the Python package: path -> text."""
    license_name = package.license or "other"
    backends = sorted({_backend(request) for request in requests.values()}) or ["cpu", "cuda"]
    lines = [
        "[general]", f'name = "{name}"', "version = 1", f"edition = {EDITION}",
        f'license = "{license_name}"', f"backends = {json.dumps(backends)}", "",
    ]  # fmt: skip
    python = 'pyext = ["py", "json"]'  # the package reads its provenance and its libraries
    files = {"flake.nix": FLAKE}
    if not requests:
        return {**files, "build.toml": "\n".join([*lines, "[torch-noarch]", python, ""])}
    files["torch-ext/torch_binding.cpp"] = REGISTER
    lines += ["[torch]", python, 'src = ["torch-ext/torch_binding.cpp"]']
    for header, path in HEADERS.items():
        text = (native_build.HEADERS / "limited" / path).read_text(encoding="utf-8")
        files[f"kernels/{header}"] = text
    for digest, request in requests.items():
        stem = f"{re.sub(r'[^A-Za-z0-9_]', '_', request.name)}_{digest[:8]}"
        sources = _sources(request, digest, stem)
        files |= sources
        flags, _ = native_build.portable(request.extra_cflags or [], "v3")
        names = [*sources, *(f"kernels/{header}" for header in HEADERS)]
        lines += [
            "", f"[kernel.{stem}]", f'backend = "{_backend(request)}"', 'depends = ["torch"]',
            f"src = {json.dumps(names)}", 'include = ["kernels"]',
            f"cxx-flags = {json.dumps(flags)}",
        ]  # fmt: skip
        if request.is_cuda:
            lines.append(f"cuda-flags = {json.dumps(request.extra_cuda_cflags or [])}")
    return {"build.toml": "\n".join([*lines, ""]), **files}


def _sources(request: LibraryRequest, digest: str, stem: str) -> dict[str, str]:
    definitions = "\n".join(
        f'  m.def("{hub_function(name, digest)}", &stark::Operator<&::{name}>::call);'
        for name in request.names
    )
    head = "#include <torch_extension.h>\n#include <torch/library.h>\n"
    cpp = "\n".join(request.cpp_sources).replace("torch/extension.h", "torch_extension.h")
    files = {
        f"kernels/{stem}.cpp": head + cpp + "\n" + EXPANDED.format(definitions=definitions),
    }
    if request.cuda_sources:
        cuda = "\n".join(request.cuda_sources).replace("torch/extension.h", "torch_extension.h")
        files[f"kernels/{stem}_kernels.cu"] = (
            "#include <torch/types.h>\n#include <cuda_runtime.h>\n" + cuda
        )
    return files


def hub_function(name: str, digest: str) -> str:
    """Return the name of an operator: all libraries of a repository are one."""
    return f"{name}_{digest[:8]}"


def _backend(request: LibraryRequest) -> str:
    return "cuda" if request.is_cuda else "cpu"


def _index(requests: Mapping[str, LibraryRequest]) -> dict[str, object]:
    """Return what `extensions.py` finds instead of prebuilt libraries."""
    return {
        digest: {
            "kind": "hub",
            "functions": {name: hub_function(name, digest) for name in request.names},
        }
        for digest, request in requests.items()
    }
