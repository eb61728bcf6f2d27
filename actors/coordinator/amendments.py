"""Amendments: a candidate that fails before it is timed goes back to its agent, once.

The first stages of an evaluation are the check: a candidate that builds, loads and is correct is
timed under the same lease and costs nothing more.  One that fails is not a node yet.  Its agent
gets the judge's text in the same conversation, and the mended candidate is judged as the attempt.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.coordinator.gateway.work_messages import work_id
from actors.coordinator.search.attempt_stages import WRITING_STAGE, Stage
from actors.coordinator.search.search_events import CheckFailed
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.store import Store
from protocol.values import FailedCandidate, Outcome, Verdict

# A rejection is not among them: no agent is told in private how to get past the judge.
MENDABLE = (
    Outcome.COMPILE_FAILED,
    Outcome.WRONG,
    Outcome.CRASHED,
    Outcome.TIMED_OUT,
    Outcome.OUT_OF_MEMORY,
)
CHECKED_IN = ("build", "import", "check")


class Amendments:
    """The candidates of a run that are mended before they are nodes."""

    def __init__(
        self, store: Store, activity: ActivityStore, decisions: DecisionStore, *, is_on: bool
    ) -> None:
        self._store = store
        self._activity = activity
        self._decisions = decisions
        self._is_on = is_on

    def begin(self, task: str, number: int, stage: Stage, verdict: Verdict) -> CheckFailed | None:
        """Record a candidate that its agent is to mend; None where the verdict stands."""
        if not self._is_on or stage is not Stage.EVALUATE:
            return None
        if verdict.verdict not in MENDABLE or verdict.stage not in CHECKED_IN:
            return None
        writing = self._writing_stage(task, number)
        candidate = self._store.candidate(task, number)
        if writing is None or candidate is None:
            return None
        calls = self._activity.calls(work_id(task, number, writing))
        failed = FailedCandidate(
            source=candidate.source, reply=calls[-1].reply if calls else "", verdict=verdict
        )
        self._store.save_failed_candidate(task, number, failed)
        return CheckFailed(number, writing)

    def first_verdict(self, task: str, number: int, stage: Stage) -> Verdict | None:
        """Return the verdict that stands when an agent could not mend its candidate."""
        failed = self._store.failed_candidate(task, number) if stage in WRITING_STAGE else None
        return None if failed is None else failed.verdict

    def with_first_failure(self, task: str, number: int, stage: Stage, verdict: Verdict) -> Verdict:
        """Return a verdict that says why the attempt's first candidate failed, if one did."""
        failed = self._store.failed_candidate(task, number) if stage is Stage.REEVALUATE else None
        if failed is None:
            return replace(verdict, amended="")
        first = failed.verdict
        word = first.verdict.replace("_", " ")
        return replace(verdict, amended=f"{word}: {first.reason}".rstrip(": "))

    def _writing_stage(self, task: str, number: int) -> Stage | None:
        """Return the stage that wrote an attempt's candidate; None: it is a person's."""
        return next(
            (
                writing
                for writing in WRITING_STAGE.values()
                if self._decisions.place_of(task, number, writing) is not None
            ),
            None,
        )
