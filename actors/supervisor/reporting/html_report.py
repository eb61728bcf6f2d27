"""report.html: one file, offline, made from the run directory alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from actors.supervisor.reporting import report_edits, report_sections
from actors.supervisor.reporting.run_reader import RunReader
from actors.supervisor.reporting.snapshot import Snapshot, SpendRow
from protocol import settings as settings_file
from protocol.atomic_file import write_atomically

FILE_NAME = "report.html"


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
        body = [
            report_sections.heading(snapshot, settings),
            *_tasks(snapshot, reader, spent),
            report_sections.spend(snapshot, report_edits.by_role(spent)),
            report_sections.hardware(snapshot, settings),
        ]
    finally:
        reader.close()
    return report_sections.html_page(f"STARK: {', '.join(settings.tasks)}", body)


def _tasks(snapshot: Snapshot, reader: RunReader, spent: Sequence[SpendRow]) -> Iterator[str]:
    for task in snapshot.tasks:
        if len(snapshot.tasks) > 1:
            yield f"<h2>{escape(task.name)}</h2>"
        yield report_sections.cards(task)
        yield report_sections.chart(task)
        yield report_sections.tree(task)
        yield report_sections.failures(task)
        yield report_sections.attempts(task)
        yield report_edits.edits_html(
            reader.attempt_edits(task.name), report_edits.by_node(spent, task.name)
        )
        source = reader.source_of(task.name, task.best.number) if task.best else ""
        yield report_sections.release(task)
        yield report_sections.winner(task, source, reader.task_source(task.name))
