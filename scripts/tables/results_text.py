"""A results page as Markdown: what ran, all problems in a table, then every attempt.  Pure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import msgspec

from actors.supervisor.reporting import formatting
from actors.supervisor.reporting.run_tables import AttemptRecord
from actors.supervisor.reporting.snapshot import Spend
from actors.supervisor.reporting.unit_costs import usd_per_percent
from protocol.settings import Settings
from protocol.values import Value
from scripts.tables.markdown_table import DASH, dollars, markdown_table, minutes, percent, times
from scripts.tables.result_rows import ProblemRow, ProblemState

MAX_IDEA = 150  # characters of an attempt's idea, and of why it failed
FAST_P = (1.0, 1.5, 2.0)  # of KernelBench's fast_p: how many times as fast as eager
NOTES = """\
**best**: the fastest correct candidate; its time, its speed-up against eager with the 95 %
interval, and against torch.compile's two modes by their times. It was confirmed in fresh
processes unless it is marked: a *first look* is the judge's one measurement during the search, so
the best of many first looks is a little too good. **attempts**: correct / compiled / judged, "of
N" where some of N were not judged. **tokens**: as the model's server counted them, and **USD**:
of all its model calls; **USD an attempt**: of those that have a verdict. **USD for 1 %**: dollars
for each percent of eager's time that is saved. **minutes**: of its own leases, waiting for
answers included. A dash was not measured. Each winner's file is the candidate alone, as its model
wrote it: the kernels and `ModelNew`."""


class TaskPage(Value, frozen=True, kw_only=True):
    """One problem of a run."""

    row: ProblemRow
    attempts: tuple[AttemptRecord, ...]
    amended: Mapping[int, str] = msgspec.field(default_factory=dict)  # by attempt: what was mended
    device: str = ""
    spend: Spend = Spend()
    winner: str = ""  # the name of its file; "": none is faster
    notes: tuple[str, ...] = ()

    @property
    def is_begun(self) -> bool:
        """Whether an attempt was made or paid for, or the problem is over without one."""
        is_open = self.row.state is ProblemState.UNFINISHED
        return bool(self.attempts or self.spend.calls or not is_open)

    @property
    def is_judged(self) -> bool:
        """Whether an attempt has a verdict, or the problem is over without one."""
        return bool(self.attempts) or self.row.state is not ProblemState.UNFINISHED

    @property
    def attempts_usd(self) -> float | None:
        """The cost of the attempts that have a verdict; None where a price is not known."""
        prices = [one.usd for one in self.attempts]
        return None if None in prices else sum(price or 0.0 for price in prices)

    @property
    def best_remark(self) -> str:
        """What limits the best figure; "" for one that was confirmed to be faster."""
        if not self.winner:
            return " (not faster)"
        confirmed = {one.number for one in self.attempts if one.confirmed}
        return "" if self.row.node in confirmed else " (first look)"


class RunPage(Value, frozen=True, kw_only=True):
    """One run."""

    settings: Settings
    hardware: str
    models: tuple[str, ...]  # as stored with the calls
    answered_by: str
    run_minutes: float
    tasks: tuple[TaskPage, ...]

    @property
    def begun(self) -> tuple[TaskPage, ...]:
        """The problems with an attempt, or with a reason why there will be none."""
        return tuple(task for task in self.tasks if task.is_begun)


def results_text(pages: Sequence[RunPage]) -> str:
    """Return the whole page."""
    parts = ["# Results"]
    for page in pages:
        parts += [_what_ran(page), _summary(page), _means(page)]
    parts.append(NOTES)
    for page in pages:
        for task in page.begun:
            parts.append(_task(task))
    return "\n\n".join(part for part in parts if part)


def _what_ran(page: RunPage) -> str:
    settings = page.settings
    models = ", ".join(page.models) or settings.model
    server = " through a server of the user's (--base-url)" if settings.base_url else ""
    answered = f": {page.answered_by}" if page.answered_by else ""
    devices = sorted({task.device for task in page.tasks if task.device})
    knowledge = f", knowledge {settings.knowledge}" if settings.prompts == "compact" else ""
    lines = [
        f"Machine: {'; '.join(devices) or page.hardware}, backend {settings.backend}",
        f"Answered by: model {models}{server}{answered}",
        f"Search: {formatting.search_line(settings)}, {settings.search.budget} attempts a problem,"
        f" requests {settings.prompts}{knowledge}, mended before judged: {settings.precheck}",
        f"Wall time of the run: {minutes(page.run_minutes)} minutes",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _summary(page: RunPage) -> str:
    titles = ["problem", "eager", "compile", "max-autotune", "best", "× eager", "95 %"]
    titles += ["× compile", "× max-autotune", "attempts", "tokens in", "out", "USD"]
    titles += ["USD an attempt", "USD for 1 %", "minutes"]
    budget = page.settings.search.budget
    return markdown_table(titles, [_summary_row(task, budget) for task in page.begun])


def _summary_row(task: TaskPage, budget: int) -> list[str]:
    row, spend = task.row, task.spend
    name = f"[{row.task}](#{_anchor(row.task)})"
    if row.node is None:
        state = str(row.state) if task.is_judged else "no attempt judged yet"
        reason = textwrap.shorten(row.reason or state, MAX_IDEA, placeholder="…")
        best = [f"none: {reason}", *[DASH] * 4]
    else:
        interval = row.speed_eager_ci95
        best = [
            f"{formatting.duration(row.best_us)}{task.best_remark}",
            times(row.speed_eager),
            DASH if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
            times(row.speed_compile),
            times(row.speed_max_autotune),
        ]
    cached = f" ({spend.cached_tokens:,} cached)" if spend.cached_tokens else ""
    spent = task.attempts_usd
    each = spent / len(task.attempts) if spent is not None and task.attempts else None
    return [
        name,
        *(formatting.duration(us) for us in (row.eager_us, row.compile_us, row.max_autotune_us)),
        *best,
        f"{row.correct}/{row.compiled}/{row.attempts}"
        + (f" of {budget}" if row.attempts < budget else ""),
        f"{spend.input_tokens:,}{cached}",
        f"{spend.output_tokens:,}",
        dollars(row.usd),
        DASH if each is None else f"{each:.3f}",
        _fine_dollars(usd_per_percent(row.usd, row.speed_eager)),
        minutes(row.minutes),
    ]


def _means(page: RunPage) -> str:
    """Return the geometric means over the problems that have a figure, and the sums."""
    speeds = {
        "eager": [task.row.speed_eager for task in page.tasks],
        "torch.compile": [task.row.speed_compile for task in page.tasks],
        "max-autotune": [task.row.speed_max_autotune for task in page.tasks],
    }
    parts = []
    for name, found in speeds.items():
        known = [speed for speed in found if speed]
        if known:
            mean = math.exp(sum(map(math.log, known)) / len(known))
            parts.append(f"{times(mean)} against {name} ({len(known)} problems)")
    attempts = sum(len(task.attempts) for task in page.tasks)
    prices = [task.attempts_usd for task in page.tasks]
    known = [price for price in prices if price is not None]
    is_known = attempts and len(known) == len(prices)
    each = f", {sum(known) / attempts:.3f} USD each" if is_known else ""
    total = formatting.total_spend([task.spend for task in page.tasks])
    spent = f"{attempts} attempts{each}; all calls: {formatting.spend_line(total)}"
    means = f"Geometric means: {', '.join(parts)}. " if parts else ""
    return f"{_counts(page)} {means}{spent}."


def _counts(page: RunPage) -> str:
    """Return how many problems have which result, and what their user gets on average."""
    judged = [task for task in page.begun if task.is_judged]
    won = [task.row.speed_eager or 1.0 for task in judged if task.winner]
    correct = sum(task.row.node is not None for task in judged)
    text = (
        f"{len(judged)} problems: {correct} with a correct candidate, {len(won)} with a faster one"
    )
    if won:
        text += f"; with 1× elsewhere, {times(math.exp(sum(map(math.log, won)) / len(judged)))}"
        text += f" in the geometric mean. KernelBench's fast_p against eager: {_fast_p(judged)}"
    waiting, others = len(page.begun) - len(judged), len(page.tasks) - len(page.begun)
    text += f". {waiting} others have no judged attempt yet" if waiting else ""
    return f"{text}. {others} others were not begun." if others else f"{text}."


def _fast_p(judged: Sequence[TaskPage]) -> str:
    """Return the shares of problems with a correct candidate more than p times as fast as eager."""
    speeds = [task.row.speed_eager or 0.0 for task in judged if task.row.node is not None]
    shares = {p: sum(speed > p for speed in speeds) / len(judged) for p in FAST_P}
    return ", ".join(f"{percent(share)} for p = {p:g}" for p, share in shares.items())


def _task(task: TaskPage) -> str:
    row = task.row
    head = f"## {row.task}"
    lines = []
    if task.winner:
        lines.append(
            f"Winner: [{task.winner}]({task.winner}), attempt {row.node}, {times(row.speed_eager)}"
            f" of eager ({formatting.duration(row.best_us)})."
        )
    lines += [f"Note: {note}" for note in task.notes]
    return "\n\n".join(part for part in (head, "\n".join(lines), _attempts(task)) if part)


def _attempts(task: TaskPage) -> str:
    titles = ["attempt", "parent", "verdict and idea", "× eager", "time", "tokens in", "out", "USD"]
    rows = [
        [
            f"**{one.number}**" if one.number == task.row.node and task.winner else str(one.number),
            str(one.parent),
            _outcome(one, task.amended.get(one.number, "")),
            times(one.speedup),
            formatting.duration(one.us),
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            DASH if one.usd is None else f"{one.usd:.3f}",
        ]
        for one in task.attempts
    ]
    if rows:
        return markdown_table(titles, rows, left=3)
    answered = f" ({task.spend.calls} calls of its model)" if task.spend.calls else ""
    return f"No attempt has been judged{answered}."


def _outcome(attempt: AttemptRecord, amended: str) -> str:
    verdict = (attempt.verdict or "").replace("_", " ")
    idea = textwrap.shorten(attempt.idea or "", MAX_IDEA, placeholder="…")
    mended = f" (mended: {textwrap.shorten(amended, MAX_IDEA, placeholder='…')})" if amended else ""
    if attempt.verdict == "correct":
        return f"{verdict}{mended}: {idea}" if idea else f"{verdict}{mended}"
    reason = textwrap.shorten(attempt.reason or "", MAX_IDEA, placeholder="…")
    return (
        f"**{verdict}** ({reason}){mended}: {idea}" if reason else f"**{verdict}**{mended}: {idea}"
    )


def _anchor(heading: str) -> str:
    """Return the anchor that Markdown renderers give a heading of one word."""
    return heading.lower()


def _fine_dollars(usd: float | None) -> str:
    return DASH if usd is None else f"{usd:.4f}"
