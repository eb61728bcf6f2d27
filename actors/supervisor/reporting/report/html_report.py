"""report.html: one file that works offline, made from the run folder.

The templates are `report.html.j2` and `best_so_far.svg.j2`.  jinja2 escapes every value, so the
text of a candidate, a model or a compiler stays text.  Folding is `<details>`; pictures are inline
SVG; all of that works without JavaScript.  Beside it the file holds the page of `watch` with the
run's data (`report_page.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from actors.supervisor.reporting.report import report_page, report_tables
from actors.supervisor.reporting.report.best_so_far_chart import BestSoFarChart, best_so_far_chart
from actors.supervisor.reporting.report.report_edits import (
    DiffLine,
    ShownEdit,
    diff_lines,
    shown_edits,
    spend_by_role,
    spend_of_nodes,
)
from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot, SpendRow, TaskState
from protocol import settings as settings_file
from protocol.atomic_file import write_atomically
from protocol.values import Value

FILE_NAME = "report.html"


class TaskSection(Value, frozen=True, kw_only=True):
    """What the page shows of one task, beside the task itself."""

    task: TaskState
    chart: BestSoFarChart | None
    edits: tuple[ShownEdit, ...]
    edits_left: int
    winner: str = ""  # its source
    winner_diff: tuple[DiffLine, ...] = ()


def write_report(run_dir: Path) -> Path:
    """Write the report of a run, running or ended; return its path.

    Raises ValueError with one line when the folder holds no run.
    """
    path = run_dir / FILE_NAME
    write_atomically(path, render_report(run_dir))
    return path


def render_report(run_dir: Path) -> str:
    """Return the report's HTML."""
    settings = settings_file.read(run_dir)
    reader = RunReader(run_dir)
    try:
        snapshot = reader.poll()
        if snapshot is None:
            raise ValueError(f"{run_dir} has no run.db that can be read yet")
        spent = reader.spend_by_node()
        sections = list(_task_sections(snapshot, reader, spent))
        page = report_page.inline_page(run_dir, snapshot)
    finally:
        reader.close()
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            settings=settings,
            settings_text=settings_file.to_toml(settings),
            snapshot=snapshot,
            sections=sections,
            page=page,
            spend_rows=spend_by_role(spent),
            total_spend=formatting.total_spend([task.spend for task in snapshot.tasks]),
        )
    )


def _task_sections(
    snapshot: Snapshot, reader: RunReader, spent: Sequence[SpendRow]
) -> Iterator[TaskSection]:
    for task in snapshot.tasks:
        costs = spend_of_nodes(spent, task.name)
        edits = shown_edits(reader.attempt_edits(task.name), costs)
        source, diff = "", tuple[DiffLine, ...]()
        if task.best is not None:
            source = reader.source_of(task.name, task.best.number)
            diff = diff_lines(reader.task_source(task.name), source, "task", "winner")
        yield TaskSection(
            task=task,
            chart=best_so_far_chart(task),
            edits=tuple(edits),
            edits_left=len(task.attempts) - len(edits),
            winner=source,
            winner_diff=diff,
        )


def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals.update(formatting=formatting, tables=report_tables)
    return templates
