"""What trusted code learns from a probe about candidates with the same flags.  Trusted code only.

The header that g++ gets precompiled, and the openings that nvcc's front ends get without bodies:
these only if the same came out of the probe.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from actors.evaluator.fastbuild import nvcc_steps
from actors.evaluator.fastbuild.build_context import BuildContext
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import CompileCommand
from actors.evaluator.fastbuild.cudafe_prefix import CudafePrefix, host_prefix
from actors.evaluator.fastbuild.nvcc_compile import nvcc_command
from actors.evaluator.fastbuild.nvcc_preamble import (
    DEVICE_HALF,
    HOST_HALF,
    NvccHalf,
    read_text,
    split_preamble,
    write_text,
)
from actors.evaluator.fastbuild.nvcc_steps import NvccSteps
from actors.evaluator.fastbuild.strip_bodies import strip_bodies


def learn_from_probe(
    context: BuildContext, compilation: CompileCommand, source: CandidateSource
) -> None:
    """Make what `device.compile_cuda` will look for with these flags."""
    own = context.folder / Path(source.path).name
    own.mkdir(parents=True, exist_ok=True)
    argv = nvcc_command(context, compilation, source, own)
    steps = nvcc_steps.plan_steps(argv, context.folder, context.folder, context.deadline)
    if isinstance(steps, NvccSteps):
        steps.name_module(source)
        probe = _Probe(context, steps, own, source)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(probe.device), pool.submit(probe.host)]:
                done.result()


class _Probe:
    """A source of ours; each half of it is compiled twice."""

    def __init__(
        self, context: BuildContext, steps: NvccSteps, own: Path, source: CandidateSource
    ) -> None:
        self.context = context
        self.steps = steps
        self.own = own
        self.source = source

    def host(self) -> None:
        if not (self._run(HOST_HALF.text) and self._run(HOST_HALF.parser)):
            return
        before = self._prefix()
        if before is None:
            return
        text = self._unknown(HOST_HALF)
        if text:
            lean = self._put_lean(HOST_HALF, text)
            if (
                self._run(HOST_HALF.parser)
                and (after := self._prefix())
                and after.rest == before.rest
            ):
                self._keep(HOST_HALF, text, lean, written=before.text)
        self.context.toolkit.precompiled.make(
            before.compiler, list(before.flags), before.text, self.context.deadline
        )

    def device(self) -> None:
        text = self._unknown(DEVICE_HALF) if self._run(DEVICE_HALF.text) else ""
        if not text or not self._run(DEVICE_HALF.parser):
            return
        code = self.steps.output(DEVICE_HALF.parser)
        before = code.read_bytes()
        lean = self._put_lean(DEVICE_HALF, text)
        if self._run(DEVICE_HALF.parser) and code.read_bytes() == before:
            self._keep(DEVICE_HALF, text, lean)

    def _run(self, name: str) -> bool:
        return not self.steps.run(name, self.context.folder, self.context.deadline).status

    def _prefix(self) -> CudafePrefix | None:
        return host_prefix(self.steps, self.context.folder, self.own, self.source.path)

    def _unknown(self, half: NvccHalf) -> str:
        """Return how the half's text begins; "" where that is known, or nobody else's."""
        parts = split_preamble(read_text(self.steps.output(half.text)))
        preambles = self.context.toolkit.preambles
        if parts is None or preambles.find(half, self.steps, parts[0], self.source.path):
            return ""
        return parts[0]

    def _put_lean(self, half: NvccHalf, text: str) -> str:
        """Put what `text` is without bodies in its place, and return that."""
        file = self.steps.output(half.text)
        lean = strip_bodies(text, templates=half.templates)
        write_text(file, lean + read_text(file)[len(text) :])
        return lean

    def _keep(self, half: NvccHalf, text: str, lean: str, written: str = "") -> None:
        self.context.toolkit.preambles.store(
            half, self.steps, text, self.source.path, lean=lean, written=written
        )
