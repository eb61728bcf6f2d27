"""The ledger that agents see: all attempts of a task, as they were when work was decided on.

Work that is leased again, or rebuilt from a stored run, shows the same ledger: it follows from the
decisions that came before the work's own, and from the nodes that were recorded by then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Literal

from actors.coordinator.search.attempt_stages import JUDGED_STAGES, WRITING_STAGE, Stage
from actors.coordinator.search.tree import ROOT
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.store import Store
from protocol.values import AttemptView, LedgerEntry

MAX_ENTRIES = 60  # recorded attempts in a request, the latest ones
MAX_UNDER_WAY = 200  # attempt numbers back in which those under way are looked for
MAX_IDEA_CHARS = 700
SHOWS_BEST = (Stage.PLAN, Stage.SOLVE)  # the stages of which the agent sees the fastest source
# What the ledger calls the stages after the plan.
SHOWN_STAGES: dict[Stage, Literal["write", "judge"]] = {
    Stage.WRITE: "write",
    Stage.REPAIR: "write",
    **dict.fromkeys(WRITING_STAGE, "write"),
    **dict.fromkeys(JUDGED_STAGES, "judge"),
}
View = Callable[[str, int, int], AttemptView]  # (task, node, order): a node as it was then


@dataclass(frozen=True)
class Ledger:
    """What one request shows of all attempts."""

    entries: tuple[LedgerEntry, ...] = ()
    left_out: int = 0  # older attempts
    best: int | None = None  # the fastest recorded node but the root


@dataclass
class RecordedOrder:
    """The nodes of a task in the order in which they were recorded."""

    last_row: int = 0
    numbers: list[int] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)  # of a node in `numbers`


class AttemptLedger:
    """Makes ledgers from the store."""

    def __init__(
        self,
        store: Store,
        decisions: DecisionStore,
        view: View,
        rejected: Callable[[str], Container[int]],
    ) -> None:
        """`rejected`: the nodes of a task that a person rejected, now or later."""
        self._store = store
        self._rejected = rejected
        self._decisions = decisions
        self._view = view
        self._recorded: dict[str, RecordedOrder] = {}

    def node_changed(self) -> None:
        """Read recorded nodes anew: a confirmation or a person has changed one."""
        self._recorded.clear()

    def ledger(self, task: str, number: int, stage: Stage) -> Ledger:
        """Return the ledger for one stage of an attempt; empty for runs of older versions."""
        place = self._decisions.place_of(task, number, stage)
        if place is None:
            return Ledger()
        known = self._recorded_order(task)
        shown = known.numbers[: place.recorded]
        # A node's view depends on the order only where a person rejected it.
        entries = [self._recorded_entry(task, n, place.order) for n in shown[-MAX_ENTRIES:]]
        entries += self._under_way(task, number, place.order, place.recorded, known)
        return Ledger(
            entries=tuple(sorted(entries, key=lambda entry: entry.number)),
            left_out=max(0, len(shown) - MAX_ENTRIES),
            best=self._best(task, shown, known, place.order) if stage in SHOWS_BEST else None,
        )

    def _recorded_order(self, task: str) -> RecordedOrder:
        known = self._recorded.setdefault(task, RecordedOrder())
        for row, number, score_us in self._store.recorded_scores(task, known.last_row):
            known.last_row = row
            known.place[number] = len(known.numbers)
            known.numbers.append(number)
            known.scores.append(score_us)
        return known

    def _recorded_entry(self, task: str, number: int, order: int) -> LedgerEntry:
        node = self._view(task, number, order)
        facts = node.verdict.facts
        return LedgerEntry(
            number=number,
            parent=node.parent or ROOT,
            idea=node.advice[:MAX_IDEA_CHARS],
            outcome=node.verdict.verdict,
            score_us=node.score_us,
            reason="" if node.verdict.is_correct else node.verdict.reason[:MAX_IDEA_CHARS],
            units=facts.unit_shares if facts is not None else (),
        )

    def _under_way(
        self, task: str, own: int, order: int, recorded: int, known: RecordedOrder
    ) -> Iterator[LedgerEntry]:
        """Yield the attempts that had begun and had no node yet, without the one of the work."""
        begun = self._decisions.begun_before(task, order)
        for number in range(max(1, begun - MAX_UNDER_WAY), begun + 1):
            if number == own or known.place.get(number, recorded) < recorded:
                continue
            stages = self._decisions.stages_before(task, number, order)
            if not stages:
                continue
            parent, latest = stages[-1].parent, stages[-1].stage
            has_plan = latest is not Stage.PLAN and latest is not Stage.SOLVE
            yield LedgerEntry(
                number=number,
                parent=parent,
                idea=self._store.advice(task, number)[:MAX_IDEA_CHARS] if has_plan else "",
                stage=SHOWN_STAGES.get(latest, "plan"),
            )

    def _best(self, task: str, shown: list[int], known: RecordedOrder, order: int) -> int | None:
        """Return the fastest of the nodes that were recorded then; of equals the oldest."""
        rejected = self._rejected(task)
        scores = (
            (self._view(task, number, order).score_us if number in rejected else score, place)
            for place, (number, score) in enumerate(zip(shown, known.scores, strict=False))
        )
        best = min(((s, place) for s, place in scores if s is not None), default=None)
        return None if best is None else shown[best[1]]
