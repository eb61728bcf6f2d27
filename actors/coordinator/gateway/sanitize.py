"""Bounds for the values of a message: texts are cut, figures are brought into their ranges.  Pure.

An honest message comes back unchanged.  A result with impossible values becomes another result
(`rejected`, `ReplyUnusable`), so that the work is not leased again.  This is the one place that
decides which figures of an evaluator are possible.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from actors.coordinator.gateway.sanitize_facts import sanitized_facts
from actors.tune_space import MAX_VARIANTS
from protocol import messages
from protocol.values import (
    MAX_SHOWN_GROUPS,
    Call,
    CaseReference,
    CaseResult,
    Device,
    Outcome,
    Reference,
    Seconds,
    TimedGroups,
    VariantResult,
    Verdict,
)

MAX_CREDIT = 256
MAX_CASES = 64  # of one task
MAX_PID = 2**31 - 1
LINE_CHARS = 2_000  # a reason, an activity
NAME_CHARS = 500
LOG_CHARS = 256 * 1024
TEXT_CHARS = 4 * 1024 * 1024  # a prompt, a reply
SOURCE_CHARS = 1024 * 1024
TABLE_CHARS = 16 * 1024
MAX_ENTRIES = 256
MAX_US = 1e12  # eleven days a call
MAX_SPEEDUP = 1e6
# Between the interval of a ratio taken in turn and the ratio of two medians.
MAX_FIGURE_DISAGREEMENT = 20.0
MAX_USD = 10_000.0  # one call
MAX_TOKENS = 10**9
MAX_CALLS = 2**31  # of one process
IMPOSSIBLE_FIGURES = "an evaluator reported impossible figures"


def sanitized(message: messages.ToCoordinator, fingerprint: str) -> messages.ToCoordinator:
    """Return the message within bounds; `fingerprint` is that of its sender's device."""
    match message:
        case messages.Hello():
            return replace(
                message,
                pid=min(max(message.pid, 0), MAX_PID),
                credit=_credit(message.credit),
                device=message.device and _device(message.device),
            )
        case messages.Heartbeat():
            rtt_ms = message.rtt_ms
            return replace(
                message,
                credit=_credit(message.credit),
                activity=_line(message.activity),
                rtt_ms=rtt_ms if rtt_ms is not None and 0 <= rtt_ms <= MAX_US else None,
            )
        case messages.Evaluated():
            return replace(message, verdict=_verdict(message.verdict, fingerprint))
        case messages.ReferenceMeasured() | messages.BaselinesMeasured():
            return _measured(message, fingerprint)
        case messages.ReserveBudget() | messages.CallCompleted() | messages.ReplyUnusable():
            return _sanitized_call_message(message)
        case messages.Planned() | messages.Written() | messages.Repaired():
            return _sanitized_product(message)
        case messages.HandedBack():
            return replace(
                message,
                reason=_line(message.reason),
                lost_call_number=_number(message.lost_call_number),
                lost_call=message.lost_call and _call(message.lost_call),
            )
        case messages.CallsBlocked():
            return replace(message, reason=_line(message.reason))
        case messages.WorkerLost():
            return replace(message, exit_description=_line(message.exit_description))
    return message


# --- evaluators ----------------------------------------------------------------------------------


def is_plausible(verdict: Verdict) -> bool:
    """Whether a verdict's outcome, stage and figures can be true together."""
    figures: tuple[Verdict | CaseResult, ...] = (verdict, *verdict.cases)
    if not all(_has_possible_figures(one) for one in figures):
        return False
    match verdict.verdict:
        case Outcome.CORRECT:
            return not verdict.stage and _figures_agree(verdict)
        case Outcome.COMPILE_FAILED:
            return verdict.stage in ("", "build", "import")
        case Outcome.NO_CANDIDATE:
            return False  # an agent's result, not an evaluator's
    return True


def _has_possible_figures(measured: Verdict | CaseResult) -> bool:
    """Whether the figures of a verdict, or of one of its cases, are positive and in order."""
    figures = (measured.median_us, measured.reference_us, measured.speedup)
    if not all(figure is None or _positive(figure, MAX_US) for figure in figures):
        return False
    interval = measured.speedup_ci95
    return interval is None or (
        _positive(interval[0], MAX_US) and interval[0] <= interval[1] < math.inf
    )


def _figures_agree(verdict: Verdict) -> bool:
    median_us, reference_us, speedup = verdict.median_us, verdict.reference_us, verdict.speedup
    if median_us is None or speedup is None or speedup > MAX_SPEEDUP:
        return False
    if reference_us is None:
        return True
    # On a very busy machine blocks differ by factors of hundreds, and so does an honest interval.
    low, high = verdict.speedup_ci95 or (speedup, speedup)
    return all(
        low / MAX_FIGURE_DISAGREEMENT <= ratio <= high * MAX_FIGURE_DISAGREEMENT
        for ratio in (speedup, reference_us / median_us)
    )


def _verdict(verdict: Verdict, fingerprint: str) -> Verdict:
    if not is_plausible(verdict):
        return Verdict(
            verdict=Outcome.REJECTED,
            reason=IMPOSSIBLE_FIGURES,
            stage="time",
            device=_name(fingerprint),
        )
    error = verdict.max_error
    return replace(
        verdict,
        reason=_line(verdict.reason),
        max_error=error if error is not None and error >= 0 else None,
        log=_text(verdict.log, LOG_CHARS),
        profile=verdict.profile and _pairs(verdict.profile),
        seconds=_seconds(verdict.seconds),
        sandbox_level=min(max(verdict.sandbox_level, 0), 9),
        device=_name(fingerprint),
        gives_up_on="attempt",  # only agents give up
        groups=verdict.groups and _groups(verdict.groups),
        facts=sanitized_facts(verdict.facts),
        variants=tuple(map(_variant, verdict.variants[:MAX_VARIANTS])),
        variant=_place(verdict.variant, len(verdict.variants)),
        cases=tuple(replace(each, name=_name(each.name)) for each in verdict.cases[:MAX_CASES]),
    )


def _variant(result: VariantResult) -> VariantResult:
    figures = (result.median_us, result.speedup)
    median_us, speedup = (one if one and _positive(one, MAX_US) else None for one in figures)
    return replace(
        result,
        values=_pairs(result.values) or {},
        reason=_line(result.reason),
        median_us=median_us,
        speedup=speedup,
    )


def _place(place: int | None, count: int) -> int | None:
    return place if place is not None and 0 <= place < min(count, MAX_VARIANTS) else None


def _groups(groups: TimedGroups) -> TimedGroups | None:
    """Return the timed groups if all of them are possible; they decide nothing."""
    sides = (groups.reference_us, groups.candidate_us)
    counts = {len(side) for side in sides}
    if len(counts) != 1 or max(counts) > MAX_SHOWN_GROUPS:
        return None
    return groups if all(_positive(us, MAX_US) for side in sides for us in side) else None


def _measured(
    message: messages.ReferenceMeasured | messages.BaselinesMeasured, fingerprint: str
) -> messages.ToCoordinator:
    if isinstance(message, messages.BaselinesMeasured):
        return _baselines(message)
    reference = message.reference
    if reference is None or not _positive(reference.eager_us, MAX_US):
        problem = message.problem or "the reference has no usable time"
        return replace(message, reference=None, problem=_line(problem))
    return replace(
        message, reference=_reference(reference, fingerprint), problem=_line(message.problem)
    )


def _baselines(message: messages.BaselinesMeasured) -> messages.BaselinesMeasured:
    figures = (message.compile_us, message.max_autotune_us)
    compiled, tuned = (us if us and _positive(us, MAX_US) else None for us in figures)
    return replace(message, compile_us=compiled, max_autotune_us=tuned, note=_line(message.note))


def _reference(reference: Reference, fingerprint: str) -> Reference:
    others = (reference.compile_us, reference.max_autotune_us, reference.floor_us)
    compiled, tuned, floor = (us if us and _positive(us, MAX_US) else None for us in others)
    return replace(
        reference,
        compile_us=compiled,
        max_autotune_us=tuned,
        floor_us=floor,
        facts=sanitized_facts(reference.facts),
        device=replace(_device(reference.device), fingerprint=_name(fingerprint)),
        inputs=_line(reference.inputs),
        outputs=_line(reference.outputs),
        notes=tuple(_line(note) for note in reference.notes[:MAX_ENTRIES]),
        cases=_reference_cases(reference.cases),
        baselines_note="",
        baselines_decided=0,
    )


def _reference_cases(cases: tuple[CaseReference, ...]) -> tuple[CaseReference, ...]:
    """Return the cases of a reference; none where a time is impossible."""
    if len(cases) > MAX_CASES or not all(_positive(each.eager_us, MAX_US) for each in cases):
        return ()
    return tuple(
        replace(each, name=_name(each.name), inputs=_line(each.inputs), outputs=_line(each.outputs))
        for each in cases
    )


def _device(device: Device) -> Device:
    return replace(
        device,
        name=_name(device.name),
        fingerprint=_name(device.fingerprint),
        facts=_pairs(device.facts),
    )


def _seconds(seconds: Seconds) -> Seconds:
    spent = (seconds.build, seconds.check, seconds.time)
    return seconds if all(math.isfinite(part) and part >= 0 for part in spent) else Seconds()


# --- agents --------------------------------------------------------------------------------------


def _sanitized_call_message(
    message: messages.ReserveBudget | messages.CallCompleted | messages.ReplyUnusable,
) -> messages.ToCoordinator:
    if isinstance(message, messages.CallCompleted):
        return replace(message, call=_call(message.call))
    if isinstance(message, messages.ReplyUnusable):
        return replace(message, reason=_line(message.reason), reply=_text(message.reply))
    return replace(
        message,
        call_number=_number(message.call_number),
        lost_call_number=_number(message.lost_call_number),
        lost_call=message.lost_call and _call(message.lost_call),
        model=_name(message.model),
        request_key=_name(message.request_key),
        usd=_usd(message.usd),
    )


def _usd(usd: float | None) -> float | None:
    return usd if usd is not None and 0 <= usd <= MAX_USD else None


def _number(number: int) -> int:
    return min(max(number, 0), MAX_CALLS)


def _call(call: Call) -> Call:
    temperature = call.temperature
    return replace(
        call,
        model=_name(call.model),
        request=_text(call.request),
        reply=_text(call.reply),
        stop=_name(call.stop),
        temperature=temperature if temperature is not None and 0 <= temperature <= 100 else None,
        input_tokens=_tokens(call.input_tokens),
        cached_tokens=_tokens(call.cached_tokens),
        output_tokens=_tokens(call.output_tokens),
        effort=_name(call.effort),
        request_version=_name(call.request_version),
        cache_write_tokens=_tokens(call.cache_write_tokens),
        usd=_usd(call.usd),
        seconds=call.seconds if math.isfinite(call.seconds) and call.seconds >= 0 else 0.0,
    )


def _sanitized_product(
    message: messages.Planned | messages.Written | messages.Repaired,
) -> messages.ToCoordinator:
    plan = None if isinstance(message, messages.Repaired) else message.plan
    if plan is not None:
        sizes = (len(plan.scaffold), len(plan.advice), len(plan.spans))
        last = max((line for span in plan.spans for line in span), default=1)
        first = min((line for span in plan.spans for line in span), default=1)
        if max(sizes) > SOURCE_CHARS or first < 0 or last > SOURCE_CHARS:
            return messages.ReplyUnusable(lease=message.lease, reason="the plan is too large")
    if isinstance(message, messages.Planned):
        return message
    candidate = message.candidate
    if len(candidate.source) > SOURCE_CHARS:
        return messages.ReplyUnusable(lease=message.lease, reason="the candidate is too large")
    outside = tuple(_text(hunk, SOURCE_CHARS) for hunk in candidate.outside[:MAX_ENTRIES])
    edits = tuple(_text(edit, LINE_CHARS) for edit in candidate.edits[:MAX_ENTRIES])
    return replace(message, candidate=replace(candidate, outside=outside, edits=edits))


# --- single values -------------------------------------------------------------------------------


def _positive(figure: float, most: float) -> bool:
    return 0.0 < figure <= most  # False for NaN


def _credit(credit: int) -> int:
    return min(max(credit, 0), MAX_CREDIT)


def _tokens(tokens: int) -> int:
    return min(max(tokens, 0), MAX_TOKENS)


def _line(text: str) -> str:
    """Return one line that a terminal can show: no control characters."""
    if len(text) <= LINE_CHARS and text.isprintable():
        return text
    cut = text[:LINE_CHARS]
    return "".join(char if char.isprintable() else " " for char in cut)


def _name(text: str) -> str:
    return _line(text)[:NAME_CHARS]


def _text(text: str, most: int = TEXT_CHARS) -> str:
    return text if len(text) <= most else text[:most]


def _pairs(pairs: dict[str, str]) -> dict[str, str]:
    kept = list(pairs.items())[:MAX_ENTRIES]
    return {_name(key): _text(value, TABLE_CHARS) for key, value in kept}
