"""CUDA sources: nvcc's steps run by this process, the device half beside the host half."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import write_file
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import (
    DEVICE_HALF,
    HOST_HALF,
    NvccHalf,
    Preamble,
    PreambleCache,
    host_prefix,
    read_text,
    split_preamble,
)
from actors.evaluator.fastbuild.nvcc.nvcc_steps import NvccSteps, plan_steps
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand, with_folders_first
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline, run_compiler
from actors.evaluator.fastbuild.store.build_record import Stopwatch
from protocol.values import Value

CUDA_PROBE = """#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void probe_kernel(float* x) { x[threadIdx.x] += 1.0f; }
void probe_launch(torch::Tensor x) { probe_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""
_TORCH_MACRO = re.compile(r"(AT|TORCH|C10|CAFFE2|PYBIND11)_\w+|PYBIND11_\w+")
_TORCH_NAMES = frozenset(["torch", "at", "c10", "caffe2", "py", "pybind11", "Tensor"])


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What the steps of one build share."""

    toolkit: Toolkit
    folder: Path  # fast builds' own folder in torch's build folder
    stopwatch: Stopwatch
    deadline: Deadline


class CudaCompilation(Value, frozen=True, kw_only=True):
    """How the compilation of one CUDA source went."""

    failed: str = ""  # the step that failed
    ran: CompilerRun | None = None  # the failed step, else the last one
    argv: tuple[str, ...] = ()  # preprocesses the source with the light headers
    precompiled: bool = False


def uses_torch(source: CandidateSource) -> bool:
    """Whether the source uses torch beyond the header that torch itself puts before it."""
    named = source.identifiers
    return bool(named & _TORCH_NAMES) or any(_TORCH_MACRO.fullmatch(name) for name in named)


def _include_folders(toolkit: Toolkit, source: CandidateSource, own_folder: Path) -> list[Path]:
    if not uses_torch(source):
        return [toolkit.folder / "bare"]
    write_file(own_folder / "stark/candidate.h", candidate_header(source, toolkit.index))
    return [own_folder, *toolkit.include_folders(source)]


def nvcc_command(
    context: BuildContext, compilation: CompileCommand, source: CandidateSource, own_folder: Path
) -> list[str]:
    """Return nvcc's command with the light headers; the source's own ones go to `own_folder`."""
    folders = _include_folders(context.toolkit, source, own_folder)
    argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
    return [*argv, "-c", source.path, "-o", str(context.folder / compilation.output)]


def compile_cuda(
    context: BuildContext, compilation: CompileCommand, source: CandidateSource
) -> CudaCompilation:
    """Compile one CUDA source to the compilation's output in the context's folder."""
    own_folder = context.folder / Path(source.path).name
    own_folder.mkdir(parents=True, exist_ok=True)
    argv = nvcc_command(context, compilation, source, own_folder)
    with tempfile.TemporaryDirectory(dir=context.folder) as name:
        scratch = Path(name)
        with context.stopwatch.phase("nvcc -dryrun"):
            steps = plan_steps(argv, scratch, scratch, context.deadline)
        if isinstance(steps, CompilerRun):
            return CudaCompilation(failed="nvcc", ran=steps)
        if steps is None:
            with context.stopwatch.phase("nvcc"):
                ran = run_compiler(argv, scratch, context.deadline)
            return CudaCompilation(failed="nvcc" if ran.status else "", ran=ran)
        return _NvccHalves(context, steps, scratch, own_folder, source).compile()


class _NvccHalves:
    """The two halves of one source's compilation."""

    def __init__(
        self,
        context: BuildContext,
        steps: NvccSteps,
        scratch: Path,
        own_folder: Path,
        source: CandidateSource,
    ) -> None:
        self.context = context
        self.steps = steps
        self.scratch = scratch
        self.own_folder = own_folder
        self.source = source
        self.preambles: dict[NvccHalf, Preamble] = {}  # those that replaced preprocessed text

    def compile(self) -> CudaCompilation:
        self.steps.name_module(self.source)
        compiled = self._attempt(self._strip_preamble)
        if not (compiled.failed and self.preambles):
            return compiled
        # The error to report is the one for the whole text.
        self.preambles = {}
        return self._attempt(lambda half: None)

    def _attempt(self, shorten: Callable[[NvccHalf], None]) -> CudaCompilation:
        with ThreadPoolExecutor(2) as pool:
            device = pool.submit(self._run, DEVICE_HALF, shorten, ("ptxas", "fatbinary"))
            host = pool.submit(self._run, HOST_HALF, shorten, ())
            # nvcc runs the host half first, so an error of that half is the one to report.
            halves = [host.result(), device.result()]
        for half in halves:
            if half.failed:
                return half
        return self._finish()

    def _run(
        self, half: NvccHalf, shorten: Callable[[NvccHalf], None], rest: Sequence[str]
    ) -> CudaCompilation:
        ran = None
        for name in (half.text, half.parser, *rest):
            if name == half.parser:
                shorten(half)
            with self.context.stopwatch.phase(name):
                ran = self.steps.run(name, self.scratch, self.context.deadline)
            if ran.status:
                return CudaCompilation(failed=name, ran=ran, argv=self.steps.host_text_argv())
        return CudaCompilation(ran=ran)

    def _strip_preamble(self, half: NvccHalf) -> None:
        """Replace the preamble of the half's text by the stripped one, if one is stored."""
        file = self.steps.output(half.text)
        parts = split_preamble(read_text(file))
        if parts is None:
            return
        cache = PreambleCache(self.context.toolkit)
        preamble = cache.find(half, self.steps, parts[0], self.source.path)
        if preamble is not None:
            preamble.replace(file, self.source.path, parts[1])
            self.preambles[half] = preamble

    def _finish(self) -> CudaCompilation:
        """Compile cudafe++'s output, with a precompiled header for its prefix if there is one."""
        prefix = host_prefix(self.steps, self.scratch, self.own_folder, self.source.path)
        header = None
        if prefix is not None:
            preamble = self.preambles.get(HOST_HALF)
            prefix = structs.replace(prefix, text=preamble.written if preamble else prefix.text)
            precompiled = self.context.toolkit.precompiled
            header = precompiled.find(prefix.compiler, list(prefix.flags), prefix.text)
            if preamble or header:
                prefix.replace(header)
        with self.context.stopwatch.phase("host g++"):
            ran = self.steps.run("host g++", self.scratch, self.context.deadline)
        return CudaCompilation(
            failed="host g++" if ran.status else "",
            ran=ran,
            argv=self.steps.host_text_argv(),
            precompiled=header is not None or prefix is None,
        )
