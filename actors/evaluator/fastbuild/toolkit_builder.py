"""The maker of toolkits, and of precompiled headers for flag sets.  Trusted code only.

It compiles only its own texts and torch's, with plain flags.  Everything that it makes gets its
final name when it is complete, so it may be killed, or run twice, at any time.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.evaluator.fastbuild.cxx_compile import BINDINGS, Binding, precompile_header
from actors.evaluator.fastbuild.headers.cuda_header_tree import generate_cuda_headers
from actors.evaluator.fastbuild.headers.declared_names import names_declared_in
from actors.evaluator.fastbuild.headers.graph_headers import SOURCE_FILE, generate_graph_headers
from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import (
    INDEX_FILE,
    NATIVE,
    OperatorIndex,
    UnexpectedTorchHeadersError,
    generate_headers,
    write_file,
)
from actors.evaluator.fastbuild.headers.toolkit import (
    BINDING_FILE,
    EXPORTED_FILE,
    GRAPHS_FOLDER,
    LIGHT_MACROS_FILE,
    LINKER_FILE,
    MACROS_FILE,
    NAMES_FILE,
    Toolkit,
    headers_of_torch,
    toolkit_key,
)
from actors.evaluator.fastbuild.nvcc.nvcc_compile import CUDA_PROBE, BuildContext
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import PreambleCache
from actors.evaluator.fastbuild.nvcc.probe_build import learn_from_probe
from actors.evaluator.fastbuild.request.added_headers import AUTOGRAD, PYBIND
from actors.evaluator.fastbuild.request.build_request import BuildRequest
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand, with_folders_first
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.store.build_record import Stopwatch
from actors.evaluator.fastbuild.store.build_slots import slots_here
from actors.evaluator.fastbuild.store.build_store import (
    UNFINISHED_PREFIX,
    ToolkitMissingError,
    remove_unfinished,
)

PREPARE_S = 600.0
LOCK_NAME, POLL_S = "lock", 0.1
KINDS_HEADER = "light/stark/kinds.h"
FASTER_LINKERS = ("-fuse-ld=gold",)
# -O2 takes twice as long (40 s instead of 20) and makes no call measurably faster.
QUIET = ("-O1", "-g0", "-w", "-fvisibility=hidden")
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
CXX_PROBE = """#include <torch/extension.h>
torch::Tensor probe(torch::Tensor x) {
  auto y = torch::empty_like(x);
  y.copy_(x + x * 2);
  return torch::zeros({x.size(0)}, x.options()) + y[0];
}
"""


def prepare_toolkit(
    store: Path, flag_sets: Iterable[FlagSet] = (), limit_s: float = PREPARE_S
) -> Toolkit:
    """Make what `store` lacks for the torch in use and for those of `flag_sets` that are plain.

    Raises `ToolkitMissingError` if no toolkit can be made for this torch or this compiler, and
    `PrecompiledHeaderError` if a header does not compile with the flags.
    """
    deadline = Deadline(limit_s)
    store = store.absolute()
    store.mkdir(parents=True, exist_ok=True)
    with _only_maker(store, deadline):
        toolkit = _toolkit_in(store, deadline)
        toolkit.precompiled.remove_unfinished()
        PreambleCache(toolkit).remove_unfinished()
        plain = [flag_set for flag_set in flag_sets if flag_set.is_plain()]
        if any(AUTOGRAD in (*each.cpp_headers, *each.cuda_headers) for each in plain):
            _compile_graphs(toolkit, deadline)
        with ThreadPoolExecutor(slots_here()) as pool:
            for done in [pool.submit(_precompile, toolkit, each, deadline) for each in plain]:
                done.result()
        return toolkit


@contextmanager
def _only_maker(store: Path, deadline: Deadline) -> Iterator[None]:
    """Be the only maker in `store`: two would need twice the time and memory for one toolkit.

    The system releases the lock of a killed maker.
    """
    with (store / LOCK_NAME).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(min(POLL_S, deadline.left_s()))
        yield


def _toolkit_in(store: Path, deadline: Deadline) -> Toolkit:
    """Return the toolkit in `store` for the torch in use; make it if there is none."""
    remove_unfinished(store)
    folder = store / toolkit_key()
    if not (folder / INDEX_FILE).exists():
        unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=store))
        try:
            _generate(unfinished, deadline)
            unfinished.chmod(0o755)
            try:
                unfinished.rename(folder)
            except OSError:
                if not folder.exists():  # else another maker was faster
                    raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Toolkit(folder)


def _generate(folder: Path, deadline: Deadline) -> None:
    """Write a toolkit into `folder`; the index comes last, since it makes the folder a toolkit."""
    try:
        index = generate_headers(headers_of_torch(), folder)
        generate_cuda_headers(headers_of_torch(), folder)
        generate_graph_headers(headers_of_torch(), folder / GRAPHS_FOLDER)
    except UnexpectedTorchHeadersError as error:
        raise ToolkitMissingError(str(error)) from None
    (folder / INDEX_FILE).unlink()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as pool:
        scratch = Path(name)
        request = _probe_request(scratch, FlagSet())
        commands = request.commands(deadline)
        probe = _ToolkitProbe(
            folder=folder,
            index=index,
            source=request.sources[0],
            compilation=commands.compilations[0],
            link=commands.link,
            scratch=scratch,
            deadline=deadline,
        )
        # One compiler needs the longest for the binding; torch's names are read at the same time.
        binding = pool.submit(probe.build_binding)
        probe.write_names()
        (folder / LINKER_FILE).write_text(binding.result(), encoding="ascii")
        probe.check_light_headers()
    index.write(folder)


@dataclass(frozen=True, kw_only=True)
class _ToolkitProbe:
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

    def build_binding(self) -> str:
        """Compile the binding, with fewer kinds of types if it can't be loaded with all of them.

        Returns the flag of a faster linker; "" if there is none.
        """
        for kinds in ("", "#define STARK_FEW_KINDS\n"):
            write_file(self.folder / KINDS_HEADER, f"#pragma once\n{kinds}")
            self._compile_binding()
            if self._binding_loads():
                return self._faster_linker()
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
        path = NATIVE / "binding.cpp"
        with tempfile.TemporaryDirectory() as scratch:
            flags = self._light_flags(CandidateSource.read(str(path)), Path(scratch))
            end = ["-c", str(path), "-o", BINDING_FILE]
            argv = [self.compilation.compiler, *flags, *QUIET, *end]
            ran = run_compiler(argv, self.folder, self.deadline)
        if ran.status:
            raise ToolkitMissingError(f"the binding does not compile: {ran.output[-2000:]}")

    def _light_flags(self, source: CandidateSource, scratch: Path) -> list[str]:
        write_file(scratch / "candidate/stark/candidate.h", candidate_header(source, self.index))
        folders = [scratch / "candidate", self.folder / "light"]
        return [*with_folders_first(self.compilation.flags, folders), "-DSTARK_PYBIND"]

    def _binding_link(self) -> list[str]:
        """Return torch's link command with the binding as its only object."""
        binding = str(self.folder / BINDING_FILE)
        return [binding if argument.endswith(".o") else argument for argument in self.link]

    def _binding_loads(self) -> bool:
        """Whether a library made of the binding finds all its symbols in torch's libraries."""
        argv = self._binding_link()
        if run_compiler(argv, self.scratch, self.deadline).status:
            return False
        library = self.scratch / argv[argv.index("-o") + 1]
        program = f"import os, ctypes, torch; ctypes.CDLL({str(library)!r}, os.RTLD_NOW)"
        return not run_compiler([sys.executable, "-c", program], self.scratch, self.deadline).status

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


def _probe_request(folder: Path, flag_set: FlagSet) -> BuildRequest:
    """Write the probe's sources into `folder`, and return the request to build them."""
    texts = {"main.cpp": CXX_PROBE, **({"cuda.cu": CUDA_PROBE} if flag_set.with_cuda else {})}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return BuildRequest.from_flag_set(
        "stark_probe", [str(folder / name) for name in texts], flag_set, folder
    )


def _precompile(toolkit: Toolkit, flag_set: FlagSet, deadline: Deadline) -> None:
    """Precompile the headers for one flag set, and learn from the CUDA probe if it has CUDA."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        request = _probe_request(scratch, flag_set)
        compilations = request.commands(deadline).compilations
        # A build slot has two cores (`build_slots`): each of the two compilers uses one.
        with ThreadPoolExecutor(len(BINDINGS)) as pool:
            for done in [
                pool.submit(precompile_header, toolkit, compilations[0], *kind, deadline)
                for kind in _kinds_of_precompiled_headers(flag_set)
            ]:
                done.result()
        if flag_set.with_cuda:
            context = BuildContext(
                toolkit=toolkit, folder=scratch / "stark", stopwatch=Stopwatch(), deadline=deadline
            )
            learn_from_probe(context, compilations[1], request.sources[1], flag_set.cuda_headers)


def _compile_graphs(toolkit: Toolkit, deadline: Deadline) -> None:
    """Compile what sources with graphs are linked with; without it they use torch's own header."""
    path = toolkit.folder / GRAPHS_FOLDER / SOURCE_FILE
    if toolkit.graphs.exists() or not path.exists():
        return
    source = CandidateSource.read(str(path))
    with tempfile.TemporaryDirectory(dir=toolkit.folder) as name:
        scratch = Path(name)
        compilation = _probe_request(scratch, FlagSet()).commands(deadline).compilations[0]
        header = candidate_header(source, toolkit.index, (AUTOGRAD,))
        write_file(scratch / "candidate/stark/candidate.h", header)
        folders = [scratch / "candidate", path.parent, toolkit.folder / "light"]
        argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
        unfinished = scratch / toolkit.graphs.name
        end = ["-c", str(path), "-o", str(unfinished)]
        if not run_compiler([*argv, *QUIET, *end], scratch, deadline).status:
            unfinished.replace(toolkit.graphs)


def _kinds_of_precompiled_headers(flag_set: FlagSet) -> list[tuple[Binding, tuple[str, ...]]]:
    """Return binding and added headers of each header for C++ sources with this flag set.

    A source that needs parts of torch beyond tensors is the only C++ one, as a rule.
    """
    added = tuple(header for header in flag_set.cpp_headers if header != PYBIND)
    if not added:
        return [(binding, ()) for binding in BINDINGS]
    return [("pybind" if PYBIND in flag_set.cpp_headers else "table", added)]
