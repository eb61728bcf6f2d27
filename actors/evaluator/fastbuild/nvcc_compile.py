"""CUDA sources: nvcc's steps run by us, the device's half beside the host's."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from actors.evaluator.fastbuild import header_tree, nvcc_steps
from actors.evaluator.fastbuild.build_context import BuildContext
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import CompileCommand, with_folders_first
from actors.evaluator.fastbuild.compiler_process import CompilerRun, run_compiler
from actors.evaluator.fastbuild.cudafe_prefix import host_prefix
from actors.evaluator.fastbuild.error_attribution import CompilerFailure
from actors.evaluator.fastbuild.header_selection import candidate_header
from actors.evaluator.fastbuild.nvcc_preamble import (
    DEVICE_HALF,
    HOST_HALF,
    NvccHalf,
    Preamble,
    read_text,
    split_preamble,
)
from actors.evaluator.fastbuild.nvcc_steps import NvccSteps
from actors.evaluator.fastbuild.toolkit import Toolkit
from protocol.values import Value

PROBE_SOURCE = """#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void probe_kernel(float* x) { x[threadIdx.x] += 1.0f; }
void probe_launch(torch::Tensor x) { probe_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""
_TORCH_WORD = re.compile(r"(AT|TORCH|C10|CAFFE2|PYBIND11)_\w+|PYBIND11_\w+")
_TORCH_NAMES = frozenset(["torch", "at", "c10", "caffe2", "py", "pybind11", "Tensor"])


class CudaCompilation(Value, frozen=True, kw_only=True):
    """How the compilation of one CUDA source went."""

    failed: str = ""  # the step
    ran: CompilerRun | None = None  # that step's words, or the last one's
    argv: tuple[str, ...] = ()
    precompiled: bool = False


def uses_torch(source: CandidateSource) -> bool:
    """Whether the source uses anything of torch's, besides the header that torch puts before it."""
    named = source.words
    return bool(named & _TORCH_NAMES) or any(_TORCH_WORD.fullmatch(word) for word in named)


def _folders(toolkit: Toolkit, source: CandidateSource, own: Path) -> list[Path]:
    if not uses_torch(source):
        return [toolkit.folder / "bare"]
    header_tree.write_file(own / "stark/candidate.h", candidate_header(source, toolkit.index))
    return [own, *toolkit.include_folders(source)]


def nvcc_command(
    context: BuildContext, compilation: CompileCommand, source: CandidateSource, own: Path
) -> list[str]:
    """Return nvcc's command with the light headers; those that are the source's go to `own`."""
    folders = _folders(context.toolkit, source, own)
    argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
    return [*argv, "-c", source.path, "-o", str(context.folder / compilation.output)]


def compile_cuda(
    context: BuildContext, compilation: CompileCommand, source: CandidateSource
) -> CudaCompilation:
    """Compile one CUDA source to the compilation's output under the workplace's folder."""
    own = context.folder / Path(source.path).name
    own.mkdir(parents=True, exist_ok=True)
    argv = nvcc_command(context, compilation, source, own)
    with tempfile.TemporaryDirectory(dir=context.folder) as name:
        scratch = Path(name)
        with context.stopwatch.phase("nvcc -dryrun"):
            steps = nvcc_steps.plan_steps(argv, scratch, scratch, context.deadline)
        if isinstance(steps, CompilerRun):
            return CudaCompilation(failed="nvcc", ran=steps)
        if steps is None:
            with context.stopwatch.phase("nvcc"):
                ran = run_compiler(argv, scratch, context.deadline)
            return CudaCompilation(failed="nvcc" if ran.status else "", ran=ran)
        return _NvccHalves(context, steps, scratch, own, source).compile()


def failure_of(compiled: CudaCompilation, source: CandidateSource) -> CompilerFailure | None:
    """Return what failed, for the question whose fault it is."""
    if not compiled.failed or compiled.ran is None:
        return None
    return CompilerFailure(
        phase=compiled.failed,
        output=compiled.ran.output,
        source=source.path,
        text=source.text,
        argv=compiled.argv,
    )


class _NvccHalves:
    """The two halves of one source, under way."""

    def __init__(
        self,
        context: BuildContext,
        steps: NvccSteps,
        scratch: Path,
        own: Path,
        source: CandidateSource,
    ) -> None:
        self.context = context
        self.steps = steps
        self.scratch = scratch
        self.own = own
        self.source = source
        self.openings: dict[NvccHalf, Preamble] = {}  # what took the place of what was preprocessed

    def compile(self) -> CudaCompilation:
        self.steps.name_module(self.source)
        compiled = self._attempt(self._spare)
        if not (compiled.failed and self.openings):
            return compiled
        # The words that count are those for the whole text.
        self.openings = {}
        return self._attempt(lambda half: None)

    def _attempt(self, spare: Callable[[NvccHalf], None]) -> CudaCompilation:
        with ThreadPoolExecutor(2) as pool:
            device = pool.submit(self._run, DEVICE_HALF, spare, ("ptxas", "fatbinary"))
            host = pool.submit(self._run, HOST_HALF, spare, ())
            # nvcc runs the host's half first, so its words are those that count.
            halves = [host.result(), device.result()]
        for half in halves:
            if half.failed:
                return half
        return self._finish()

    def _run(
        self, half: NvccHalf, spare: Callable[[NvccHalf], None], rest: Sequence[str]
    ) -> CudaCompilation:
        ran = None
        for name in (half.text, half.parser, *rest):
            if name == half.parser:
                spare(half)
            with self.context.stopwatch.phase(name):
                ran = self.steps.run(name, self.scratch, self.context.deadline)
            if ran.status:
                return CudaCompilation(failed=name, ran=ran, argv=self.steps.host_text_argv())
        return CudaCompilation(ran=ran)

    def _spare(self, half: NvccHalf) -> None:
        """Let the half's text begin with a smaller one, where that is known to do."""
        file = self.steps.output(half.text)
        parts = split_preamble(read_text(file))
        if parts is None:
            return
        known = self.context.toolkit.preambles.find(half, self.steps, parts[0], self.source.path)
        if known is not None:
            known.replace(file, self.source.path, parts[1])
            self.openings[half] = known

    def _finish(self) -> CudaCompilation:
        found = host_prefix(self.steps, self.scratch, self.own, self.source.path)
        ready = None
        if found is not None:
            preamble = self.openings.get(HOST_HALF)
            text = preamble.written if preamble else found.text
            found = structs.replace(found, text=text)
            ready = self.context.toolkit.precompiled.find(found.compiler, list(found.flags), text)
            if preamble or ready:
                found.replace(ready)
        with self.context.stopwatch.phase("host g++"):
            ran = self.steps.run("host g++", self.scratch, self.context.deadline)
        return CudaCompilation(
            failed="host g++" if ran.status else "",
            ran=ran,
            argv=self.steps.host_text_argv(),
            precompiled=ready is not None or found is None,
        )
