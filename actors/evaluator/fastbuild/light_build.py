"""The light build of one extension: all sources at once, then one link."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from actors.evaluator.fastbuild.binding_errors import is_of_binding, without_binding
from actors.evaluator.fastbuild.cxx_compile import Binding, CxxCompilation, compile_cxx
from actors.evaluator.fastbuild.error_attribution import (
    LINK_PHASE,
    CompilerFailure,
    reason_to_doubt,
)
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc.nvcc_compile import BuildContext, compile_cuda
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import MISSING_KERNEL
from actors.evaluator.fastbuild.request.added_headers import (
    AUTOGRAD,
    has_module,
    torch_headers_for,
)
from actors.evaluator.fastbuild.request.build_request import BuildRequest
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import BuildCommands, CompileCommand
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.store.build_record import RECORD_FOLDER, Stopwatch
from actors.evaluator.fastbuild.unsupported import can_bind_by_table
from protocol.values import Value

# The mangled name of a Tensor method; undefined if the light headers did not define the method.
_METHOD = re.compile(r"\b_ZNK?R?2at6Tensor(?P<length>\d+)(?P<rest>\w+)")


class LightBuildUnsupportedError(Exception):
    """The light headers can't build this extension; the candidate need not be at fault."""


class AttributedFailure(Value, frozen=True, kw_only=True):
    """One compiler's failure, and why torch's own build might end otherwise, if it might."""

    failure: CompilerFailure
    doubt: str | None


class LightBuildFailedError(Exception):
    """Compilers failed; torch must build if one of the failures is in doubt."""

    def __init__(self, failures: Sequence[AttributedFailure]) -> None:
        super().__init__(failures[0].failure.output)
        self.failures = tuple(failures)


class LightBuildResult(Value, frozen=True, kw_only=True):
    """How the library was built."""

    binding: str
    precompiled: bool
    remarks: tuple[str, ...] = ()  # of the compiler, on code that loses time


class LightBuild:
    """One running build."""

    def __init__(
        self, toolkit: Toolkit, request: BuildRequest, stopwatch: Stopwatch, deadline: Deadline
    ) -> None:
        self.toolkit = toolkit
        self.request = request
        self.stopwatch = stopwatch
        self.deadline = deadline
        self.folder = Path(request.folder)
        self.own_folder = self.folder / RECORD_FOLDER
        self._context = BuildContext(
            toolkit=toolkit, folder=self.own_folder, stopwatch=stopwatch, deadline=deadline
        )
        self._precompiled: list[bool] = []
        self._bindings: set[Binding] = set()
        self._has_graphs = any(
            AUTOGRAD in torch_headers_for(source.whole_code) for source in request.sources
        )
        host = [source for source in request.sources if not source.is_cuda]
        self._host_headers = tuple(
            header for source in host for header in torch_headers_for(source.whole_code)
        )
        is_table = all(can_bind_by_table(source) for source in host)
        self._host_binding: Binding = "table" if is_table else "pybind"

    def build(self, commands: BuildCommands) -> LightBuildResult:
        """Compile and link; raise `LightBuildFailedError` or `LightBuildUnsupportedError`."""
        self.own_folder.mkdir(parents=True, exist_ok=True)
        by_path = {source.path: source for source in self.request.sources}
        pairs = [(each, by_path.get(each.source)) for each in commands.compilations]
        failures: list[AttributedFailure] = []
        with ThreadPoolExecutor(len(pairs) + 1) as pool:
            running = []
            for compilation, source in pairs:
                if source is None:
                    raise LightBuildUnsupportedError(
                        f"torch compiles {compilation.source}, which is not among the sources"
                    )
                running.append(pool.submit(self._compile_and_attribute, compilation, source))
            for future in running:
                failure = future.result()
                if failure is not None:
                    failures.append(failure)
        if failures:
            raise LightBuildFailedError(failures)
        self._link(commands)
        return LightBuildResult(
            binding="/".join(sorted(self._bindings)),
            precompiled=all(self._precompiled),
            remarks=tuple(sorted(self._context.remarks)),
        )

    def _compile_and_attribute(
        self, compilation: CompileCommand, source: CandidateSource
    ) -> AttributedFailure | None:
        """Compile one source; attribute its error while the other sources are compiled."""
        failure = self._compile(compilation, source)
        return self._attributed(failure) if failure else None

    def _attributed(self, failure: CompilerFailure) -> AttributedFailure:
        with self.stopwatch.phase("error attribution"):
            doubt = reason_to_doubt(failure, self.toolkit, self.deadline)
        return AttributedFailure(failure=failure, doubt=doubt)

    def _compile(
        self, compilation: CompileCommand, source: CandidateSource
    ) -> CompilerFailure | None:
        if source.is_cuda:
            return self._compile_cuda(compilation, source)
        name, binding = Path(source.path).name, self._host_binding
        with self.stopwatch.phase(f"g++ {name}"):
            compiled = self._compile_cxx(compilation, source, binding)
        if compiled.ran.status and binding == "table" and is_of_binding(compiled.ran.output):
            binding = "pybind"
            with self.stopwatch.phase(f"g++ {name}, pybind11"):
                compiled = self._compile_cxx(compilation, source, binding)
        self._precompiled.append(compiled.precompiled)
        if has_module(source.whole_code):
            self._bindings.add(binding)
        if not compiled.ran.status:
            return None
        return _failure("g++", compiled.ran.output, source, compiled.argv)

    def _compile_cuda(
        self, compilation: CompileCommand, source: CandidateSource
    ) -> CompilerFailure | None:
        binding: Binding = "table" if can_bind_by_table(source) else "pybind"
        compiled = compile_cuda(self._context, compilation, source, table=binding == "table")
        output = compiled.ran.output if compiled.ran else ""
        if compiled.failed and binding == "table" and is_of_binding(output):
            binding = "pybind"
            compiled = compile_cuda(self._context, compilation, source, table=False)
        self._precompiled.append(compiled.precompiled)
        if has_module(source.whole_code):
            self._bindings.add(binding)
        if not compiled.failed or compiled.ran is None:
            return None
        failure = _failure(compiled.failed, compiled.ran.output, source, compiled.argv)
        return structs.replace(failure, declared=compiled.declared)

    def _compile_cxx(
        self, compilation: CompileCommand, source: CandidateSource, binding: Binding
    ) -> CxxCompilation:
        others = self._host_headers
        return compile_cxx(
            self.toolkit, compilation, source, binding, others, self.own_folder, self.deadline
        )

    def _link(self, commands: BuildCommands) -> None:
        unfinished = self.own_folder / self.request.library.name
        outputs = {each.output for each in commands.compilations}
        argv = [str(self.own_folder / arg) if arg in outputs else arg for arg in commands.link]
        argv[argv.index("-o") + 1] = str(unfinished)
        prebuilt = list(map(str, self.toolkit.binding)) if "table" in self._bindings else []
        if self._has_graphs and self.toolkit.graphs.exists():
            prebuilt.append(str(self.toolkit.graphs))
        # Before the libraries: with --as-needed a linker drops a library that no earlier object
        # needs.
        last = max(at for at, arg in enumerate(commands.link) if arg in outputs)
        argv[last + 1 : last + 1] = prebuilt
        with self.stopwatch.phase(LINK_PHASE):
            ran = run_compiler([*argv, *self.toolkit.linker], self.folder, self.deadline)
            if ran.status and self.toolkit.linker:
                ran = run_compiler(argv, self.folder, self.deadline)
        if ran.status:
            code = "\n".join(source.whole_code for source in self.request.sources)
            library = CandidateSource(path=str(self.request.library), text=code)
            failure = _failure(LINK_PHASE, ran.output, library, ())
            raise LightBuildFailedError([self._attributed(failure)])
        with self.stopwatch.phase("look for missing symbols"):
            check_symbols(unfinished, self.toolkit, self.deadline)
        unfinished.replace(self.request.library)


def check_symbols(library: Path, toolkit: Toolkit, deadline: Deadline) -> None:
    """Raise `LightBuildUnsupportedError` if the library lacks a method of torch or a kernel."""
    argv = ["nm", "-D", "--undefined-only", str(library)]
    ran = run_compiler(argv, library.parent, deadline)
    if MISSING_KERNEL in ran.output:
        # g++ read the bodies of templates in the headers; cudafe++ and cicc saw no such launch.
        raise LightBuildUnsupportedError("a template in the headers launches a kernel")
    for found in _METHOD.finditer(ran.output):
        name = found["rest"][: int(found["length"])]
        if found.group() not in toolkit.exported and name in toolkit.index.methods:
            raise LightBuildUnsupportedError(
                f"the method {name} is used but not named in the source"
            )


def _failure(
    phase: str, output: str, source: CandidateSource, argv: tuple[str, ...]
) -> CompilerFailure:
    return CompilerFailure(phase=phase, output=without_binding(output), source=source, argv=argv)
