"""CUDA sources: nvcc's steps run by this process, the device half beside the host half."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from actors.evaluator.fastbuild.headers.names_in_headers import names_in_headers
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc.nvcc_headers import cuda_headers, nvcc_command
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import (
    HOST_HALF,
    NvccHalf,
    Preamble,
    PreambleCache,
    anonymous_aliases,
    device_halves,
    host_prefix,
    lambda_wrappers,
    mark_missing_kernels,
    read_text,
    split_preamble,
)
from actors.evaluator.fastbuild.nvcc.nvcc_steps import NvccSteps, kept_whole, plan_steps
from actors.evaluator.fastbuild.nvcc.preamble_snapshot import HalfInput, PreambleSnapshot
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand
from actors.evaluator.fastbuild.request.compiler_errors import (
    COMPILER_ERROR,
    is_of_module,
    no_header_helps,
)
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline, run_compiler
from actors.evaluator.fastbuild.request.compiler_remarks import remarks_in
from actors.evaluator.fastbuild.store.build_record import Stopwatch
from protocol.values import Value


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What the steps of one build share."""

    toolkit: Toolkit
    folder: Path  # fast builds' own folder in torch's build folder
    stopwatch: Stopwatch
    deadline: Deadline
    remarks: set[str] = field(default_factory=set)  # of ptxas, on code that loses time


class CudaCompilation(Value, frozen=True, kw_only=True):
    """How the compilation of one CUDA source went."""

    failed: str = ""  # the step that failed
    ran: CompilerRun | None = None  # the failed step, else the last one
    argv: tuple[str, ...] = ()  # preprocesses the source with the light headers
    declared: frozenset[str] = frozenset()  # by these headers, as far as it is known already
    precompiled: bool = False


def compile_cuda(
    context: BuildContext,
    compilation: CompileCommand,
    source: CandidateSource,
    *,
    table: bool = True,
) -> CudaCompilation:
    """Compile one CUDA source to the compilation's output in the context's folder.

    `table`: the prebuilt binding makes the functions of its module, if it has one.
    """
    compiled, is_narrowed = _compile(context, compilation, source, table=table, narrow=True)
    output = compiled.ran.output if compiled.ran else ""
    if compiled.failed and is_narrowed and not no_header_helps(output, source):
        compiled, _ = _compile(context, compilation, source, table=table, narrow=False)
    return compiled


def _compile(
    context: BuildContext,
    compilation: CompileCommand,
    source: CandidateSource,
    *,
    table: bool,
    narrow: bool,
) -> tuple[CudaCompilation, bool]:
    own_folder = context.folder / Path(source.path).name
    own_folder.mkdir(parents=True, exist_ok=True)
    headers = cuda_headers(context.toolkit, source, own_folder, table=table, narrow=narrow)
    argv = nvcc_command(compilation, source, headers, context.folder)
    with tempfile.TemporaryDirectory(dir=context.folder) as name:
        scratch = Path(name)
        with context.stopwatch.phase("nvcc -dryrun"):
            steps = plan_steps(argv, scratch, scratch, context.deadline)
        if isinstance(steps, CompilerRun):
            return CudaCompilation(failed="nvcc", ran=steps), False
        if steps is None:
            with context.stopwatch.phase("nvcc"):
                ran = run_compiler(argv, scratch, context.deadline)
            context.remarks.update(remarks_in(ran.output))
            compiled = CudaCompilation(failed="nvcc" if ran.status else "", ran=ran)
            return compiled, headers.is_narrowed
        own_flags = frozenset(flag for flag in compilation.flags if flag.startswith("-I"))
        halves = _NvccHalves(context, steps, scratch, own_folder, own_flags, source)
        return halves.compile(), headers.is_narrowed


class _NvccHalves:
    """The halves of one source's compilation: the host's, and one for each architecture."""

    def __init__(
        self,
        context: BuildContext,
        steps: NvccSteps,
        scratch: Path,
        own_folder: Path,
        own_flags: frozenset[str],
        source: CandidateSource,
    ) -> None:
        self.context = context
        self.steps = steps
        self.scratch = scratch
        self.own_folder = own_folder
        self.own_flags = own_flags
        self.source = source
        self.preambles: dict[NvccHalf, Preamble] = {}  # those that replaced preprocessed text
        self.is_host_stripped: Future[bool] = Future()
        self.strips = True
        self.declared: frozenset[str] = frozenset()  # by the preamble, where that is known

    def compile(self) -> CudaCompilation:
        self.steps.name_module(self.source)
        # nvcc runs the host half first, so an error of that half is the one to report.
        halves = [HOST_HALF, *device_halves(self.steps)]
        continued = self._continue(halves)
        if continued is not None:
            return continued
        with ThreadPoolExecutor(len(halves) + 1) as pool:
            named = None if self.strips else pool.submit(self._names_in_headers)
            results = list(pool.map(self._run, halves))
            self.declared |= named.result() if named else frozenset()
        for half, result in zip(halves, results, strict=True):
            if half in self.preambles and result.failed and self._needs_bodies(result):
                result = self._parse_whole_and_list(half)
            elif half in self.preambles and HOST_HALF not in self.preambles:
                result = self._parse_whole(half)
            if result.failed:
                return structs.replace(result, declared=result.declared | self.declared)
        host = self.preambles.get(HOST_HALF)
        finished = self._finish(host.written if host else "")
        if finished.failed and HOST_HALF in self.preambles:
            for half in [half for half in halves if half in self.preambles]:
                parsed = self._parse_whole(half)
                if parsed.failed:
                    return parsed
            return self._finish("")
        return finished

    def _continue(self, halves: list[NvccHalf]) -> CudaCompilation | None:
        """Compile each half from its stored snapshot; None if the texts are to be parsed."""
        stored: list[PreambleSnapshot] = []
        inputs = [self._input(half) for half in halves]
        for given in inputs:
            found = PreambleSnapshot.find(self.context.toolkit, given)
            if found is None:
                return None
            stored.append(found)
        with ThreadPoolExecutor(len(halves)) as pool:
            results = list(pool.map(self._continue_half, stored, inputs))
        for half, result in zip(stored, results, strict=True):
            if result is None:
                return None
            if result.failed:
                return structs.replace(result, declared=half.declared)
        finished = self._finish(stored[0].written)
        if not finished.failed:
            return finished
        self.strips = not stored[0].is_stripped
        return self._told_of_module(finished, stored, inputs)

    def _told_of_module(
        self, finished: CudaCompilation, stored: list[PreambleSnapshot], inputs: list[HalfInput]
    ) -> CudaCompilation | None:
        """Return an error that g++ found in torch's headers, as a parser of the device tells it.

        Such a condition on a module's functions is in a body, and nvcc runs that parser before g++.
        """
        error = COMPILER_ERROR.search(finished.ran.output) if finished.ran else None
        if error is None or not is_of_module(error):
            return None
        for half, given in zip(stored[1:], inputs[1:], strict=True):
            told = self._parse_on(half, given, whole=True) if half.is_stripped else None
            if told is not None and told.failed == given.half.parser:
                return structs.replace(told, declared=half.declared)
        return None

    def _needs_bodies(self, result: CudaCompilation) -> bool:
        """Whether a failed half may be another with the bodies of the preamble's functions."""
        output = result.ran.output if result.ran else ""
        return not (_is_of_assembly(result) or no_header_helps(output, self.source))

    def _continue_half(self, stored: PreambleSnapshot, given: HalfInput) -> CudaCompilation | None:
        """Compile a half from its snapshot; None if it is to be parsed from its beginning.

        Without bodies no error of a parser is believed: one that has read them all tells it.
        """
        half, deadline = given.half, self.context.deadline
        with self.context.stopwatch.phase(f"{half.text} alone"):
            if not stored.preprocess(given, deadline):
                return None
        result = self._parse_on(stored, given, whole=False)
        if not (result and result.failed and stored.is_stripped and self._needs_bodies(result)):
            return result
        told = self._parse_on(stored, given, whole=True)
        if told is not None and told.failed == half.parser:
            return told
        self.strips = False
        return None

    def _parse_on(
        self, stored: PreambleSnapshot, given: HalfInput, *, whole: bool
    ) -> CudaCompilation | None:
        half = given.half
        with self.context.stopwatch.phase(f"{half.parser}, continued"):
            ran = stored.parse(given, self.context.deadline, whole=whole)
        if ran is None:
            return None
        return self._failed(half.parser, ran) if ran.status else self._steps(half.rest)

    def _input(self, half: NvccHalf) -> HalfInput:
        return HalfInput(
            half=half,
            steps=self.steps,
            scratch=self.scratch,
            own_folder=self.own_folder,
            source=self.source.path,
        )

    def _run(self, half: NvccHalf) -> CudaCompilation:
        """Preprocess and parse one half, with the stripped preamble if one is stored.

        A device half waits for the host's: with that one whole, it would be parsed a second time.
        """
        try:
            ran = self._step(half.text)
            is_next = half == HOST_HALF or self.is_host_stripped.result()
            if not ran.status and self.strips and is_next:
                self._strip_preamble(half)
        finally:
            if half == HOST_HALF:
                self.is_host_stripped.set_result(half in self.preambles)
        return self._failed(half.text, ran) if ran.status else self._parse(half)

    def _parse(self, half: NvccHalf) -> CudaCompilation:
        return self._steps((half.parser, *half.rest))

    def _steps(self, names: tuple[str, ...]) -> CudaCompilation:
        for name in names:
            ran = self._step(name)
            if ran.status:
                return self._failed(name, ran)
        return CudaCompilation()

    def _parse_whole(self, half: NvccHalf) -> CudaCompilation:
        """Parse a half again with the whole text: its error is the one to report.

        No device half is used with a stripped preamble if the host half is whole: only in the
        stripped one a kernel is noticed that no front end has seen (`mark_missing_kernels`).
        """
        del self.preambles[half]
        file = self.steps.output(half.text)
        kept_whole(file).replace(file)
        return self._parse(half)

    def _parse_whole_and_list(self, half: NvccHalf) -> CudaCompilation:
        """Parse a half again; meanwhile list what its headers declare, in case it fails again."""
        text = self.steps.output(HOST_HALF.text)
        text = kept_whole(text) if HOST_HALF in self.preambles else text
        with ThreadPoolExecutor(1) as pool:
            declared = pool.submit(self._names_in_headers, read_text(text))
            parsed = self._parse_whole(half)
            if parsed.failed:
                parsed = structs.replace(parsed, declared=declared.result())
        return parsed

    def _names_in_headers(self, text: str = "") -> frozenset[str]:
        argv, deadline = self.steps.host_text_argv(), self.context.deadline
        return names_in_headers(argv, self.source, deadline, text)

    def _step(self, name: str) -> CompilerRun:
        with self.context.stopwatch.phase(name):
            ran = self.steps.run(name, self.scratch, self.context.deadline)
        if name.startswith("ptxas"):
            self.context.remarks.update(remarks_in(ran.output))
        return ran

    def _failed(self, name: str, ran: CompilerRun) -> CudaCompilation:
        return CudaCompilation(failed=name, ran=ran, argv=self.steps.host_text_argv())

    def _strip_preamble(self, half: NvccHalf) -> None:
        """Replace the preamble of the half's text by the stripped one, if one is stored."""
        file = self.steps.output(half.text)
        parts = split_preamble(read_text(file))
        if parts is None:
            return
        cache = PreambleCache(self.context.toolkit)
        preamble = cache.find(half, self.steps, parts[0], self.source.path)
        if preamble is not None:
            file.replace(kept_whole(file))
            preamble.replace(file, self.source.path, parts[1])
            self.preambles[half] = preamble

    def _finish(self, written: str) -> CudaCompilation:
        """Compile cudafe++'s output, with a precompiled header for its prefix if there is one.

        `written`: what cudafe++ wrote for this prefix of another source; "" where nothing is known.
        """
        prefix = host_prefix(
            self.steps, self.scratch, self.own_folder, self.source.path, self.own_flags
        )
        header = None
        if prefix is not None:
            own_text = prefix.text
            prefix = structs.replace(prefix, text=written or own_text)
            precompiled = self.context.toolkit.precompiled
            header = precompiled.find(prefix.compiler, list(prefix.flags), prefix.text)
            if written:
                marked = mark_missing_kernels(prefix.rest)
                lambdas = lambda_wrappers(written, own_text)
                if marked is None or lambdas is None:
                    return CudaCompilation(failed="cudafe++")
                marked = lambdas + anonymous_aliases(written, marked) + marked
                prefix = structs.replace(prefix, rest=marked)
            if written or header:
                prefix.replace(header)
        for name in ("fatbinary", "host g++"):
            ran = self._step(name)
            if ran.status:
                return self._failed(name, ran)
        return CudaCompilation(ran=ran, precompiled=header is not None or prefix is None)


def _is_of_assembly(result: CudaCompilation) -> bool:
    """Whether ptxas failed for another reason than a function that the preamble only declared."""
    output = result.ran.output if result.ran else ""
    return result.failed.startswith("ptxas") and "Unresolved extern" not in output
