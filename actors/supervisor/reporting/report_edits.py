"""The grounded edits of a task as HTML: for each node what was advised, where, and what changed.

A part of report.html beside `page`; escapes all that it shows, and bounds it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from html import escape

from actors.supervisor.reporting import formatting
from actors.supervisor.reporting.snapshot import AttemptEdit, Spend, SpendRow
from protocol.values import Plan

MAX_NODES = 300
MAX_LINES = 400  # of one diff: a browser has to bear all of them


def edits_html(told: Iterable[AttemptEdit], spent: Mapping[int, Spend]) -> str:
    """Return every attempt's edit, folded."""
    parts: list[str] = []
    left = 0
    for edit in told:
        if len(parts) < MAX_NODES:
            parts.append(_edit(edit, spent.get(edit.number)))
        else:
            left += 1
    more = f"<p>{left} more are in run.db.</p>" if left else ""
    inside = "".join(parts) or "<p>None yet.</p>"
    return f"<details><summary>Edits, one by one</summary>{inside}{more}</details>"


def by_role(rows: Iterable[SpendRow]) -> list[SpendRow]:
    """Return the spend summed over nodes: a row for each task, role and model."""
    summed: dict[tuple[str, str, str], list[Spend]] = {}
    for row in rows:
        summed.setdefault((row.task, row.role, row.model), []).append(row.spend)
    return [
        SpendRow(task=task, role=role, model=model, spend=formatting.total_spend(spends))
        for (task, role, model), spends in summed.items()
    ]


def by_node(rows: Iterable[SpendRow], task: str) -> dict[int, Spend]:
    """Return what each node of one task took."""
    summed: dict[int, list[Spend]] = {}
    for row in rows:
        if row.task == task:
            summed.setdefault(row.node, []).append(row.spend)
    return {node: formatting.total_spend(spends) for node, spends in summed.items()}


def diff_html(old: str, new: str, before: str, after: str, most: int | None = None) -> str:
    """Return a unified diff, its lines marked as come or gone; at most so many of them."""
    lines = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), before, after, lineterm="")
    )
    text = [_line(line) for line in lines[:most]]
    if most is not None and len(lines) > most:
        text.append(f"[{len(lines) - most} more lines]")
    return "\n".join(text)


def _edit(edit: AttemptEdit, spent: Spend | None) -> str:
    count = len(edit.outside)
    outside = f", {count} change{'s' if count > 1 else ''} outside the anchors" if count else ""
    cost = f" · {escape(formatting.spend_line(spent))}" if spent else ""
    parts = [f"<p>{escape(edit.advice)}</p>" if edit.advice else ""]
    if edit.plan is not None and edit.plan.scaffold:
        parts.append(f"<h4>Anchored</h4><pre>{escape(chr(10).join(_anchored(edit.plan)))}</pre>")
    if edit.source:
        names = f"node {edit.parent}", f"node {edit.number}"
        diff = diff_html(edit.before, edit.source, *names, most=MAX_LINES)
        parts.append(f"<h4>Diff against node {edit.parent}</h4><pre>{diff}</pre>")
    if edit.outside:
        hunks = "\n".join(_line(line) for hunk in edit.outside for line in hunk.splitlines())
        parts.append(f"<h4>Outside the anchors</h4><pre>{hunks}</pre>")
    return (
        f"<details><summary>node {edit.number} from {edit.parent}: {escape(edit.word)}{outside}"
        f'<span class="soft">{cost}</span></summary>{"".join(parts)}</details>'
    )


def _anchored(plan: Plan) -> Iterator[str]:
    """Yield the anchored lines with their numbers in the marked source, a gap between spans."""
    lines = plan.scaffold.split("\n")
    for number, (first, last) in enumerate(plan.spans):
        if number:
            yield "…"
        if last < first:
            yield f"{first:>5}  (new lines before this one)"
        for at in range(first, min(last, first + MAX_LINES) + 1):
            yield f"{at:>5}  {lines[at - 1] if at <= len(lines) else ''}"


def _line(line: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    text = escape(line)
    return f"<{tag}>{text}</{tag}>" if tag else text
