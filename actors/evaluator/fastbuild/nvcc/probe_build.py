"""The build of a probe, from which trusted code prepares builds with the same flags.

It makes the precompiled header for g++, and the stripped preambles for nvcc's front ends; a
preamble is stored only if the probe's output stays the same with it.  Trusted code only.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from actors.evaluator.fastbuild.headers.header_tree import (
    PREAMBLE_FILE,
    preamble_header,
    write_file,
)
from actors.evaluator.fastbuild.nvcc.nvcc_compile import BuildContext
from actors.evaluator.fastbuild.nvcc.nvcc_headers import (
    CudaHeaders,
    nvcc_command,
    write_cuda_headers,
)
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import (
    END_MARK,
    HOST_HALF,
    CudafePrefix,
    NvccHalf,
    Preamble,
    PreambleCache,
    device_halves,
    host_prefix,
    read_text,
    split_preamble,
    write_text,
)
from actors.evaluator.fastbuild.nvcc.nvcc_steps import NvccSteps, plan_steps
from actors.evaluator.fastbuild.nvcc.preamble_snapshot import (
    HalfInput,
    PreambleSnapshot,
    store_preamble_snapshot,
)
from actors.evaluator.fastbuild.nvcc.text_process import text_without_bodies
from actors.evaluator.fastbuild.request.added_headers import are_long, launch_no_kernels
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand

# The headers of CUDA's parallel library, whose templates launch kernels and are called by them.
_PARALLEL_FILES = re.compile(r"/(?:cccl|thrust|cub|cuda|nv)/")


def learn_from_probe(
    context: BuildContext,
    compilation: CompileCommand,
    source: CandidateSource,
    added: tuple[str, ...] = (),
) -> None:
    """Store what `nvcc_compile.compile_cuda` can use for sources with these flags and headers."""
    own_folder = context.folder / Path(source.path).name
    own_folder.mkdir(parents=True, exist_ok=True)
    preamble = context.toolkit.preamble_folder(added)
    if added and not preamble.exists():
        _write_preamble(preamble, added)
    folders = write_cuda_headers(context.toolkit, source, own_folder, added)
    headers = CudaHeaders(folders=folders, added=added)
    argv = nvcc_command(compilation, source, headers, context.folder)
    steps = plan_steps(argv, context.folder, context.folder, context.deadline)
    if isinstance(steps, NvccSteps):
        steps.name_module(source)
        probe = _Probe(context, steps, own_folder, source, added)
        halves = device_halves(steps)
        with ThreadPoolExecutor(1 + len(halves)) as pool:
            running = [pool.submit(probe.host), *(pool.submit(probe.device, h) for h in halves)]
            for done in running:
                done.result()


def _write_preamble(folder: Path, added: tuple[str, ...]) -> None:
    """Write the preamble with `added` headers; its file gets its name when it is complete."""
    unfinished = folder / f".preamble.{os.getpid()}-{threading.get_ident()}"
    write_file(unfinished, preamble_header(added))
    (folder / PREAMBLE_FILE).parent.mkdir(parents=True, exist_ok=True)
    unfinished.replace(folder / PREAMBLE_FILE)


class _Probe:
    """A trusted source; each half of it is compiled with the whole and the stripped preamble."""

    def __init__(
        self,
        context: BuildContext,
        steps: NvccSteps,
        own_folder: Path,
        source: CandidateSource,
        added: tuple[str, ...],
    ) -> None:
        self.context = context
        self.steps = steps
        self.own_folder = own_folder
        self.source = source
        # Headers are worth a snapshot of the parsers that have read them if they take long.
        self.is_long = are_long(added)
        self.strips = launch_no_kernels(added)
        self.whole_files = None if self.strips else _PARALLEL_FILES
        self.cache = PreambleCache(context.toolkit)

    def host(self) -> None:
        if not self._run(HOST_HALF.text):
            return
        stored = self._stored(HOST_HALF)
        if stored is None and not self._run(HOST_HALF.parser):
            return
        if stored is not None:
            written = f'{stored.written}# 1 "{END_MARK}"\n'
            write_text(self.steps.output(HOST_HALF.parser), written)
        before = self._prefix()
        if before is None:
            return
        with ThreadPoolExecutor(1) as pool:
            header = pool.submit(
                self.context.toolkit.precompiled.make,
                *(before.compiler, list(before.flags), before.text, self.context.deadline),
            )
            if stored is None:
                self._learn(HOST_HALF, lambda: self._rest() == before.rest, before.text)
            header.result()

    def device(self, half: NvccHalf) -> None:
        if not self._run(half.text) or self._stored(half) or not self._run(half.parser):
            return
        code = self.steps.output(half.parser)
        before = code.read_bytes()
        self._learn(half, lambda: code.read_bytes() == before)

    def _learn(self, half: NvccHalf, is_same: Callable[[], bool], written: str = "") -> None:
        """Store the half's stripped preamble, then the half as one that goes on after it."""
        file, source = self.steps.output(half.text), self.source.path
        text = read_text(file)
        parts = split_preamble(text)
        if parts is None:
            return
        toolkit, deadline = self.context.toolkit, self.context.deadline
        stripped = text_without_bodies(parts[0], self.whole_files, deadline)
        if self.cache.find(half, self.steps, parts[0], source) is None:
            write_text(file, stripped + parts[1])
            if self._run(half.parser) and is_same():
                of_half = (half, self.steps, parts[0], source)
                self.cache.store(*of_half, stripped=stripped, written=written)
            write_text(file, text)
        if self.is_long:
            stripped = stripped if self.strips else ""
            given = self._input(half)
            store_preamble_snapshot(toolkit, given, deadline, is_same, written, stripped)

    def _input(self, half: NvccHalf) -> HalfInput:
        return HalfInput(
            half=half,
            steps=self.steps,
            scratch=self.context.folder,
            own_folder=self.own_folder,
            source=self.source.path,
        )

    def _rest(self) -> str:
        prefix = self._prefix()
        return prefix.rest if prefix else ""

    def _run(self, name: str) -> bool:
        return not self.steps.run(name, self.context.folder, self.context.deadline).status

    def _prefix(self) -> CudafePrefix | None:
        return host_prefix(self.steps, self.context.folder, self.own_folder, self.source.path)

    def _stored(self, half: NvccHalf) -> Preamble | None:
        """Return what other flags of the host have learnt; None if the half must be parsed."""
        parts = split_preamble(read_text(self.steps.output(half.text)))
        if parts is None:
            return None
        if self.is_long:
            snapshot = PreambleSnapshot.find(self.context.toolkit, self._input(half))
            if snapshot is None:
                return None
            snapshot.keep()
        return self.cache.find(half, self.steps, parts[0], self.source.path)
