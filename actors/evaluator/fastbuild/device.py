"""CUDA sources: nvcc's steps run by us, the device's half beside the host's."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from actors.evaluator.fastbuild import nvcc, tree
from actors.evaluator.fastbuild.blame import Failure
from actors.evaluator.fastbuild.commands import Compilation, with_folders_first
from actors.evaluator.fastbuild.nvcc import Steps
from actors.evaluator.fastbuild.openings import DEVICE, HOST, Half, Opening, cut, read
from actors.evaluator.fastbuild.prefix import host_prefix
from actors.evaluator.fastbuild.process import Ran, run
from actors.evaluator.fastbuild.selection import header
from actors.evaluator.fastbuild.source import Source
from actors.evaluator.fastbuild.toolkit import Toolkit
from actors.evaluator.fastbuild.workplace import Workplace
from protocol.values import Value

PROBE = """#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void probe_kernel(float* x) { x[threadIdx.x] += 1.0f; }
void probe_launch(torch::Tensor x) { probe_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""
_TORCH_WORD = re.compile(r"(AT|TORCH|C10|CAFFE2|PYBIND11)_\w+|PYBIND11_\w+")
_TORCH_NAMES = frozenset(["torch", "at", "c10", "caffe2", "py", "pybind11", "Tensor"])


class Compiled(Value, frozen=True, kw_only=True):
    """How the compilation of one CUDA source went."""

    failed: str = ""  # the step
    ran: Ran | None = None  # that step's words, or the last one's
    argv: tuple[str, ...] = ()
    precompiled: bool = False


def names_torch(source: Source) -> bool:
    """Whether the source uses anything of torch's, besides the header that torch puts before it."""
    named = source.words
    return bool(named & _TORCH_NAMES) or any(_TORCH_WORD.fullmatch(word) for word in named)


def _folders(toolkit: Toolkit, source: Source, own: Path) -> list[Path]:
    if not names_torch(source):
        return [toolkit.folder / "bare"]
    tree.write(own / "stark/candidate.h", header(source, toolkit.index))
    return [own, *toolkit.include_folders(source)]


def command_line(work: Workplace, compilation: Compilation, source: Source, own: Path) -> list[str]:
    """Return nvcc's command with the light headers; those that are the source's go to `own`."""
    folders = _folders(work.toolkit, source, own)
    argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
    return [*argv, "-c", source.path, "-o", str(work.folder / compilation.output)]


def compile_source(work: Workplace, compilation: Compilation, source: Source) -> Compiled:
    """Compile one CUDA source to the compilation's output under the workplace's folder."""
    own = work.folder / Path(source.path).name
    own.mkdir(parents=True, exist_ok=True)
    argv = command_line(work, compilation, source, own)
    with tempfile.TemporaryDirectory(dir=work.folder) as name:
        scratch = Path(name)
        with work.watch.phase("nvcc -dryrun"):
            steps = nvcc.plan(argv, scratch, scratch, work.deadline)
        if isinstance(steps, Ran):
            return Compiled(failed="nvcc", ran=steps)
        if steps is None:
            with work.watch.phase("nvcc"):
                ran = run(argv, scratch, work.deadline)
            return Compiled(failed="nvcc" if ran.status else "", ran=ran)
        return _Halves(work, steps, scratch, own, source).compile()


def failure(compiled: Compiled, source: Source) -> Failure | None:
    """Return what failed, for the question whose fault it is."""
    if not compiled.failed or compiled.ran is None:
        return None
    return Failure(
        phase=compiled.failed,
        output=compiled.ran.output,
        source=source.path,
        text=source.text,
        argv=compiled.argv,
    )


class _Halves:
    """The two halves of one source, under way."""

    def __init__(
        self, work: Workplace, steps: Steps, scratch: Path, own: Path, source: Source
    ) -> None:
        self.work = work
        self.steps = steps
        self.scratch = scratch
        self.own = own
        self.source = source
        self.openings: dict[Half, Opening] = {}  # what took the place of what was preprocessed

    def compile(self) -> Compiled:
        self.steps.name_module(self.source)
        compiled = self._attempt(self._spare)
        if not (compiled.failed and self.openings):
            return compiled
        # The words that count are those for the whole text.
        self.openings = {}
        return self._attempt(lambda half: None)

    def _attempt(self, spare: Callable[[Half], None]) -> Compiled:
        with ThreadPoolExecutor(2) as pool:
            device = pool.submit(self._run, DEVICE, spare, ("ptxas", "fatbinary"))
            host = pool.submit(self._run, HOST, spare, ())
            # nvcc runs the host's half first, so its words are those that count.
            halves = [host.result(), device.result()]
        for half in halves:
            if half.failed:
                return half
        return self._finish()

    def _run(self, half: Half, spare: Callable[[Half], None], rest: Sequence[str]) -> Compiled:
        ran = None
        for name in (half.text, half.parser, *rest):
            if name == half.parser:
                spare(half)
            with self.work.watch.phase(name):
                ran = self.steps.run(name, self.scratch, self.work.deadline)
            if ran.status:
                return Compiled(failed=name, ran=ran, argv=self.steps.host_text_argv())
        return Compiled(ran=ran)

    def _spare(self, half: Half) -> None:
        """Let the half's text begin with a smaller one, where that is known to do."""
        file = self.steps.output(half.text)
        parts = cut(read(file))
        if parts is None:
            return
        known = self.work.toolkit.openings.find(half, self.steps, parts[0], self.source.path)
        if known is not None:
            known.replace(file, self.source.path, parts[1])
            self.openings[half] = known

    def _finish(self) -> Compiled:
        found = host_prefix(self.steps, self.scratch, self.own, self.source.path)
        ready = None
        if found is not None:
            opening = self.openings.get(HOST)
            text = opening.written if opening else found.text
            found = structs.replace(found, text=text)
            ready = self.work.toolkit.precompiled.find(found.compiler, list(found.flags), text)
            if opening or ready:
                found.replace(ready)
        with self.work.watch.phase("host g++"):
            ran = self.steps.run("host g++", self.scratch, self.work.deadline)
        return Compiled(
            failed="host g++" if ran.status else "",
            ran=ran,
            argv=self.steps.host_text_argv(),
            precompiled=ready is not None or found is None,
        )
