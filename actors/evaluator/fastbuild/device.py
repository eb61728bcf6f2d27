"""CUDA sources: nvcc's steps run by us, the device's half beside the host's."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from actors.evaluator.fastbuild import nvcc, tree
from actors.evaluator.fastbuild.blame import Failure
from actors.evaluator.fastbuild.commands import Compilation, with_folders_first
from actors.evaluator.fastbuild.family import canonical
from actors.evaluator.fastbuild.nvcc import Steps
from actors.evaluator.fastbuild.precompiled import digest
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
END_MARK = "/stark/common_end.h"
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


def compile_source(work: Workplace, compilation: Compilation, source: Source) -> Compiled:
    """Compile one CUDA source to the compilation's output under the workplace's folder."""
    own = work.folder / Path(source.path).name
    own.mkdir(parents=True, exist_ok=True)
    folders = _folders(work.toolkit, source, own)
    argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
    argv += ["-c", source.path, "-o", str(work.folder / compilation.output)]
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

    def compile(self) -> Compiled:
        self._name_module()
        with ThreadPoolExecutor(2) as pool:
            device = pool.submit(self._run, ("device text", "cicc", "ptxas", "fatbinary"))
            host = pool.submit(self._run, ("host text", "cudafe++"))
            # nvcc runs the host's half first, so its words are those that count.
            halves = [host.result(), device.result()]
        for half in halves:
            if half.failed:
                return half
        return self._finish()

    def _name_module(self) -> None:
        """Write the name that cudafe++ would write for cicc, so that neither waits."""
        stem = re.sub(r"\W", "_", Path(self.source.path).name)
        word = digest(self.source.text)
        name = f"_{word[:8]}_{len(stem)}_{stem}_{word[8:16]}"
        (self.scratch / self.steps.module_file).write_text(name, encoding="ascii")

    def _run(self, names: Sequence[str]) -> Compiled:
        ran = None
        for name in names:
            command = self.steps.commands[name].replace(" --gen_module_id_file", "")
            with self.work.watch.phase(name):
                ran = self.steps.run(name, self.scratch, self.work.deadline, command)
            if ran.status:
                return Compiled(failed=name, ran=ran, argv=self.steps.host_text_argv())
        return Compiled(ran=ran)

    def _finish(self) -> Compiled:
        found = host_prefix(self.steps, self.scratch, self.own, self.source.path)
        command = self.steps.commands["host g++"]
        ready = None
        if found is not None:
            ready = self.work.toolkit.precompiled.find(
                found.compiler, list(found.flags), found.text
            )
        if found is not None and ready is not None:
            found.replace(ready)
        with self.work.watch.phase("host g++"):
            ran = self.steps.run("host g++", self.scratch, self.work.deadline, command)
        return Compiled(
            failed="host g++" if ran.status else "",
            ran=ran,
            argv=self.steps.host_text_argv(),
            precompiled=ready is not None or found is None,
        )


class Prefix(Value, frozen=True, kw_only=True):
    """What cudafe++ writes for every candidate alike, before its own text."""

    file: str
    text: str
    rest: str
    compiler: str
    flags: tuple[str, ...]

    def replace(self, header_file: Path) -> None:
        """Let the file begin with the precompiled header instead."""
        Path(self.file).write_text(f'#include "{header_file}"\n{self.rest}', encoding="utf-8")


def host_prefix(steps: Steps, scratch: Path, own: Path, source: str) -> Prefix | None:
    """Return the common prefix of what cudafe++ wrote, or None when there is none."""
    words = shlex.split(steps.commands["host g++"])
    written = next((word for word in words if word.endswith(".cudafe1.cpp")), "")
    file = scratch / written
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    mark = text.find(f'{END_MARK}"')
    if mark < 0:
        return None
    start = text.rfind("\n#", 0, mark) + 1
    # The source lies elsewhere each time; the name of its file is all that the text says of it.
    prefix = re.sub(rf'"[^"\n]*{re.escape(Path(source).name)}"', '"candidate.cu"', text[:start])
    at = words.index("-o")
    flags = words[1:at] + words[at + 2 :]
    kept: list[str] = []
    rest = iter(flags)
    for word in rest:
        if word in ("-c", written):
            continue
        if word == "-x":
            next(rest)
        elif word == "-isystem":
            folder = next(rest)
            kept += [] if folder == str(own) else [word, folder]
        else:
            kept.append(word)
    return Prefix(
        file=str(file),
        text=prefix,
        rest=text[start:],
        compiler=words[0],
        flags=tuple(canonical(kept)),
    )


def precompile(work: Workplace, compilation: Compilation, source: Source) -> None:
    """Make the header that `compile_source` will look for with these flags."""
    own = work.folder / Path(source.path).name
    own.mkdir(parents=True, exist_ok=True)
    folders = _folders(work.toolkit, source, own)
    argv = [compilation.compiler, *with_folders_first(compilation.flags, folders)]
    argv += ["-c", source.path, "-o", str(work.folder / compilation.output)]
    steps = nvcc.plan(argv, work.folder, work.folder, work.deadline)
    if not isinstance(steps, Steps):
        return
    for name in ("host text", "cudafe++"):
        ran = steps.run(name, work.folder, work.deadline)
        if ran.status:
            return
    found = host_prefix(steps, work.folder, own, source.path)
    if found is not None:
        work.toolkit.precompiled.make(found.compiler, list(found.flags), found.text, work.deadline)
