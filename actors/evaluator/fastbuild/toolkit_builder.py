"""The workshop: makes toolkits, and precompiled headers for families of flags.  Trusted code only.

It compiles nothing but texts of ours and torch's, with plain flags.  What it makes appears under
its final name when it is whole, so that it may be killed or run twice at any time.
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
from pathlib import Path

from actors.evaluator.fastbuild import (
    cuda_header_tree,
    cxx_compile,
    declared_names,
    header_tree,
    nvcc_compile,
    operator_index,
    probe_build,
    toolkit,
)
from actors.evaluator.fastbuild.build_context import BuildContext
from actors.evaluator.fastbuild.build_record import Stopwatch
from actors.evaluator.fastbuild.build_request import BuildRequest
from actors.evaluator.fastbuild.build_slots import slots_here
from actors.evaluator.fastbuild.build_store import UNFINISHED_PREFIX, remove_unfinished
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import (
    BuildCommands,
    CompileCommand,
    with_folders_first,
)
from actors.evaluator.fastbuild.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.flag_set import FlagSet
from actors.evaluator.fastbuild.header_selection import candidate_header
from actors.evaluator.fastbuild.operator_index import OperatorIndex
from actors.evaluator.fastbuild.toolkit import Toolkit, ToolkitMissingError

PREPARE_S = 600.0
LOCK_NAME, POLL_S = "lock", 0.1
KINDS_HEADER = "light/stark/kinds.h"
FASTER_LINKERS = ("-fuse-ld=gold",)
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
PROBE_SOURCE = """#include <torch/extension.h>
torch::Tensor probe(torch::Tensor x) {
  auto y = torch::empty_like(x);
  y.copy_(x + x * 2);
  return torch::zeros({x.size(0)}, x.options()) + y[0];
}
"""


def prepare_toolkit(
    store: Path, families: Iterable[FlagSet] = (), limit_s: float = PREPARE_S
) -> Toolkit:
    """Make what is missing in `store` for the torch in use and `families`; trusted code only.

    Raises `ToolkitMissingError` where this torch or this compiler can't be served.
    """
    deadline = Deadline(limit_s)
    store = store.absolute()
    store.mkdir(parents=True, exist_ok=True)
    with _exclusive(store, deadline):
        return _prepare(store, [family for family in families if family.is_plain()], deadline)


@contextmanager
def _exclusive(store: Path, deadline: Deadline) -> Iterator[None]:
    """Be the only maker in `store`: two would take twice the time and memory for one toolkit.

    The system lets go of a killed maker's lock.
    """
    with (store / LOCK_NAME).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(min(POLL_S, deadline.left_s()))
        yield


def _prepare(store: Path, families: list[FlagSet], deadline: Deadline) -> Toolkit:
    remove_unfinished(store)
    folder = store / toolkit.toolkit_key()
    if not (folder / operator_index.FILE_NAME).exists():
        half = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=store))
        try:
            _generate(half, deadline)
            half.chmod(0o755)
            try:
                half.rename(folder)
            except OSError:
                if not folder.exists():  # else somebody else was faster
                    raise
        finally:
            shutil.rmtree(half, ignore_errors=True)
    made = Toolkit(folder)
    made.precompiled.remove_unfinished()
    made.preambles.remove_unfinished()
    with ThreadPoolExecutor(slots_here()) as pool:
        for done in [pool.submit(_precompile, made, family, deadline) for family in families]:
            done.result()
    return made


def _generate(half: Path, deadline: Deadline) -> None:
    try:
        found = header_tree.generate_headers(toolkit.headers_of_torch(), half)
        cuda_header_tree.generate_cuda_headers(toolkit.headers_of_torch(), half)
    except header_tree.UnexpectedTorchHeadersError as error:
        raise ToolkitMissingError(str(error)) from None
    (half / operator_index.FILE_NAME).unlink()  # until all is there, it is no toolkit
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as beside:
        scratch = Path(name)
        request = _order(scratch, FlagSet())
        listed = request.commands(deadline)
        # The longest step is one compiler's; what torch's own headers hold is found out meanwhile.
        bound = beside.submit(_build_binding, half, found, listed, scratch, deadline)
        _note_names(half, request.sources[0], listed.compilations[0], deadline)
        linker = bound.result()
        (half / toolkit.LINKER_FILE).write_text(linker, encoding="ascii")
        _try_light(half, found, request.sources[0], listed.compilations[0], scratch, deadline)
    found.write(half)


def _note_names(
    half: Path, source: CandidateSource, compilation: CompileCommand, deadline: Deadline
) -> None:
    """Write down what torch's own headers declare and define, and what its library exports."""
    argv = [compilation.compiler, *compilation.flags, "-E"]
    full = run_compiler([*argv, "-P", source.path], half, deadline)
    macros = run_compiler([*argv, "-dM", source.path], half, deadline)
    if full.status or macros.status:
        raise ToolkitMissingError(f"torch's own headers do not preprocess: {full.output[-1000:]}")
    defined = _DEFINED.findall(macros.output)
    (half / toolkit.MACROS_FILE).write_text("\n".join(sorted(set(defined))), encoding="utf-8")
    everything = declared_names.names_declared_in(full.output) | frozenset(defined)
    (half / toolkit.NAMES_FILE).write_text("\n".join(sorted(everything)), encoding="utf-8")
    (half / toolkit.EXPORTED_FILE).write_text("\n".join(_exported(deadline)), encoding="utf-8")


def _build_binding(
    half: Path, found: OperatorIndex, listed: BuildCommands, scratch: Path, deadline: Deadline
) -> str:
    """Compile the binding, with fewer kinds of types where it can't be loaded otherwise.

    Returns the flag of a faster linker, or nothing.
    """
    link = list(listed.link)
    for kinds in ("", "#define STARK_FEW_KINDS\n"):
        header_tree.write_file(half / KINDS_HEADER, f"#pragma once\n{kinds}")
        _compile_binding(half, found, listed.compilations[0], deadline)
        if _loads(link, half, scratch, deadline):
            return _linker(link, half / toolkit.BINDING_FILE, scratch, deadline)
    raise ToolkitMissingError("the binding can't be loaded with this torch")


def _try_light(
    half: Path,
    found: OperatorIndex,
    source: CandidateSource,
    compilation: CompileCommand,
    scratch: Path,
    deadline: Deadline,
) -> None:
    """See that a candidate compiles with the light headers; write down what they define."""
    argv = [compilation.compiler, *_light_flags(half, found, source, compilation, scratch)]
    ran = run_compiler([*argv, "-E", "-dM", source.path], half, deadline)
    tried = run_compiler([*argv, "-fsyntax-only", source.path], half, deadline)
    if ran.status or tried.status:
        raise ToolkitMissingError(f"the light headers do not compile: {tried.output[-2000:]}")
    light_macros = sorted(set(_DEFINED.findall(ran.output)))
    (half / toolkit.LIGHT_MACROS_FILE).write_text("\n".join(light_macros), encoding="utf-8")


def _binding_link(link: list[str], binding: Path) -> list[str]:
    """Return torch's link command `link` with the binding as its one object."""
    return [str(binding) if word.endswith(".o") else word for word in link]


def _loads(link: list[str], half: Path, scratch: Path, deadline: Deadline) -> bool:
    """Whether a library made of the binding finds all it needs in torch's libraries."""
    argv = _binding_link(link, half / toolkit.BINDING_FILE)
    if run_compiler(argv, scratch, deadline).status:
        return False
    library = scratch / argv[argv.index("-o") + 1]
    words = f"import os, ctypes, torch; ctypes.CDLL({str(library)!r}, os.RTLD_NOW)"
    return not run_compiler([sys.executable, "-c", words], scratch, deadline).status


def _linker(link: list[str], binding: Path, scratch: Path, deadline: Deadline) -> str:
    """Return the flag of a faster linker that links what torch's command links, or nothing."""
    for flag in FASTER_LINKERS:
        if not run_compiler([*_binding_link(link, binding), flag], scratch, deadline).status:
            return flag
    return ""


def _exported(deadline: Deadline) -> list[str]:
    library = toolkit.headers_of_torch().parent / "lib/libtorch_cpu.so"
    ran = run_compiler(["nm", "-D", "--defined-only", str(library)], library.parent, deadline)
    found = sorted(set(re.findall(r"\b_ZNK?R?2at6Tensor\w+", ran.output)))
    if ran.status or not found:
        raise ToolkitMissingError(f"{library.name} exports no tensor methods: {ran.output[:300]}")
    return found


def _light_flags(
    half: Path,
    found: OperatorIndex,
    source: CandidateSource,
    compilation: CompileCommand,
    scratch: Path,
) -> list[str]:
    header_tree.write_file(scratch / "candidate/stark/candidate.h", candidate_header(source, found))
    folders = [scratch / "candidate", half / "light"]
    return [*with_folders_first(compilation.flags, folders), "-DSTARK_PYBIND"]


def _compile_binding(
    half: Path, found: OperatorIndex, compilation: CompileCommand, deadline: Deadline
) -> None:
    path = header_tree.NATIVE / "binding.cpp"
    with tempfile.TemporaryDirectory() as scratch:
        flags = _light_flags(
            half, found, CandidateSource.read(str(path)), compilation, Path(scratch)
        )
        quiet = ["-O2", "-g0", "-w", "-fvisibility=hidden"]
        argv = [compilation.compiler, *flags, *quiet, "-c", str(path), "-o", toolkit.BINDING_FILE]
        ran = run_compiler(argv, half, deadline)
    if ran.status:
        raise ToolkitMissingError(f"the binding does not compile: {ran.output[-2000:]}")


def _order(folder: Path, flag_set: FlagSet) -> BuildRequest:
    texts = {
        "main.cpp": PROBE_SOURCE,
        **({"cuda.cu": nvcc_compile.PROBE_SOURCE} if flag_set.with_cuda else {}),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return BuildRequest.from_flag_set(
        "stark_probe", [str(folder / name) for name in texts], flag_set, folder
    )


def _precompile(made: Toolkit, flag_set: FlagSet, deadline: Deadline) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        request = _order(scratch, flag_set)
        compilations = request.commands(deadline).compilations
        # A build has two cores (`slots`), and each of these takes one.
        with ThreadPoolExecutor(len(cxx_compile.BINDINGS)) as pool:
            for done in [
                pool.submit(cxx_compile.precompile_header, made, compilations[0], binding, deadline)
                for binding in cxx_compile.BINDINGS
            ]:
                done.result()
        if flag_set.with_cuda:
            context = BuildContext(
                toolkit=made, folder=scratch / "stark", stopwatch=Stopwatch(), deadline=deadline
            )
            probe_build.learn_from_probe(context, compilations[1], request.sources[1])
