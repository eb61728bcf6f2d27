"""The judge's bench: what stands ready for one device, and what is done on it in one turn.

A warm zygote, the standard of the task at hand, the card and its health.  Whoever uses it has it
alone (`Judge` sees to that); what broke is replaced by `renew`.  Raises `Unjudgeable` when the
world is at fault and `Unwanted` when nobody waits any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from actors.evaluator import baseline_store, baselines, findings
from actors.evaluator.at_hand import AtHand
from actors.evaluator.baseline_store import BaselineStore
from actors.evaluator.build import Building, Built
from actors.evaluator.builds import Builds
from actors.evaluator.devices import inspection
from actors.evaluator.devices.card import Card
from actors.evaluator.devices.health import Health
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.nursery import Nursery
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.proofs import Claim
from actors.evaluator.release_stage import ReleaseStage
from actors.evaluator.room import Room
from actors.evaluator.second_look import tried
from actors.evaluator.standard import Problem, Standard
from actors.evaluator.trial import Trial
from actors.evaluator.wire.layout import describe
from actors.evaluator.wire.orders import Confinement
from protocol.release import Release
from protocol.settings import Rules
from protocol.values import Reference, Task, Verdict, Word

# After these a card is looked after: something ended that was not to end.
ABNORMAL = (Word.CRASHED, Word.TIMED_OUT, Word.OUT_OF_MEMORY)


class Bench:
    """One device's bench."""

    def __init__(
        self,
        grounds: Grounds,
        builds: Builds,
        scratch: Scratch,
        rules: Rules,
        say: Callable[[str], None],
        *,
        least: int,
    ) -> None:
        """`least`: the level of the sandbox below which nothing is judged."""
        self.scratch = scratch
        self.grounds = grounds
        self.nursery = Nursery(
            grounds.kind,
            scratch.root,
            grounds.limits.output_kib * 1024,
            least=least,
            hide=grounds.hide,
        )
        self.standard = AtHand(self.nursery, grounds, scratch, rules.precision)
        self.card = Card(self.nursery, grounds, scratch)
        self._health = Health(self.nursery, grounds, scratch, self.card)
        self._room = Room(scratch.root.parent)
        self._builds = builds
        self._baselines = BaselineStore(baseline_store.folder(dict(os.environ)))
        self._rules = rules
        self._say = say

    def renew(self) -> None:
        """End what stands here; the next turn begins with everything fresh."""
        self.standard.drop()
        self.nursery.stop()

    def measure(self, task: Task, doing: Callable[[str], None]) -> Reference | Problem:
        """Measure a task's own module."""
        standard = self.standard.of(task, doing)
        if isinstance(standard, Problem):
            return standard
        doing("measuring")
        facts = standard.facts
        compiled = self._rules.baselines == "all"
        found = baselines.of(standard, self.card.device, self._baselines, compiled=compiled)
        standard.took(found.eager_us)
        return Reference(
            eager_us=found.eager_us,
            compile_us=found.compile_us,
            max_autotune_us=found.max_autotune_us,
            device=self.card.device,
            inputs=describe(facts.inputs),
            outputs=describe(facts.outputs),
            notes=facts.notes,
            judged=standard.judged,
        )

    def judge(
        self,
        task: Task,
        source: str,
        on_running: Callable[[], None],
        doing: Callable[[str], None],
        unwanted: Callable[[], bool],
        built: Built | None,
        *,
        profiled: bool,
        written: str,
    ) -> Verdict | Problem:
        """Judge one candidate, which may be `built` already; labels are read off `written`."""
        self._room.insist()
        standard = self.standard.of(task, doing)
        if isinstance(standard, Problem):
            return standard
        with ExitStack() as stack:
            made = built or self._building("candidate", source, stack, unwanted, task.modules)
            self._health.before()
            begin = self._trials(standard, source, made)
            verdict, table = tried(begin, on_running, doing, self._say, profiled=profiled)
        self._room.insist_for(verdict.verdict, f"{verdict.reason} {verdict.log}")
        if verdict.verdict in ABNORMAL:
            self._health.after()
        if self._starved(verdict, built):
            verdict = msgspec.structs.replace(verdict, verdict=Word.OUT_OF_MEMORY)
        return msgspec.structs.replace(
            findings.labelled(verdict, written, task.source, table, self._rules),
            device=self.card.device.fingerprint,
            sandbox_level=self.nursery.ready.level,
        )

    def _trials(
        self, standard: Standard, source: str, made: Building | Built
    ) -> Callable[[Built | None, Sequence[Claim]], Trial]:
        """Return what begins a trial: the first builds, unless that was done; later ones do not."""

        def begin(there: Built | None, earlier: Sequence[Claim]) -> Trial:
            ready = there or made
            return Trial(
                self.nursery,
                standard,
                self.grounds.limits,
                made.confinement,
                source,
                (lambda _limit_s: ready) if isinstance(ready, Built) else ready.run,
                self.card,
                earlier,
            )

        return begin

    def _starved(self, verdict: Verdict, built: Built | None) -> bool:
        """Whether it was killed for want of memory: here, or where it was built before."""
        if verdict.verdict is not Word.CRASHED:
            return False
        return built.starved if built and built.fault else self.nursery.starved

    def release(self, task: Task, source: str, doing: Callable[[str], None]) -> Release | Problem:
        """Check a winner as a drop-in file."""
        standard = self.standard.of(task)
        if isinstance(standard, Problem):
            return standard
        with ExitStack() as stack:

            def building(name: str, text: str) -> Building:
                folder = name.replace(" ", "-")
                return self._building(folder, text, stack, lambda: False, task.modules)

            release = ReleaseStage(self.nursery, standard, building, doing).run(source)
        if any("SIG" in why or "no answer" in why for why in release.failed.values()):
            self._health.after()
        return release

    def inspect(self, task: Task, source: str) -> dict[str, str]:
        """Return what the maker's tools say of a candidate."""
        standard = self.standard.of(task)
        if isinstance(standard, Problem):
            return {}
        with ExitStack() as stack:

            def fresh() -> Confinement:
                building = self._building("tool", source, stack, lambda: False, task.modules)
                building.run(self.grounds.limits.build_s)
                return building.confinement

            return inspection.inspect(self.nursery, standard, source, fresh)

    def _building(
        self,
        name: str,
        source: str,
        stack: ExitStack,
        unwanted: Callable[[], bool],
        modules: Mapping[str, str],
    ) -> Building:
        """Return what builds a candidate in a fresh folder, which goes with `stack`."""
        folder = self.scratch.fresh(name)
        stack.callback(self.scratch.remove, folder)
        return self._builds.building(
            source, self.nursery, folder, self.card.arch, unwanted, modules
        )
