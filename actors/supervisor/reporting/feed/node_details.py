"""All that is known of one node, for a page: source, plan, calls, log, verdict, stages.

The server reads one node when a page asks for it, and the report reads those that it holds.  An
attempt under way has details, too, as far as they are there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import msgspec

from actors.supervisor.reporting.feed import feed_rows
from actors.supervisor.reporting.feed.feed_values import (
    BY_PERSON,
    IDEA_CHARS,
    AttemptKey,
    FeedNode,
    NodeSpend,
    NodeSummary,
    node_summary,
    one_line,
)
from actors.supervisor.reporting.run_data import formatting, run_results
from actors.supervisor.reporting.run_data.snapshot import NodeView, TaskState
from protocol.cases import result_case_lines
from protocol.fact_lines import task_fact_lines, verdict_fact_lines
from protocol.values import Candidate, Plan, Reference, Value, Verdict
from protocol.variant_lines import variant_lines

PROFILE_NOTES = ("task",)  # figures of a profile that are sentences


class PlanDetails(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The plan of an attempt."""

    advice: str
    anchors: tuple[tuple[int, int], ...] | None  # [first, last] lines of `text`, from 1
    text: str  # the parent's source with the anchors


class CallDetails(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One request to a model, and its reply."""

    role: str
    model: str
    request: str | None
    reply: str | None
    stop: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    usd: float | None
    seconds: float
    at: float


class VerdictDetails(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The judge's result in words."""

    word: str
    reason: str
    stage: str
    notes: tuple[str, ...]
    lines: tuple[str, ...]
    details: dict[str, object]


class TimingDetails(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The groups that the figures are made of: means of each side's two blocks, and their ratio."""

    reference_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    ratio: tuple[float, ...]


class StageDetails(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One lease of the attempt's work."""

    stage: str
    slot: str
    granted: float
    ended: float | None
    outcome: str | None


class FirstLook(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What the node came to before it was judged again."""

    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    line: str


class NodeDetails(Value, frozen=True, kw_only=True, omit_defaults=False):
    """Everything about one attempt."""

    summary: NodeSummary
    source: str | None
    parent_source: str | None
    best_source: str | None
    root_source: str | None
    plan: PlanDetails | None
    outside: tuple[str, ...]  # diff hunks outside of the plan's anchors
    edits: tuple[str, ...]  # what the answer replaced in the parent's source; () for a whole file
    calls: tuple[CallDetails, ...]
    log: str | None
    verdict: VerdictDetails | None
    timing: TimingDetails | None
    profile: dict[str, str] | None
    floor_us: float | None
    stages: tuple[StageDetails, ...]
    first_look: FirstLook | None


class StoredAttempt(Value, frozen=True, kw_only=True):
    """The stored row of an attempt."""

    parent: int
    kind: str
    plan: Plan | None = None
    candidate: Candidate | None = None


class StoredNode(Value, frozen=True, kw_only=True):
    """The large parts of a recorded node."""

    source: str
    outside: tuple[str, ...]
    verdict: Verdict
    plan: Plan | None


def node_details(
    run: sqlite3.Connection, key: AttemptKey, best: int | None = None
) -> NodeDetails | None:
    """Return the details of an attempt; None where there is no such attempt.

    `best` is the number of the task's best node, whose source is given for comparison.
    """
    task = next((task for task in feed_rows.tasks(run) if task.name == key[0]), None)
    row, attempt = feed_rows.node(run, key), _attempt(run, key)
    if task is None or (row is None and attempt is None):
        return None
    stored = _stored_node(run, key)
    parent = row.view.parent if row else attempt.parent if attempt else None
    plan = stored.plan if stored else attempt.plan if attempt else None
    candidate = attempt.candidate if attempt else None
    return NodeDetails(
        summary=_summary(run, task, key, row, attempt),
        source=stored.source if stored else candidate.source if candidate else None,
        parent_source=_source(run, (key[0], parent)) if parent is not None else None,
        best_source=_source(run, (key[0], best)) if best is not None else None,
        root_source=_source(run, (key[0], 0)),
        plan=_plan(plan),
        outside=stored.outside if stored else candidate.outside if candidate else (),
        edits=candidate.edits if candidate else (),
        calls=tuple(_calls(run, key)),
        log=stored.verdict.log if stored else None,
        verdict=_verdict(task, row, stored.verdict) if row and stored else None,
        timing=_timing(stored.verdict) if stored else None,
        profile=stored.verdict.profile if stored else None,
        floor_us=task.reference.floor_us if task.reference else None,
        stages=tuple(_stages(run, key)),
        first_look=_first_look(run, key),
    )


def _attempt(run: sqlite3.Connection, key: AttemptKey) -> StoredAttempt | None:
    query = "SELECT parent, kind, plan, candidate FROM attempt WHERE task = ? AND number = ?"
    row = run.execute(query, key).fetchone()
    if row is None:
        return None
    parent, kind, plan, candidate = row
    return StoredAttempt(
        parent=parent,
        kind=kind,
        plan=msgspec.msgpack.decode(plan, type=Plan) if plan else None,
        candidate=msgspec.msgpack.decode(candidate, type=Candidate) if candidate else None,
    )


def _stored_node(run: sqlite3.Connection, key: AttemptKey) -> StoredNode | None:
    query = "SELECT source, outside, verdict, plan FROM node WHERE task = ? AND number = ?"
    row = run.execute(query, key).fetchone()
    if row is None:
        return None
    source, outside, verdict, plan = row
    return StoredNode(
        source=source,
        outside=msgspec.json.decode(outside or "[]", type=tuple[str, ...]),
        verdict=msgspec.msgpack.decode(verdict, type=Verdict),
        plan=msgspec.msgpack.decode(plan, type=Plan) if plan else None,
    )


def _source(run: sqlite3.Connection, key: AttemptKey) -> str | None:
    query = "SELECT source FROM node WHERE task = ? AND number = ?"
    row = run.execute(query, key).fetchone()
    return None if row is None else str(row[0])


def _summary(
    run: sqlite3.Connection,
    task: TaskState,
    key: AttemptKey,
    row: FeedNode | None,
    attempt: StoredAttempt | None,
) -> NodeSummary:
    spend = feed_rows.spend(run, key)
    if row is not None:
        return node_summary(task, row, spend)
    return _summary_under_way(key, attempt, spend)


def _summary_under_way(
    key: AttemptKey, attempt: StoredAttempt | None, spend: NodeSpend
) -> NodeSummary:
    advice = attempt.plan.advice if attempt and attempt.plan else ""
    return NodeSummary(
        task=key[0],
        number=key[1],
        parent=attempt.parent if attempt else None,
        kind=attempt.kind if attempt else "improve",
        idea=one_line(advice, IDEA_CHARS),
        verdict=None,
        by_person=attempt is not None and attempt.kind == BY_PERSON,
        usd=spend.usd,
        tokens=spend.tokens,
    )


def _plan(plan: Plan | None) -> PlanDetails | None:
    if plan is None:
        return None
    return PlanDetails(advice=plan.advice, anchors=plan.spans or None, text=plan.scaffold)


def _calls(run: sqlite3.Connection, key: AttemptKey) -> Iterator[CallDetails]:
    rows = run.execute(
        "SELECT role, model, request, reply, stop, input_tokens, cached_tokens, output_tokens, usd,"
        " seconds, at FROM call WHERE work >= ? AND work < ? ORDER BY id",
        feed_rows.work_range(key),
    )
    for role, model, request, reply, stop, read, cached, written, usd, seconds, at in rows:
        yield CallDetails(
            role=role,
            model=model,
            request=request,
            reply=reply,
            stop=stop,
            input_tokens=read,
            cached_tokens=cached,
            output_tokens=written,
            usd=usd,
            seconds=seconds,
            at=at,
        )


def _stages(run: sqlite3.Connection, key: AttemptKey) -> Iterator[StageDetails]:
    rows = run.execute(
        "SELECT work, slot, granted, ended, outcome FROM lease WHERE work >= ? AND work < ?"
        " ORDER BY epoch",
        feed_rows.work_range(key),
    )
    for work, slot, granted, ended, outcome in rows:
        yield StageDetails(
            stage=work.rpartition("/")[2],
            slot=slot,
            granted=granted,
            ended=ended,
            outcome=outcome,
        )


def _verdict(task: TaskState, row: FeedNode, verdict: Verdict) -> VerdictDetails:
    profile = verdict.profile or {}
    notes = [profile[name] for name in PROFILE_NOTES if profile.get(name)]
    details = msgspec.to_builtins(msgspec.structs.replace(verdict, log="", profile=None))
    for shown_elsewhere in ("groups", "facts"):
        details.pop(shown_elsewhere, None)
    return VerdictDetails(
        word=verdict.verdict,
        reason=verdict.reason,
        stage=verdict.stage,
        notes=(*verdict.labels, *notes),
        lines=tuple(verdict_lines(task, row, verdict)),
        details=details,
    )


def verdict_lines(task: TaskState, row: FeedNode, verdict: Verdict) -> Iterator[str]:
    """Yield a verdict as sentences for a person, the outcome first."""
    if row.view.number == 0:
        yield "the task's own module: candidates are compared with it"
        yield from _reference_lines(task.reference) if task.reference is not None else ()
        return
    yield from _outcome_lines(task, row.view, verdict)
    yield from _measurement_lines(verdict)
    yield from verdict_fact_lines(verdict.facts, task.reference.facts if task.reference else None)


def _outcome_lines(task: TaskState, node: NodeView, verdict: Verdict) -> Iterator[str]:
    yield formatting.result(task, node)
    if verdict.reason:
        yield verdict.reason
    if verdict.stage:
        yield f"decided in stage {verdict.stage}"
    if node.unconfirmable:
        yield "it could not be judged again: the first look is not confirmed"
    if node.first_look is not None and node.first_look.speedup:
        yield f"first look: {formatting.speedup(node.first_look)}"


def _measurement_lines(verdict: Verdict) -> Iterator[str]:
    yield from result_case_lines(verdict.cases)
    yield from variant_lines(verdict)
    spent = verdict.seconds
    yield f"build {spent.build:.2f} s, check {spent.check:.2f} s, time {spent.time:.2f} s"
    timing = (verdict.profile or {}).get("timing")
    if timing:
        yield f"timed in {timing}"
    if verdict.max_error is not None and not (verdict.facts and verdict.facts.errors):
        yield f"largest error: {verdict.max_error:.3g} of what the tolerance allows"
    if verdict.device:
        yield f"judged on {verdict.device}, sandbox level {verdict.sandbox_level}"
    if verdict.release is not None:
        yield from run_results.release_lines(verdict.release)


def _reference_lines(reference: Reference) -> Iterator[str]:
    yield f"eager: {formatting.duration(reference.eager_us)} a call"
    if reference.compile_us is not None:
        yield f"torch.compile: {formatting.duration(reference.compile_us)} a call"
    if reference.max_autotune_us is not None:
        yield f"max-autotune: {formatting.duration(reference.max_autotune_us)} a call"
    if reference.baselines_pending:
        yield "torch.compile: not measured yet (it is while the device is idle)"
    if reference.baselines_note:
        yield reference.baselines_note
    if reference.floor_us is not None:
        yield f"roofline floor: {formatting.duration(reference.floor_us)} a call"
    if reference.inputs:
        yield f"inputs {reference.inputs}; outputs {reference.outputs}"
    yield from reference.notes
    yield from task_fact_lines(reference.facts)


def _timing(verdict: Verdict) -> TimingDetails | None:
    groups = verdict.groups
    if groups is None:
        return None  # a failure, or a run of an older version
    pairs = list(zip(groups.reference_us, groups.candidate_us, strict=False))
    return TimingDetails(
        reference_us=tuple(reference for reference, _ in pairs),
        candidate_us=tuple(candidate for _, candidate in pairs),
        ratio=tuple(
            reference / candidate if candidate > 0 else 0.0 for reference, candidate in pairs
        ),
    )


def _first_look(run: sqlite3.Connection, key: AttemptKey) -> FirstLook | None:
    verdict = feed_rows.first_look(run, key)
    if verdict is None:
        return None
    low, high = verdict.speedup_ci95 or (None, None)
    return FirstLook(
        verdict=verdict.verdict,
        speedup=verdict.speedup,
        low=low,
        high=high,
        line=" ".join(part for part in (verdict.verdict, formatting.speedup(verdict)) if part),
    )
