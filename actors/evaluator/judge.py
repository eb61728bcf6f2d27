"""The judge: measures tasks and judges candidates, one at a time, and survives all of them.

It never imports torch or candidate code.  What a candidate does wrong is a `Verdict`, what is wrong
with a task is a `Problem`; `Unjudgeable` means that the world failed twice, `Unwanted` that nobody
waits.  Several threads may ask: they get the bench in their order, and candidates are built ahead
where that disturbs no clock (`builds`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.evaluator.bench import Bench
from actors.evaluator.build import NO_MODULES, Built
from actors.evaluator.builds import Builds, Yard, ahead_of
from actors.evaluator.devices import inspection
from actors.evaluator.fastbuild.asked import compiles
from actors.evaluator.fastbuild.store import of_user
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.child import Unwanted
from actors.evaluator.isolation.nursery import Unjudgeable
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.standard import Problem, silent
from actors.evaluator.trial import MAX_SOURCE_BYTES
from actors.evaluator.turns import Turns
from protocol.release import Release
from protocol.settings import Limits, Rules
from protocol.values import Device, DeviceKind, Reference, Task, Verdict, Word

T = TypeVar("T")

CLOSE_S = 3.0


def never() -> bool:
    """The answer to "is it unwanted?" by hand."""
    return False


RULES = Rules()


class Judge:
    """One device's judge."""

    def __init__(
        self,
        device: DeviceKind,
        limits: Limits,
        scratch_root: Path,
        *,
        hide: tuple[Path, ...] = (),
        rules: Rules = RULES,
        least: int = 0,
        ahead: int | None = None,
        say: Callable[[str], None] = silent,
    ) -> None:
        """`ahead`: how many builds may run beside measurements; `say` hears what a log should."""
        self.kind = device
        self.limits = limits
        self.scratch = Scratch(scratch_root)
        self.ahead = ahead_of(device) if ahead is None else ahead
        self._say = say
        store = of_user(os.environ)
        grounds = Grounds(device, limits, hide, store if store.open() else None)
        builds = Builds(grounds, limits, say)
        self.bench = Bench(grounds, builds, self.scratch, rules, say, least=least)
        beside = self.scratch.root.with_name(f"{self.scratch.root.name}-builds")
        self._yard = Yard(builds, limits, beside, least, grounds.hide) if self.ahead else None
        self._turns = Turns()
        self._closing = False

    @property
    def zygote_pid(self) -> int | None:
        return self.bench.nursery.pid

    @property
    def level(self) -> int:
        """The level of the sandbox that candidates are judged in."""
        return self.bench.nursery.ready.level

    @property
    def device(self) -> Device:
        """What results are measured on; raises `Unjudgeable` where there is no such device."""
        return self.bench.card.device

    # --- work --------------------------------------------------------------------------------

    def measure(
        self,
        task: Task,
        unwanted: Callable[[], bool] = never,
        doing: Callable[[str], None] = silent,
    ) -> Reference | Problem:
        """Measure a task's own module; raise `Unjudgeable` or `Unwanted`."""
        return self._twice(lambda: self.bench.measure(task, doing), unwanted)

    def prepare(self, sources: list[str]) -> None:
        """Prepare fast builds of `sources` beside what comes first, where that disturbs nothing."""
        if self._yard is not None and any(map(compiles, sources)):
            self._yard.prepare(sources, self._arch(never))

    def build(
        self,
        source: str,
        unwanted: Callable[[], bool] = never,
        modules: Mapping[str, str] = NO_MODULES,
    ) -> Built | None:
        """Build a candidate ahead of its turn, on the caller's thread; `judge` wants it back.

        None where there is nothing to build, or builds take turns with measurements; `judge` builds
        then.  Raises `Unwanted`, or `Unjudgeable` when there is no such device.
        """
        if self._yard is None or not compiles(source) or len(source.encode()) > MAX_SOURCE_BYTES:
            return None
        return self._yard.build(source, self._arch(unwanted), unwanted, modules)

    def judge(
        self,
        task: Task,
        source: str,
        reference: Reference | None = None,
        on_running: Callable[[], None] = silent,
        doing: Callable[[str], None] = silent,
        unwanted: Callable[[], bool] = never,
        built: Built | None = None,
        *,
        profiled: bool = False,
        written: str = "",
    ) -> Verdict | Problem:
        """Judge one candidate; `on_running` is called right before its code is first judged.

        `reference` is not used for the ratio: the reference is timed again, in turn with the
        candidate.  `built` is used up; `profiled`: look at a correct one with the profiler, which
        takes seconds; `written`: what labels are read off, where `source` is a drop-in file around
        it.  Raises `Unjudgeable` or `Unwanted`.
        """
        ready = [built] if built is not None and built.there else []

        def gone() -> bool:
            return self._closing or unwanted()

        def work() -> Verdict | Problem:
            # A second try must not find what the first one's runner left: it builds anew.
            first = ready.pop() if ready else None
            return self.bench.judge(
                task,
                source,
                on_running,
                doing,
                gone,
                first,
                profiled=profiled,
                written=written or source,
            )

        try:
            return self._twice(work, unwanted)
        finally:
            if built is not None and self._yard is not None:
                self._yard.remove(built)

    def release(
        self,
        task: Task,
        source: str,
        doing: Callable[[str], None] = silent,
        unwanted: Callable[[], bool] = never,
    ) -> Release | Problem:
        """Check a winner as a drop-in file; raise `Unjudgeable` or `Unwanted`."""
        return self._twice(lambda: self.bench.release(task, source, doing), unwanted)

    def _twice(self, work: Callable[[], T], unwanted: Callable[[], bool]) -> T:
        """Do `work` in its turn; if the world fails, do it once more with everything fresh."""
        with self._turns.taken(lambda: self._insist(unwanted)):
            self.bench.nursery.unwanted = lambda: self._closing or unwanted()
            try:
                return work()
            except Unjudgeable as error:
                self._say(f"begun again with everything fresh: {error}")
                self.bench.renew()
                return work()

    def _insist(self, unwanted: Callable[[], bool]) -> None:
        if self._closing or unwanted():
            raise Unwanted

    def inspect(
        self, task: Task, source: str, verdict: Verdict, unwanted: Callable[[], bool] = never
    ) -> Verdict:
        """Look at a winner with the maker's tools; out-of-bounds accesses make it `wrong`.

        One without a kernel of its own is spared that: there is nothing of its own to look at.
        """
        labels = (verdict.profile or {}).get("labels", "")
        if self.kind == "cpu" or not verdict.correct or "library_only" in labels:
            return verdict
        found = self._twice(lambda: self.bench.inspect(task, source), unwanted)
        said = msgspec.structs.replace(verdict, profile={**(verdict.profile or {}), **found})
        errors = inspection.errors_in(found)
        if not errors:
            return said
        reason = f"compute-sanitizer's memcheck: {errors}"[:500]
        return msgspec.structs.replace(said, verdict=Word.WRONG, stage="check", reason=reason)

    def _arch(self, unwanted: Callable[[], bool]) -> str:
        """Return what CUDA is built for; the first time the device is asked, in its turn."""
        card = self.bench.card
        return card.arch if card.known else self._twice(lambda: card.arch, unwanted)

    def close(self) -> None:
        """End everything and remove the scratch folder; may be called from another thread.

        If work is under way and does not stop at once, the end of this process ends the children.
        """
        self._closing = True
        if self._yard is not None:
            self._yard.close()
        until = time.monotonic() + CLOSE_S
        try:
            with self._turns.taken(lambda: _insist_until(until)):
                self.bench.renew()
                self.scratch.close()
        except Unwanted:
            return


def _insist_until(until: float) -> None:
    if time.monotonic() > until:
        raise Unwanted


__all__ = ["Judge", "Problem", "Unjudgeable", "Unwanted"]
