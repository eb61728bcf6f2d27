"""What each attempt changed, as report.html shows it: anchored lines, diffs, and what it cost.

Plain values, bounded in number and length; `report.html.j2` turns them into HTML.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.snapshot import AttemptEdit, Spend, SpendRow
from protocol.values import Plan, Value

MAX_EDITS = 40  # the page in the same file has all of them
MAX_LINES = 400  # of one diff: a browser has to show all of them


class DiffLine(Value, frozen=True, kw_only=True):
    """One line of a diff, with the HTML element that marks it as added or removed."""

    text: str
    element: str = ""  # ins, del, or none


class ShownEdit(Value, frozen=True, kw_only=True):
    """One attempt's edit: its advice, the anchored lines, and what changed."""

    edit: AttemptEdit
    spend: str
    anchored: tuple[str, ...]
    diff: tuple[DiffLine, ...]
    outside: tuple[DiffLine, ...]


def shown_edits(edits: Iterable[AttemptEdit], spent: Mapping[int, Spend]) -> list[ShownEdit]:
    """Return the first edits."""
    return [_shown_edit(edit, spent.get(edit.number)) for edit in islice(edits, MAX_EDITS)]


def _shown_edit(edit: AttemptEdit, spent: Spend | None) -> ShownEdit:
    names = f"node {edit.parent}", f"node {edit.number}"
    return ShownEdit(
        edit=edit,
        spend=formatting.spend_line(spent) if spent else "",
        anchored=tuple(_anchored_lines(edit.plan)) if edit.plan and edit.plan.scaffold else (),
        diff=diff_lines(edit.before, edit.source, *names, most=MAX_LINES) if edit.source else (),
        outside=tuple(_diff_line(line) for hunk in edit.outside for line in hunk.splitlines()),
    )


def diff_lines(
    old: str, new: str, old_name: str, new_name: str, most: int | None = None
) -> tuple[DiffLine, ...]:
    """Return a unified diff of at most `most` lines, and one that says how many are left."""
    lines = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="")
    )
    shown = [_diff_line(line) for line in lines[:most]]
    if most is not None and len(lines) > most:
        shown.append(DiffLine(text=f"[{len(lines) - most} more lines]"))
    return tuple(shown)


def _diff_line(line: str) -> DiffLine:
    return DiffLine(text=line, element={"+": "ins", "-": "del"}.get(line[:1], ""))


def _anchored_lines(plan: Plan) -> Iterator[str]:
    """Yield the anchored lines with their numbers in the marked source, a gap between spans."""
    lines = plan.scaffold.split("\n")
    for number, (first, last) in enumerate(plan.spans):
        if number:
            yield "…"
        if last < first:
            yield f"{first:>5}  (new lines before this one)"
        for at in range(first, min(last, first + MAX_LINES) + 1):
            yield f"{at:>5}  {lines[at - 1] if at <= len(lines) else ''}"


def spend_by_role(rows: Iterable[SpendRow]) -> list[SpendRow]:
    """Return the spend summed over nodes: a row for each task, role and model."""
    summed: dict[tuple[str, str, str], list[Spend]] = {}
    for row in rows:
        summed.setdefault((row.task, row.role, row.model), []).append(row.spend)
    return [
        SpendRow(task=task, role=role, model=model, spend=formatting.total_spend(spends))
        for (task, role, model), spends in summed.items()
    ]


def spend_of_nodes(rows: Iterable[SpendRow], task: str) -> dict[int, Spend]:
    """Return what each node of one task cost."""
    summed: dict[int, list[Spend]] = {}
    for row in rows:
        if row.task == task:
            summed.setdefault(row.node, []).append(row.spend)
    return {node: formatting.total_spend(spends) for node, spends in summed.items()}
