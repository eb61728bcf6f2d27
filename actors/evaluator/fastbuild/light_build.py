"""The light build of one extension: every source beside the others, then one link."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from actors.evaluator.fastbuild import cxx_compile, nvcc_compile
from actors.evaluator.fastbuild.build_context import BuildContext
from actors.evaluator.fastbuild.build_record import RECORD_FOLDER, Stopwatch
from actors.evaluator.fastbuild.build_request import BuildRequest
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import BuildCommands, CompileCommand
from actors.evaluator.fastbuild.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.cxx_compile import Binding
from actors.evaluator.fastbuild.error_attribution import CompilerFailure
from actors.evaluator.fastbuild.toolkit import Toolkit
from actors.evaluator.fastbuild.unsupported import can_bind_by_table
from protocol.values import Value

# An undefined method of Tensor is one that the light headers did not define.
_METHOD = re.compile(r"\b_ZNK?R?2at6Tensor(?P<length>\d+)(?P<rest>\w+)")


class LightBuildUnsupportedError(Exception):
    """The light way can't build this, whoever is at fault."""


class LightBuildFailedError(Exception):
    """Compilers refused; whose fault it is, is open."""

    def __init__(self, failures: Sequence[CompilerFailure]) -> None:
        super().__init__(failures[0].output)
        self.failures = tuple(failures)


class LightBuildResult(Value, frozen=True, kw_only=True):
    """How the library was made."""

    binding: str
    precompiled: bool


class LightBuild:
    """One build under way."""

    def __init__(
        self, toolkit: Toolkit, request: BuildRequest, stopwatch: Stopwatch, deadline: Deadline
    ) -> None:
        self.toolkit = toolkit
        self.request = request
        self.stopwatch = stopwatch
        self.deadline = deadline
        self.folder = Path(request.folder)
        self.place = self.folder / RECORD_FOLDER
        self._context = BuildContext(
            toolkit=toolkit, folder=self.place, stopwatch=stopwatch, deadline=deadline
        )
        self._precompiled: list[bool] = []
        self._bindings: set[Binding] = set()

    def build(self, commands: BuildCommands) -> LightBuildResult:
        """Compile and link; raise `LightBuildFailedError` or `LightBuildUnsupportedError`."""
        self.place.mkdir(parents=True, exist_ok=True)
        by_path = {source.path: source for source in self.request.sources}
        pairs = [(one, by_path.get(one.source)) for one in commands.compilations]
        failures: list[CompilerFailure] = []
        with ThreadPoolExecutor(len(pairs) + 1) as pool:
            under_way = []
            for compilation, source in pairs:
                if source is None:
                    raise LightBuildUnsupportedError(
                        f"torch compiles {compilation.source}, which nobody named"
                    )
                under_way.append(pool.submit(self._compile, compilation, source))
            for one in under_way:
                failure = one.result()
                if failure is not None:
                    failures.append(failure)
        if failures:
            raise LightBuildFailedError(failures)
        self._link(commands)
        return LightBuildResult(
            binding="/".join(sorted(self._bindings)), precompiled=all(self._precompiled)
        )

    def _compile(
        self, compilation: CompileCommand, source: CandidateSource
    ) -> CompilerFailure | None:
        if source.is_cuda:
            compiled = nvcc_compile.compile_cuda(self._context, compilation, source)
            self._precompiled.append(compiled.precompiled)
            return nvcc_compile.failure_of(compiled, source)
        name = Path(source.path).name
        binding: Binding = "table" if can_bind_by_table(source) else "pybind"
        with self.stopwatch.phase(f"g++ {name}"):
            unit = self._host(compilation, source, binding)
        if (
            unit.ran.status
            and binding == "table"
            and cxx_compile.LAYOUT_ASSERTION.search(unit.ran.output)
        ):
            binding = "pybind"
            with self.stopwatch.phase(f"g++ {name}, pybind11"):
                unit = self._host(compilation, source, binding)
        self._precompiled.append(unit.precompiled)
        if "PYBIND11_MODULE" in source.code:
            self._bindings.add(binding)
        if not unit.ran.status:
            return None
        return CompilerFailure(
            phase="g++",
            output=unit.ran.output,
            source=source.path,
            text=source.text,
            argv=unit.argv,
        )

    def _host(
        self, compilation: CompileCommand, source: CandidateSource, binding: Binding
    ) -> cxx_compile.CxxCompilation:
        return cxx_compile.compile_cxx(
            self.toolkit, compilation, source, binding, self.place, self.deadline
        )

    def _link(self, commands: BuildCommands) -> None:
        half = self.place / self.request.library.name
        outputs = {one.output for one in commands.compilations}
        argv = [str(self.place / word) if word in outputs else word for word in commands.link]
        argv[argv.index("-o") + 1] = str(half)
        if "table" in self._bindings:
            # Before the libraries: many a linker drops those that nothing before them needs.
            last = max(at for at, word in enumerate(commands.link) if word in outputs)
            argv.insert(last + 1, str(self.toolkit.binding))
        with self.stopwatch.phase("link"):
            ran = run_compiler([*argv, *self.toolkit.linker], self.folder, self.deadline)
        if ran.status:
            raise LightBuildUnsupportedError(f"the linker refused: {ran.output[-300:]}")
        with self.stopwatch.phase("look for missing methods"):
            self._check(half)
        half.replace(self.request.library)

    def _check(self, library: Path) -> None:
        """Raise `LightBuildUnsupportedError` when the library lacks a tensor method that torch's
        headers define.
        """
        ran = run_compiler(
            ["nm", "-D", "--undefined-only", str(library)], self.folder, self.deadline
        )
        for found in _METHOD.finditer(ran.output):
            name = found["rest"][: int(found["length"])]
            if found.group() not in self.toolkit.exported and name in self.toolkit.index.methods:
                raise LightBuildUnsupportedError(
                    f"the method {name} is used where no word names it"
                )
