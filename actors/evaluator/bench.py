"""The judge's bench: what stands ready for one device, and what is done on it in one turn.

A warm zygote, the standard of the task at hand, the card and its health.  Whoever uses it has it
alone (`Judge` sees to that); what broke is replaced by `renew`.  Raises `Unjudgeable` when the
world is at fault and `Unwanted` when nobody waits any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from actors.evaluator import baseline_store, baselines, findings
from actors.evaluator.at_hand import AtHand
from actors.evaluator.baseline_store import BaselineStore
from actors.evaluator.build import Built
from actors.evaluator.builds import Builds
from actors.evaluator.devices import inspection
from actors.evaluator.devices.card import Card
from actors.evaluator.devices.health import Health
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.nursery import Nursery
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.proofs import Claim
from actors.evaluator.room import Room
from actors.evaluator.second_look import tried
from actors.evaluator.standard import Problem
from actors.evaluator.trial import Trial
from actors.evaluator.wire.layout import describe
from actors.evaluator.wire.orders import Confinement
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

    def measure(self, task: Task) -> Reference | Problem:
        """Measure a task's own module."""
        standard = self.standard.of(task)
        if isinstance(standard, Problem):
            return standard
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
    ) -> Verdict | Problem:
        """Judge one candidate, which may be `built` already."""
        self._room.insist()
        standard = self.standard.of(task)
        if isinstance(standard, Problem):
            return standard
        with ExitStack() as stack:
            if built is None:
                folder = self._fresh("candidate", stack)
                building = self._builds.building(
                    source, self.nursery, folder, self.card.arch, unwanted
                )
                confinement = building.confinement
                build: Callable[[float], Built] = building.run
            else:
                confinement = built.confinement
                build = lambda _limit_s: built  # noqa: E731
            self._health.before()

            def begin(there: Built | None, earlier: Sequence[Claim]) -> Trial:
                return Trial(
                    self.nursery,
                    standard,
                    self.grounds.limits,
                    confinement,
                    source,
                    build if there is None else lambda _limit_s: there,
                    self.card,
                    earlier,
                )

            verdict, table = tried(begin, on_running, doing, self._say, profiled=profiled)
        self._room.insist_for(verdict.verdict, f"{verdict.reason} {verdict.log}")
        if verdict.verdict in ABNORMAL:
            self._health.after()
        early = built is not None and built.fault is not None
        starved = built.starved if built and early else self.nursery.starved
        starved = starved and verdict.verdict is Word.CRASHED
        verdict = findings.labelled(verdict, source, task.source, table, self._rules)
        return msgspec.structs.replace(
            verdict,
            verdict=Word.OUT_OF_MEMORY if starved else verdict.verdict,
            device=self.card.device.fingerprint,
            sandbox_level=self.nursery.ready.level,
        )

    def inspect(self, task: Task, source: str) -> dict[str, str]:
        """Return what the maker's tools say of a candidate."""
        standard = self.standard.of(task)
        if isinstance(standard, Problem):
            return {}
        with ExitStack() as stack:

            def fresh() -> Confinement:
                building = self._builds.building(
                    source, self.nursery, self._fresh("tool", stack), self.card.arch, lambda: False
                )
                building.run(self.grounds.limits.build_s)
                return building.confinement

            return inspection.inspect(self.nursery, standard, source, fresh)

    def _fresh(self, name: str, stack: ExitStack) -> Path:
        folder = self.scratch.fresh(name)
        stack.callback(self.scratch.remove, folder)
        return folder
