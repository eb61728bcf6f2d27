"""What a verdict says besides its outcome: figures for people and agents, and labels.

Labels are heuristics about a candidate's text.  They never change an outcome, unless the user asked
for custom kernels only.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.evaluator.devices.sensors import SensorReading
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.labels import labels
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Timing
from protocol.settings import JudgeRules
from protocol.values import Outcome, Verdict

# Upper end of an interval / lower end, above which the verdict says that the groups do not tell how
# fast a candidate is.  The ends are printed all the same, up to `formatting.UNPRINTED_RATIO`.
IMPRECISE_RATIO = 4.0


def verdict_figures(
    timed: Timing,
    reading: SensorReading | None,
    share: float | None,
    notes: Sequence[str],
    timing_note: str = "",
) -> dict[str, str]:
    """Return the figures of a correct candidate: name -> text.

    `notes`: on its task; `timing_note`: on what timing could not find out.
    """
    found = {"timing": "; ".join(filter(None, (_timing_text(timed), timing_note)))}
    if reading is not None:
        found["clocks"] = reading.readable()
    if share is not None:
        within = "within" if share <= 1 else "outside of"
        found["KernelBench's tolerance"] = f"{within} it: {share:.3g} of what it allows"
    if notes:
        found["task"] = "; ".join(notes)
    return found


def with_labels(
    verdict: Verdict, source: str, reference: str, table: KernelProfile | None, rules: JudgeRules
) -> Verdict:
    """Return the verdict with its labels; rejected for them if the user wants that."""
    if not verdict.is_correct:
        return verdict
    # A table that was cut may lack the candidate's kernel: then only the text counts.
    kernels = [row.name for row in table.rows] if table is not None and not table.more else None
    found = labels.labels_of(source, reference=reference, kernels=kernels)
    if not found:
        return verdict
    profile = {**(verdict.profile or {}), "labels": ", ".join(found)}
    reason = labels.rejection_reason(found) if rules.require_custom_kernel else None
    if reason is None:
        return msgspec.structs.replace(verdict, profile=profile)
    return msgspec.structs.replace(
        verdict, verdict=Outcome.REJECTED, stage="check", reason=reason, profile=profile
    )


def _timing_text(timed: Timing) -> str:
    """Return how the times were measured, and what disturbed the measurement."""
    return f"{timed.groups} groups A B B A{_disturbed_groups(timed)}{_wider_interval(timed)}"


def _disturbed_groups(timed: Timing) -> str:
    parts = []
    if timed.disturbed_groups:
        parts.append(f", {timed.disturbed_groups} disturbed ones left out")
    if (waiting := timed.busy_groups - timed.throttled_groups) > 0:
        parts.append(f", {waiting} disturbed ones used: the machine was busy")
    if timed.throttled_groups:
        parts.append(f", {timed.throttled_groups} at clocks that the card had lowered")
    return "".join(parts)


def _wider_interval(timed: Timing) -> str:
    parts = []
    if timed.held_up_us:
        parts.append(
            f", against the reference's best time: in these groups it was held up, "
            f"{timed.held_up_us:.4g} µs a call"
        )
    if timed.slowed_us:
        parts.append(
            f", against the reference alone: beside the candidate it took "
            f"{timed.slowed_us:.4g} µs a call"
        )
    contention = max(timed.reference_contention, timed.candidate_contention)
    if contention > POLICY.disturbed_ratio:
        what = (
            f"the reference took {contention:.3g} times its best time"
            if timed.is_quiet
            else f"other programs used the machine: calls took up to {contention:.3g} times as long"
        )
        parts.append(f"; {what}, and the interval is wider by that")
    low, high = timed.ci95 or (1.0, 1.0)
    if high > IMPRECISE_RATIO * low:
        remedy = "" if timed.is_quiet else ": judge it again on a machine with less other work"
        parts.append(f"; the groups are too far apart to say how fast it is{remedy}")
    return "".join(parts)
