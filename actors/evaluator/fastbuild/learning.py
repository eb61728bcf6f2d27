"""What trusted code learns from a probe about candidates with the same flags.  Trusted code only.

The header that g++ gets precompiled, and the openings that nvcc's front ends get without bodies:
these only if the same came out of the probe.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from actors.evaluator.fastbuild import nvcc
from actors.evaluator.fastbuild.bodies import without_bodies
from actors.evaluator.fastbuild.commands import Compilation
from actors.evaluator.fastbuild.device import command_line
from actors.evaluator.fastbuild.nvcc import Steps
from actors.evaluator.fastbuild.openings import DEVICE, HOST, Half, cut, read, write
from actors.evaluator.fastbuild.prefix import Prefix, host_prefix
from actors.evaluator.fastbuild.source import Source
from actors.evaluator.fastbuild.workplace import Workplace


def learn(work: Workplace, compilation: Compilation, source: Source) -> None:
    """Make what `device.compile_source` will look for with these flags."""
    own = work.folder / Path(source.path).name
    own.mkdir(parents=True, exist_ok=True)
    argv = command_line(work, compilation, source, own)
    steps = nvcc.plan(argv, work.folder, work.folder, work.deadline)
    if isinstance(steps, Steps):
        steps.name_module(source)
        probe = _Probe(work, steps, own, source)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(probe.device), pool.submit(probe.host)]:
                done.result()


class _Probe:
    """A source of ours; each half of it is compiled twice."""

    def __init__(self, work: Workplace, steps: Steps, own: Path, source: Source) -> None:
        self.work = work
        self.steps = steps
        self.own = own
        self.source = source

    def host(self) -> None:
        if not (self._run(HOST.text) and self._run(HOST.parser)):
            return
        before = self._prefix()
        if before is None:
            return
        text = self._unknown(HOST)
        if text:
            lean = self._put_lean(HOST, text)
            if self._run(HOST.parser) and (after := self._prefix()) and after.rest == before.rest:
                self._keep(HOST, text, lean, written=before.text)
        self.work.toolkit.precompiled.make(
            before.compiler, list(before.flags), before.text, self.work.deadline
        )

    def device(self) -> None:
        text = self._unknown(DEVICE) if self._run(DEVICE.text) else ""
        if not text or not self._run(DEVICE.parser):
            return
        code = self.steps.output(DEVICE.parser)
        before = code.read_bytes()
        lean = self._put_lean(DEVICE, text)
        if self._run(DEVICE.parser) and code.read_bytes() == before:
            self._keep(DEVICE, text, lean)

    def _run(self, name: str) -> bool:
        return not self.steps.run(name, self.work.folder, self.work.deadline).status

    def _prefix(self) -> Prefix | None:
        return host_prefix(self.steps, self.work.folder, self.own, self.source.path)

    def _unknown(self, half: Half) -> str:
        """Return how the half's text begins; "" where that is known, or nobody else's."""
        parts = cut(read(self.steps.output(half.text)))
        openings = self.work.toolkit.openings
        if parts is None or openings.find(half, self.steps, parts[0], self.source.path):
            return ""
        return parts[0]

    def _put_lean(self, half: Half, text: str) -> str:
        """Put what `text` is without bodies in its place, and return that."""
        file = self.steps.output(half.text)
        lean = without_bodies(text, templates=half.templates)
        write(file, lean + read(file)[len(text) :])
        return lean

    def _keep(self, half: Half, text: str, lean: str, written: str = "") -> None:
        self.work.toolkit.openings.keep(
            half, self.steps, text, self.source.path, lean=lean, written=written
        )
