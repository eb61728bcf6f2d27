"""The build of a trusted source that shows whether the generated headers serve this torch.

It makes what a toolkit has beside its headers: the binding, the linker's flag and lists of names.
Trusted code only.
"""

from __future__ import annotations

import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from actors.evaluator.fastbuild.headers.declared_names import names_declared_in
from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import NATIVE, OperatorIndex, write_file
from actors.evaluator.fastbuild.headers.toolkit import (
    BINDING_FILES,
    EXPORTED_FILE,
    LIGHT_MACROS_FILE,
    MACROS_FILE,
    NAMES_FILE,
    headers_of_torch,
)
from actors.evaluator.fastbuild.request.build_request import BuildRequest
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand, with_folders_first
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.store.build_slots import slots_here
from actors.evaluator.fastbuild.store.build_store import ToolkitMissingError

KINDS_HEADER = "light/stark/kinds.h"
FASTER_LINKERS = ("-fuse-ld=gold",)
# -O2 takes twice as long (40 s instead of 20) and makes no call measurably faster.
QUIET = ("-O1", "-g0", "-w", "-fvisibility=hidden")
# Loads a library that is made meanwhile: torch's import takes as long as a part of that.
_LOADER = """import ctypes, os, sys, time, torch
is_made, library, limit_s = sys.argv[1:]
until = time.monotonic() + float(limit_s)
while not os.path.exists(is_made) and time.monotonic() < until:
    time.sleep(0.02)
ctypes.CDLL(library, os.RTLD_NOW)
"""
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
CUDA_PROBE = """#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void probe_kernel(float* x) { x[threadIdx.x] += 1.0f; }
void probe_launch(torch::Tensor x) { probe_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""
CXX_PROBE = """#include <torch/extension.h>
torch::Tensor probe(torch::Tensor x) {
  auto y = torch::empty_like(x);
  y.copy_(x + x * 2);
  return torch::zeros({x.size(0)}, x.options()) + y[0];
}
"""


def write_kinds(folder: Path, *, has_all: bool) -> None:
    """Write the header that says which kinds of types the binding of a toolkit has."""
    few = "" if has_all else "#define STARK_FEW_KINDS\n"
    write_file(folder / KINDS_HEADER, f"#pragma once\n{few}")


@dataclass(frozen=True, kw_only=True)
class ToolkitProbe:
    """The build of a trusted source, which shows whether the generated headers serve this torch."""

    folder: Path  # of the toolkit
    index: OperatorIndex
    source: CandidateSource
    compilation: CompileCommand
    link: tuple[str, ...]
    scratch: Path
    deadline: Deadline

    def write_names(self) -> None:
        """Write what torch's own headers declare and define, and what its library exports."""
        argv = [self.compilation.compiler, *self.compilation.flags, "-E"]
        full = run_compiler([*argv, "-P", self.source.path], self.folder, self.deadline)
        macros = run_compiler([*argv, "-dM", self.source.path], self.folder, self.deadline)
        if full.status or macros.status:
            raise ToolkitMissingError(
                f"torch's own headers do not preprocess: {full.output[-1000:]}"
            )
        defined = frozenset(_DEFINED.findall(macros.output))
        self._write_list(MACROS_FILE, defined)
        self._write_list(NAMES_FILE, names_declared_in(full.output) | defined)
        self._write_list(EXPORTED_FILE, _exported_methods(self.deadline))

    def build_binding(self) -> tuple[str, bool]:
        """Compile the binding, with fewer kinds of types if it can't be loaded with all of them.

        Returns the flag of a faster linker, "" if there is none, and whether it has all kinds.
        """
        for has_all_kinds in (True, False):
            if not has_all_kinds:
                write_kinds(self.folder, has_all=False)
            if self._binding_loads():
                return self._faster_linker(), has_all_kinds
        raise ToolkitMissingError("the binding can't be loaded with this torch")

    def check_light_headers(self) -> None:
        """Compile the source with the light headers; write the macros that these define."""
        argv = [self.compilation.compiler, *self._light_flags(self.source, self.scratch)]
        ran = run_compiler([*argv, "-E", "-dM", self.source.path], self.folder, self.deadline)
        check = run_compiler([*argv, "-fsyntax-only", self.source.path], self.folder, self.deadline)
        if ran.status or check.status:
            raise ToolkitMissingError(f"the light headers do not compile: {check.output[-2000:]}")
        self._write_list(LIGHT_MACROS_FILE, frozenset(_DEFINED.findall(ran.output)))

    def _write_list(self, file: str, names: frozenset[str]) -> None:
        (self.folder / file).write_text("\n".join(sorted(names)), encoding="utf-8")

    def _compile_binding(self) -> None:
        """Compile its files at the same time; as one file where other work waits for the core.

        Each file parses torch and pybind11, which is more than half of its time.
        """
        sources = {file: (NATIVE / file).with_suffix(".cpp") for file in BINDING_FILES}
        if slots_here() == 1:
            one, *others = BINDING_FILES
            whole = self.scratch / "whole_binding.cpp"
            write_file(
                whole, "\n".join(path.read_text(encoding="utf-8") for path in sources.values())
            )
            nothing = self.scratch / "nothing.cpp"
            write_file(nothing, "")
            sources = {one: whole, **dict.fromkeys(others, nothing)}
        with ThreadPoolExecutor(len(sources)) as pool:
            list(pool.map(self._compile_binding_file, sources, sources.values()))

    def _compile_binding_file(self, file: str, path: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            flags = self._light_flags(CandidateSource.read(str(path)), Path(scratch))
            end = [f"-I{NATIVE}", "-c", str(path), "-o", file]
            argv = [self.compilation.compiler, *flags, *QUIET, *end]
            ran = run_compiler(argv, self.folder, self.deadline)
        if ran.status:
            raise ToolkitMissingError(f"the binding does not compile: {ran.output[-2000:]}")

    def _light_flags(self, source: CandidateSource, scratch: Path) -> list[str]:
        write_file(scratch / "candidate/stark/candidate.h", candidate_header(source, self.index))
        folders = [scratch / "candidate", self.folder / "light"]
        return [*with_folders_first(self.compilation.flags, folders), "-DSTARK_PYBIND"]

    def _binding_link(self) -> list[str]:
        """Return torch's link command with the binding's objects alone."""
        at = next(at for at, argument in enumerate(self.link) if argument.endswith(".o"))
        rest = [argument for argument in self.link[at:] if not argument.endswith(".o")]
        return [*self.link[:at], *(str(self.folder / file) for file in BINDING_FILES), *rest]

    def _binding_loads(self) -> bool:
        """Compile it; whether a library made of it finds all its symbols in torch's libraries."""
        argv = self._binding_link()
        library = self.scratch / argv[argv.index("-o") + 1]
        is_made = self.scratch / "library-is-made"
        is_made.unlink(missing_ok=True)
        limit_s = str(self.deadline.left_s())
        loader = [sys.executable, "-c", _LOADER, str(is_made), str(library), limit_s]
        with ThreadPoolExecutor(1) as pool:
            loaded = pool.submit(run_compiler, loader, self.scratch, self.deadline)
            try:
                self._compile_binding()
                linked = run_compiler(argv, self.scratch, self.deadline)
            finally:
                is_made.touch()
            return not linked.status and not loaded.result().status

    def _faster_linker(self) -> str:
        for flag in FASTER_LINKERS:
            if not run_compiler([*self._binding_link(), flag], self.scratch, self.deadline).status:
                return flag
        return ""


def _exported_methods(deadline: Deadline) -> frozenset[str]:
    """Return the mangled names of the Tensor methods that torch's library exports."""
    library = headers_of_torch().parent / "lib/libtorch_cpu.so"
    ran = run_compiler(["nm", "-D", "--defined-only", str(library)], library.parent, deadline)
    found = frozenset(re.findall(r"\b_ZNK?R?2at6Tensor\w+", ran.output))
    if ran.status or not found:
        raise ToolkitMissingError(f"{library.name} exports no tensor methods: {ran.output[:300]}")
    return found


def probe_request(folder: Path, flag_set: FlagSet) -> BuildRequest:
    """Write the probe's sources into `folder`, and return the request to build them."""
    texts = {"main.cpp": CXX_PROBE, **({"cuda.cu": CUDA_PROBE} if flag_set.with_cuda else {})}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return BuildRequest.from_flag_set(
        "stark_probe", [str(folder / name) for name in texts], flag_set, folder
    )
