"""Published winners that were judged again, as Markdown: each figure beside the published one.

Pure: `confirm_results.py` runs the judge and writes the files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean

import msgspec
from msgspec.structs import replace

from actors.agents.requests.ledger import one_line
from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.run_results import TaskResult
from actors.supervisor.reporting.run_data.snapshot import NodeView, TaskState
from protocol.values import Value
from scripts.tables.markdown_table import DASH, markdown_table, times
from scripts.tables.published_winners import PublishedFigures, PublishedWinner

COMPILE_LINE = "- torch.compile:"  # begins what `run_description` says of one run
MAX_REASON = 300  # characters of why a winner is none any more
NOTES = """\
**state**: *confirmed*: correct in all its judgements and faster, the whole interval above 1;
*first look*: judged once, its confirmation is still to come. A *confirmed* figure is the median of
three to 15 judgements, each in fresh processes, of the file that a user would get: the task's
module with the winner's kernels behind a guard, which passed the release checks before; **95 %**
covers all of these judgements. **eager**: the task's own module, measured beside the winner;
**× compile** and **× max-autotune**: torch.compile's times over the winner's. **published**: what
the results page says. Absolute times differ from device to device, and so do speed-ups. A dash was
not measured."""


class ConfirmationState(StrEnum):
    """What became of a published winner."""

    CONFIRMED = "confirmed"  # to be faster, in fresh processes
    FIRST_LOOK = "first look"  # correct, and not judged again yet
    NOT_FASTER = "not faster"  # correct
    FAILED = "failed"  # no longer correct, or not judged to the end
    UNMEASURED = "not measurable here"
    OPEN = "not judged yet"


class ConfirmedWinner(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One published winner and its new judgement: a row of confirmed.json."""

    task: str
    state: ConfirmationState
    verdict: str = ""  # the judge's word
    reason: str = ""  # why it is not a winner
    device: str = ""
    eager_us: float | None = None
    compile_us: float | None = None
    max_autotune_us: float | None = None
    us: float | None = None
    speedup: float | None = None  # against eager
    ci95: tuple[float, float] | None = None
    first_look: float | None = None  # the speed-up of its first judgement
    speedup_compile: float | None = None
    speedup_max_autotune: float | None = None
    failed_uses: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # release check -> what was seen
    plain_uses: tuple[str, ...] = ()  # where the plain forward runs
    published: PublishedFigures | None = None
    is_open: bool = False  # whether a later start has something left to measure of it

    @property
    def is_correct(self) -> bool:
        return self.state in (
            ConfirmationState.CONFIRMED,
            ConfirmationState.FIRST_LOOK,
            ConfirmationState.NOT_FASTER,
        )


class ConfirmationPage(Value, frozen=True, kw_only=True):
    """All of a page."""

    lines: tuple[str, ...]  # what is said of the run; Markdown items
    winners: tuple[ConfirmedWinner, ...]


def confirmed_winner(
    winner: PublishedWinner, state: TaskState | None, result: TaskResult | None
) -> ConfirmedWinner:
    """Return a winner's row; `state`, `result`: its task in the run, if it was begun."""
    row = ConfirmedWinner(
        task=winner.task, state=ConfirmationState.OPEN, published=winner.figures, is_open=True
    )
    if state is None or result is None:
        return row
    reference = state.reference
    pending = reference is not None and reference.baselines_pending
    row = replace(
        row,
        eager_us=result.reference.eager_us,
        compile_us=result.reference.compile_us,
        max_autotune_us=result.reference.max_autotune_us,
        device=reference.device.fingerprint if reference else "",
        is_open=not state.problem and (pending or not state.is_over),
    )
    if state.problem:
        return replace(row, state=ConfirmationState.UNMEASURED, reason=state.problem)
    return _judged(row, state.attempts[0], result) if state.attempts else row


def joined_page(page: ConfirmationPage, rows: Sequence[ConfirmedWinner]) -> ConfirmationPage:
    """Return a page with what another run on the same kind of device knows better.

    `rows`: of that run.  A winner that it alone has judged, or it alone has confirmed, is shown as
    there.  Its times of torch.compile, on this run's clock, fill what is missing.
    """
    winners = []
    for row, other in zip(page.winners, rows, strict=True):
        is_alone = row.state is ConfirmationState.OPEN or (
            other.state is ConfirmationState.CONFIRMED
            and row.state is not ConfirmationState.CONFIRMED
        )
        is_better = is_alone and row.device in ("", other.device)
        winners.append(_with_baselines(other if is_better else row, other))
    compiled = sum(row.compile_us is not None for row in winners)
    tuned = sum(row.max_autotune_us is not None for row in winners)
    lines = [
        f"{COMPILE_LINE} measured for {compiled} of {len(winners)} problems, max-autotune for"
        f" {tuned}, in this run and in others that are joined to it (--join)"
        if line.startswith(COMPILE_LINE)
        else line
        for line in page.lines
    ]
    return replace(page, winners=tuple(winners), lines=tuple(lines))


def _with_baselines(row: ConfirmedWinner, other: ConfirmedWinner) -> ConfirmedWinner:
    """Return a row with the times of torch.compile that another run has measured."""
    if row.eager_us is None or other.eager_us is None or row.device != other.device:
        return row
    figures: dict[str, float] = {}
    for field in ("compile", "max_autotune"):
        us = getattr(other, f"{field}_us")
        if us is not None and getattr(row, f"{field}_us") is None:
            figures[f"{field}_us"] = us * row.eager_us / other.eager_us
            if row.speedup is not None:
                figures[f"speedup_{field}"] = row.speedup * us / other.eager_us
    return replace(row, **figures)


def _judged(row: ConfirmedWinner, node: NodeView, result: TaskResult) -> ConfirmedWinner:
    row = replace(row, first_look=node.first_verdict.speedup)
    best = result.best or result.closest
    if best is None:
        return replace(
            row,
            state=ConfirmationState.FAILED,
            verdict=str(node.verdict.verdict).replace("_", " "),
            reason=node.verdict.reason,
        )
    return replace(
        row,
        state=_state_of(node),
        verdict=str(node.verdict.verdict),
        reason="no evaluator could judge it again" if node.unconfirmable else "",
        us=best.median_us,
        speedup=best.speedup_eager,
        ci95=best.speedup_eager_ci95,
        speedup_compile=best.speedup_compile,
        speedup_max_autotune=best.speedup_max_autotune,
        failed_uses=best.release.failed if best.release else {},
        plain_uses=best.release.plain_forward if best.release else (),
    )


def _state_of(node: NodeView) -> ConfirmationState:
    """Return the state of a correct candidate."""
    if not node.confirmed and node.verdict.is_faster:
        return ConfirmationState.FIRST_LOOK
    return ConfirmationState.CONFIRMED if node.verdict.is_faster else ConfirmationState.NOT_FASTER


def confirmation_text(page: ConfirmationPage) -> str:
    """Return the page."""
    parts = ["# Published winners, judged again", "\n".join(page.lines), _table(page.winners)]
    parts += ["\n".join([*_summary(page.winners), *_uses(page.winners)]), NOTES]
    return "\n\n".join(part for part in parts if part)


def _table(winners: Sequence[ConfirmedWinner]) -> str:
    titles = ["problem", "state", "eager", "compile", "max-autotune", "winner", "× eager", "95 %"]
    titles += ["× compile", "× max-autotune", "published × eager"]
    return markdown_table(titles, map(_cells, winners), left=2)


def _cells(row: ConfirmedWinner) -> list[str]:
    low, high = row.ci95 or (None, None)
    return [
        row.task,
        _shown_state(row),
        formatting.duration(row.eager_us),
        formatting.duration(row.compile_us),
        formatting.duration(row.max_autotune_us),
        formatting.duration(row.us),
        times(row.speedup),
        DASH if low is None else f"{low:.2f}–{high:.2f}",
        times(row.speedup_compile),
        times(row.speedup_max_autotune),
        _published(row.published),
    ]


def _shown_state(row: ConfirmedWinner) -> str:
    if row.is_correct or row.state is ConfirmationState.OPEN:
        return str(row.state) + f" ({row.reason})" * bool(row.reason)
    word = row.verdict if row.state is ConfirmationState.FAILED else str(row.state)
    return f"**{word}**" + f" ({one_line(row.reason, MAX_REASON)})" * bool(row.reason)


def _published(figures: PublishedFigures | None) -> str:
    if figures is None:
        return DASH
    interval = "" if figures.low is None else f" ({figures.low:.2f}–{figures.high:.2f})"
    return f"{times(figures.speedup)}{interval}, {figures.label}"


def _summary(winners: Sequence[ConfirmedWinner]) -> list[str]:
    counts = {one: sum(row.state is one for row in winners) for one in ConfirmationState}
    judged = len(winners) - counts[ConfirmationState.OPEN] - counts[ConfirmationState.UNMEASURED]
    words = [f"{count} {state}" for state, count in counts.items() if count]
    lines = [f"- {judged} of {len(winners)} published winners judged again: {', '.join(words)}."]
    hardware = sorted({row.published.hardware for row in winners if row.published})
    if hardware:
        lines.append(f"- The published figures are of: {', '.join(hardware)}.")
    for name, known in (
        ("eager", [(row.speedup, row) for row in winners]),
        ("torch.compile", [(row.speedup_compile, row) for row in winners]),
        ("max-autotune", [(row.speedup_max_autotune, row) for row in winners]),
    ):
        ratios = [
            ratio for ratio, row in known if ratio and row.state is ConfirmationState.CONFIRMED
        ]
        if ratios:
            mean = math.exp(fmean(map(math.log, ratios)))
            lines.append(
                f"- Confirmed winners against {name}: {times(mean)} in the geometric mean,"
                f" {times(min(ratios))} to {times(max(ratios))} ({len(ratios)} problems)."
            )
    return lines


def _uses(winners: Sequence[ConfirmedWinner]) -> list[str]:
    """Return in which uses a winner's file does not run its kernels, or is wrong."""
    lines = [
        f"- {row.task}: the plain forward runs in these uses: {', '.join(row.plain_uses)}."
        for row in winners
        if row.plain_uses
    ]
    return lines + [
        f"- {row.task}: wrong in this use: {use}: {one_line(reason, MAX_REASON)}"
        for row in winners
        for use, reason in row.failed_uses.items()
    ]
