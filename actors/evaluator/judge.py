"""The judge: measures tasks and judges candidates, one at a time, and survives all of them.

It never imports torch or candidate code.  It holds one warm zygote and the standard of the task at
hand; whichever dies is replaced.  What a candidate does wrong is a `Verdict`, what is wrong with a
task is a `Problem`; `Unjudgeable` means that the world failed twice, `Unwanted` that nobody waits.
Several threads may ask; candidates are built ahead where that disturbs no clock (`builds`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.evaluator import baseline_store, baselines, findings
from actors.evaluator.at_hand import AtHand
from actors.evaluator.baseline_store import BaselineStore
from actors.evaluator.build import Built
from actors.evaluator.builds import Builds, Yard, ahead_of
from actors.evaluator.devices import inspection
from actors.evaluator.devices.card import Card
from actors.evaluator.devices.health import Health
from actors.evaluator.fastbuild.asked import compiles
from actors.evaluator.fastbuild.store import of_user
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.child import Unwanted
from actors.evaluator.isolation.nursery import Nursery, Unjudgeable
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.room import Room
from actors.evaluator.second_look import tried
from actors.evaluator.standard import Problem
from actors.evaluator.trial import MAX_SOURCE_BYTES, Trial
from actors.evaluator.turns import Turns
from actors.evaluator.wire.layout import describe
from actors.evaluator.wire.orders import Confinement
from protocol.settings import Limits, Rules
from protocol.values import Device, DeviceKind, Reference, Task, Verdict, Word

T = TypeVar("T")

CLOSE_S = 3.0


def never() -> bool:
    """The answer to "is it unwanted?" by hand."""
    return False


def silent(_words: str = "") -> None:
    """Say nothing."""


# After these a card is looked after: something ended that was not to end.
ABNORMAL = (Word.CRASHED, Word.TIMED_OUT, Word.OUT_OF_MEMORY)


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
        self._say = say
        self.scratch = Scratch(scratch_root)
        self._room = Room(self.scratch.root.parent)
        self.rules = rules
        self._baselines = BaselineStore(baseline_store.folder(dict(os.environ)))
        self.ahead = ahead_of(device) if ahead is None else ahead
        store = of_user(os.environ)
        self._grounds = Grounds(device, limits, hide, store if store.open() else None)
        hidden = self._grounds.hide
        self._builds = Builds(self._grounds, limits, say)
        self._nursery = Nursery(
            device, self.scratch.root, limits.output_kib * 1024, least=least, hide=hidden
        )
        beside = self.scratch.root.with_name(f"{self.scratch.root.name}-builds")
        self._yard = Yard(self._builds, limits, beside, least, hidden) if self.ahead else None
        self._standard = AtHand(self._nursery, self._grounds, self.scratch, rules.precision)
        self._card = Card(self._nursery, self._grounds, self.scratch)
        self._health = Health(self._nursery, self._grounds, self.scratch, self._card)
        self._turns = Turns()
        self._closing = False

    @property
    def zygote_pid(self) -> int | None:
        return self._nursery.pid

    @property
    def level(self) -> int:
        """The level of the sandbox that candidates are judged in."""
        return self._nursery.ready.level

    @property
    def device(self) -> Device:
        """What results are measured on; raises `Unjudgeable` where there is no such device."""
        return self._card.device

    # --- work --------------------------------------------------------------------------------

    def measure(self, task: Task, unwanted: Callable[[], bool] = never) -> Reference | Problem:
        """Measure a task's own module; raise `Unjudgeable` or `Unwanted`."""
        return self._twice(lambda: self._measure(task), unwanted)

    def prepare(self, sources: list[str]) -> None:
        """Prepare fast builds of `sources` beside what comes first, where that disturbs nothing."""
        if self._yard is not None and any(map(compiles, sources)):
            self._yard.prepare(sources, self._arch(never))

    def build(self, source: str, unwanted: Callable[[], bool] = never) -> Built | None:
        """Build a candidate ahead of its turn, on the caller's thread; `judge` wants it back.

        None where there is nothing to build, or builds take turns with measurements; `judge` builds
        then.  Raises `Unwanted`, or `Unjudgeable` when there is no such device.
        """
        if self._yard is None or not compiles(source) or len(source.encode()) > MAX_SOURCE_BYTES:
            return None
        return self._yard.build(source, self._arch(unwanted), unwanted)

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
    ) -> Verdict | Problem:
        """Judge one candidate; `on_running` is called right before its code is first judged.

        `reference` is not used for the ratio: the reference is timed again, in turn with the
        candidate.  `built` is used up; `profiled`: look at a correct one with the profiler, which
        takes seconds.  Raises `Unjudgeable` or `Unwanted`.
        """
        ready = [built] if built is not None and built.there else []

        def work() -> Verdict | Problem:
            # A second try must not find what the first one's runner left: it builds anew.
            return self._judge(
                task, source, on_running, doing, unwanted, ready.pop() if ready else None, profiled
            )

        try:
            return self._twice(work, unwanted)
        finally:
            if built is not None and self._yard is not None:
                self._yard.remove(built)

    def _twice(self, work: Callable[[], T], unwanted: Callable[[], bool]) -> T:
        """Do `work` in its turn; if the world fails, do it once more with everything fresh."""
        with self._turns.taken(lambda: self._insist(unwanted)):
            self._nursery.unwanted = lambda: self._closing or unwanted()
            try:
                return work()
            except Unjudgeable as error:
                self._say(f"begun again with everything fresh: {error}")
                self._reset()
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
        found = self._twice(lambda: self._inspect(task, source), unwanted)
        said = msgspec.structs.replace(verdict, profile={**(verdict.profile or {}), **found})
        errors = inspection.errors_in(found)
        if not errors:
            return said
        reason = f"compute-sanitizer's memcheck: {errors}"[:500]
        return msgspec.structs.replace(said, verdict=Word.WRONG, stage="check", reason=reason)

    def _inspect(self, task: Task, source: str) -> dict[str, str]:
        standard = self._standard.of(task)
        if isinstance(standard, Problem):
            return {}
        with ExitStack() as stack:

            def fresh() -> Confinement:
                building = self._builds.building(
                    source, self._nursery, self._fresh("tool", stack), self._card.arch, never
                )
                building.run(self.limits.build_s)
                return building.confinement

            return inspection.inspect(self._nursery, standard, source, fresh)

    def _measure(self, task: Task) -> Reference | Problem:
        standard = self._standard.of(task)
        if isinstance(standard, Problem):
            return standard
        facts = standard.facts
        compiled = self.rules.baselines == "all"
        found = baselines.of(standard, self.device, self._baselines, compiled=compiled)
        return Reference(
            eager_us=found.eager_us,
            compile_us=found.compile_us,
            max_autotune_us=found.max_autotune_us,
            device=self.device,
            inputs=describe(facts.inputs),
            outputs=describe(facts.outputs),
            notes=facts.notes,
        )

    def _judge(
        self,
        task: Task,
        source: str,
        on_running: Callable[[], None],
        doing: Callable[[str], None],
        unwanted: Callable[[], bool],
        built: Built | None,
        profiled: bool,
    ) -> Verdict | Problem:
        self._room.insist()
        standard = self._standard.of(task)
        if isinstance(standard, Problem):
            return standard
        with ExitStack() as stack:
            if built is None:
                folder = self._fresh("candidate", stack)
                building = self._builds.building(
                    source,
                    self._nursery,
                    folder,
                    self._card.arch,
                    lambda: self._closing or unwanted(),
                )
                confinement = building.confinement
                build: Callable[[float], Built] = building.run
            else:
                confinement = built.confinement
                build = lambda _limit_s: built  # noqa: E731
            self._health.before()

            def begin(there: Built | None) -> Trial:
                built_so = build if there is None else lambda _limit_s: there
                return Trial(
                    self._nursery, standard, self.limits, confinement, source, built_so, self._card
                )

            verdict, table = tried(begin, on_running, doing, self._say, profiled=profiled)
        self._room.insist_for(verdict.verdict, f"{verdict.reason} {verdict.log}")
        if verdict.verdict in ABNORMAL:
            self._health.after()
        early = built is not None and built.fault is not None
        starved = built.starved if built and early else self._nursery.starved
        starved = starved and verdict.verdict is Word.CRASHED
        verdict = findings.labelled(verdict, source, task.source, table, self.rules)
        return msgspec.structs.replace(
            verdict,
            verdict=Word.OUT_OF_MEMORY if starved else verdict.verdict,
            device=self.device.fingerprint,
            sandbox_level=self.level,
        )

    def _fresh(self, name: str, stack: ExitStack) -> Path:
        folder = self.scratch.fresh(name)
        stack.callback(self.scratch.remove, folder)
        return folder

    def _arch(self, unwanted: Callable[[], bool]) -> str:
        """Return what CUDA is built for; the first time the device is asked, in its turn."""
        return (
            self._card.arch if self._card.known else self._twice(lambda: self._card.arch, unwanted)
        )

    def _reset(self) -> None:
        self._standard.drop()
        self._nursery.stop()

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
                self._reset()
                self.scratch.close()
        except Unwanted:
            return


def _insist_until(until: float) -> None:
    if time.monotonic() > until:
        raise Unwanted


__all__ = ["Judge", "Problem", "Unjudgeable", "Unwanted"]
