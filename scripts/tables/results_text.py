"""A results page as Markdown: what ran, all problems in a table, then every attempt.  Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import msgspec

from actors.agents.requests.ledger import one_line
from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.run_tables import AttemptRecord
from actors.supervisor.reporting.run_data.snapshot import Spend
from actors.supervisor.reporting.run_data.unit_costs import usd_per_percent
from protocol.values import Value
from scripts.tables import run_description
from scripts.tables.markdown_table import DASH, dollars, markdown_table, minutes, percent, times
from scripts.tables.result_rows import ProblemRow, ProblemState
from scripts.tables.run_description import RunDescription

MAX_IDEA = 240  # characters of an attempt's idea
MAX_REASON = 150  # and of why it failed
FAST_P = (1.0, 1.5, 2.0)  # of KernelBench's fast_p: how many times as fast as eager
NOTES = """\
**best**: the fastest correct candidate; its time, its speed-up against eager with the 95 % interval
of that measurement, and against torch.compile's two modes by their times. It was confirmed in
fresh processes unless it is marked: a *first look* is the judge's one measurement during the
search, so the best of many first looks is a little too good. **bytes alone**: to move every byte of
inputs, parameters and outputs once, at the rates measured on this device; only a candidate that
needs fewer of them (or bytes from a cache) can be faster. **judged**: attempts with a verdict;
**correct**: of these. **tokens**: as the model's server counted them, and **USD**: of all its model
calls; **USD an attempt**: of those that have a verdict; a call whose answer was lost counts with
the most that it can cost (*). **USD for 1 %**: dollars for each percent of eager's time that is
saved. **judge min**: minutes of building, checking and timing. A dash was not measured. Each
winner's file is the candidate alone, as its model wrote it: the kernels and `ModelNew`, with the
values of `TUNE` that won."""


class TaskPage(Value, frozen=True, kw_only=True):
    """One problem of a run."""

    row: ProblemRow
    attempts: tuple[AttemptRecord, ...]
    ideas: Mapping[int, str] = msgspec.field(default_factory=dict)  # by attempt: its advice
    amended: Mapping[int, str] = msgspec.field(default_factory=dict)  # by attempt: what was mended
    bytes_us: float | None = None  # to move every byte of the task once; None: not known
    max_error: float | None = None  # of the winner, in units of the tolerance
    labels: tuple[str, ...] = ()  # likewise: how it gets its result
    with_lost_call: frozenset[int] = frozenset()  # attempts that paid for an answer that was lost
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
    def judge_minutes(self) -> float | None:
        """How long its candidates were built, checked and timed; None for none."""
        parts = [(one.build_s, one.check_s, one.timing_s) for one in self.attempts]
        return sum(part or 0.0 for one in parts for part in one) / 60 if parts else None

    @property
    def is_confirmed(self) -> bool:
        """Whether its best candidate was judged again in fresh processes."""
        return self.row.node in {one.number for one in self.attempts if one.confirmed}

    @property
    def best_remark(self) -> str:
        """What limits the best figure; "" for one that was confirmed to be faster."""
        if not self.winner:
            return " (not faster)"
        return "" if self.is_confirmed else " (first look)"


class PageRemarks(Value, frozen=True, kw_only=True):
    """What a person adds to a page, since no run stores it."""

    answered_by: str = ""  # behind a server of the user's
    commit: str = ""  # of the judge
    notes: tuple[str, ...] = ()


class RunPage(Value, frozen=True, kw_only=True):
    """One run."""

    description: RunDescription
    run_minutes: float
    tasks: tuple[TaskPage, ...]
    remarks: PageRemarks = PageRemarks()

    @property
    def begun(self) -> tuple[TaskPage, ...]:
        """The problems with an attempt, or with a reason why there will be none."""
        return tuple(task for task in self.tasks if task.is_begun)


def results_text(
    pages: Sequence[RunPage], title: str = "Results", *, is_brief: bool = False
) -> str:
    """Return the whole page; `is_brief`: without the tables of attempts and links to files."""
    parts = [f"# {title}"]
    for number, page in enumerate(pages, start=1):
        heading = f"## Run {number}" if len(pages) > 1 else ""
        parts += [heading, _what_ran(page), _summary(page, is_brief=is_brief), _totals(page)]
    parts.append(NOTES)
    if not is_brief:
        parts += [_task(task) for page in pages for task in page.begun]
    return "\n\n".join(part for part in parts if part)


def _what_ran(page: RunPage) -> str:
    one = page.description
    command = run_description.repeat_command(one.settings)
    told = page.remarks
    lines = run_description.description_lines([one], command, told.answered_by, told.commit)
    lines.insert(2, f"- Search: {run_description.search_text(one.settings)}")
    confirmed = [task.is_confirmed for task in page.begun if task.winner]
    sure = (
        "one run with one seed, so no figure here has an interval over repeats; intervals are of a"
        " measurement"
    )
    if confirmed:
        sure += f"; {sum(confirmed)} of {len(confirmed)} winners were confirmed in fresh processes"
    return "\n".join([*lines, f"- How sure: {sure}", *(f"- {note}" for note in told.notes)])


def _summary(page: RunPage, *, is_brief: bool) -> str:
    """Return the table of all problems; columns in which nothing was measured are left out."""
    titles = ["problem", "eager", "bytes alone", "compile", "max-autotune", "best", "× eager"]
    titles += ["95 %", "× compile", "× max-autotune", "judged", "correct", "tokens in", "out"]
    titles += ["USD", "USD an attempt", "USD for 1 %", "judge min"]
    budget = page.description.settings.search.budget
    rows = [_summary_row(task, budget, is_brief=is_brief) for task in page.begun]
    kept = [at for at in range(len(titles)) if not rows or any(row[at] != DASH for row in rows)]
    return markdown_table([titles[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _summary_row(task: TaskPage, budget: int, *, is_brief: bool) -> list[str]:
    row, spend = task.row, task.spend
    name = row.task if is_brief else f"[{row.task}](#{_anchor(row.task)})"
    if row.node is None:
        state = str(row.state) if task.is_judged else "no attempt judged yet"
        reason = one_line(row.reason or state, MAX_REASON)
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
    paid = [  # nothing of it by a model on this machine
        f"{spend.input_tokens:,}{cached}",
        f"{spend.output_tokens:,}",
        f"{dollars(row.usd)}{'*' if task.with_lost_call else ''}",
        DASH if each is None else f"{each:.3f}",
        _fine_dollars(usd_per_percent(row.usd, row.speed_eager)),
    ]
    times_us = (row.eager_us, task.bytes_us, row.compile_us, row.max_autotune_us)
    return [
        name,
        *map(formatting.duration, times_us),
        *best,
        f"{row.attempts} of {budget}" if row.attempts < budget else f"{row.attempts}",
        f"{row.correct}",
        *(paid if spend.input_tokens or spend.usd else [DASH] * len(paid)),
        minutes(task.judge_minutes),
    ]


def _totals(page: RunPage) -> str:
    """Return how many problems have which result, what their user gets on average, and the cost."""
    lines = [_counts(page), _means(page), _attempt_counts(page)]
    return "\n".join(f"- {line}." for line in lines if line)


def _counts(page: RunPage) -> str:
    judged = [task for task in page.begun if task.is_judged]
    won = sum(bool(task.winner) for task in judged)
    correct = sum(task.row.node is not None for task in judged)
    text = f"{len(judged)} of {len(page.tasks)} problems judged: {correct} with a correct candidate"
    text += f", {won} with a faster one"
    waiting, others = len(page.begun) - len(judged), len(page.tasks) - len(page.begun)
    text += f"; {waiting} have no judged attempt yet" if waiting else ""
    text += f"; {others} were not begun" if others else ""
    if not won:
        return text
    return f"{text}. KernelBench's fast_p of the judged, against eager: {_fast_p(judged)}"


def _means(page: RunPage) -> str:
    """Return what a user gets on average, with 1× where no candidate is faster."""
    judged = [task for task in page.begun if task.is_judged]
    won = sorted(task.row.speed_eager or 1.0 for task in judged if task.winner)
    if not won:
        return ""
    gains = [1.0] * (len(judged) - len(won)) + won
    text = f"Against eager, geometric means with 1× where none is faster: {_mean(gains)} of the"
    text += f" {len(judged)} judged"
    missing = len(page.tasks) - len(judged)
    if missing:
        every = [1.0] * missing + gains
        text += f", {_mean(every)} of all {len(every)} with 1× for those that are not judged"
    text += f"; median {times(median(gains))}, {times(gains[0])} to {times(gains[-1])}"
    others = {
        "torch.compile": [task.row.speed_compile for task in judged],
        "max-autotune": [task.row.speed_max_autotune for task in judged],
    }
    for name, found in others.items():
        known = [speed for speed in found if speed]
        if known:
            text += f". Best candidates against {name}: {_mean(known)} ({len(known)} problems)"
    return text


def _mean(ratios: Sequence[float]) -> str:
    return times(math.exp(fmean(map(math.log, ratios))))


def _attempt_counts(page: RunPage) -> str:
    """Return the verdicts of all attempts, and what was paid."""
    every = [one for task in page.tasks for one in task.attempts]
    words = Counter((one.verdict or "").replace("_", " ") for one in every)
    verdicts = ", ".join(f"{count} {word}" for word, count in words.most_common())
    asked = page.description.settings.search.budget * len(page.tasks)
    prices = [task.attempts_usd for task in page.tasks]
    known = [price for price in prices if price is not None]
    is_known = every and len(known) == len(prices)
    each = f", {sum(known) / len(every):.3f} USD each" if is_known else ""
    total = formatting.total_spend([task.spend for task in page.tasks])
    spent = f"all calls: {formatting.spend_line(total)}"
    served = f"{minutes(page.run_minutes)} minutes in all phases, waiting for answers included"
    judged = f" ({verdicts})" if every else ""
    return f"{len(every)} of {asked} attempts judged{judged}{each}; {spent}; {served}"


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
            f" of eager ({formatting.duration(row.best_us)}){_how(task)}."
        )
    lines += [f"Note: {note}" for note in task.notes]
    return "\n\n".join(part for part in (head, "\n".join(lines), _attempts(task)) if part)


def _how(task: TaskPage) -> str:
    """Return how exact the winner is, and the judge's labels of it."""
    error = "" if task.max_error is None else f"; largest error {task.max_error:.2g} × tolerance"
    labels = ", ".join(label.replace("_", " ") for label in task.labels)
    return f"{error}; labels: {labels}" if labels else error


def _attempts(task: TaskPage) -> str:
    titles = ["attempt", "parent", "verdict and idea", "× eager", "time", "tokens in", "out", "USD"]
    rows = [
        [
            f"**{one.number}**" if one.number == task.row.node and task.winner else str(one.number),
            str(one.parent),
            _outcome(one, task),
            times(one.speedup),
            formatting.duration(one.us),
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            _attempt_usd(one, task),
        ]
        for one in task.attempts
    ]
    if rows:
        return markdown_table(titles, rows, left=3)
    answered = f" ({task.spend.calls} calls of its model)" if task.spend.calls else ""
    return f"No attempt has been judged{answered}."


def _attempt_usd(attempt: AttemptRecord, task: TaskPage) -> str:
    lost = "*" if attempt.number in task.with_lost_call else ""
    return DASH if attempt.usd is None else f"{attempt.usd:.3f}{lost}"


def _outcome(attempt: AttemptRecord, task: TaskPage) -> str:
    """Return the verdict with its reason, and the idea; a repair has that of its parent."""
    amended = task.amended.get(attempt.number, "")
    verdict = (attempt.verdict or "").replace("_", " ")
    reason = one_line(attempt.reason or "", MAX_REASON)
    text = verdict if verdict == "correct" else f"**{verdict}**" + f" ({reason})" * bool(reason)
    text += f" (mended: {one_line(amended, MAX_REASON)})" if amended else ""
    idea = f"repair of attempt {attempt.parent}"
    if attempt.kind != "repair":
        idea = one_line(task.ideas.get(attempt.number, ""), MAX_IDEA)
    return f"{text}: {idea}" if idea else text


def _anchor(heading: str) -> str:
    """Return the anchor that Markdown renderers give a heading of one word."""
    return heading.lower()


def _fine_dollars(usd: float | None) -> str:
    return DASH if usd is None else f"{usd:.4f}"
