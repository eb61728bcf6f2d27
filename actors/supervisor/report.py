"""report.html: one file, offline, made from the run directory alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from actors.supervisor import edits, page
from actors.supervisor.files import write_whole
from actors.supervisor.ledger import Ledger
from actors.supervisor.snapshot import Snapshot, SpendRow
from protocol import settings as settings_file

FILE_NAME = "report.html"


def write(run_dir: Path) -> Path:
    """Write the report of a run, running or ended; return its path.

    Raises ValueError with one line when the folder holds no run.
    """
    path = run_dir / FILE_NAME
    write_whole(path, render(run_dir))
    return path


def render(run_dir: Path) -> str:
    """Return the report's HTML."""
    settings = settings_file.read(run_dir)
    ledger = Ledger(run_dir)
    try:
        snapshot = ledger.poll()
        if snapshot is None:
            raise ValueError(f"{run_dir} has no run.db that can be read yet")
        spent = ledger.spent()
        body = [
            page.heading(snapshot, settings),
            *_tasks(snapshot, ledger, spent),
            page.spend(snapshot, edits.by_role(spent)),
            page.hardware(snapshot, settings),
        ]
    finally:
        ledger.close()
    return page.page(f"STARK: {', '.join(settings.tasks)}", body)


def _tasks(snapshot: Snapshot, ledger: Ledger, spent: Sequence[SpendRow]) -> Iterator[str]:
    for task in snapshot.tasks:
        if len(snapshot.tasks) > 1:
            yield f"<h2>{escape(task.name)}</h2>"
        yield page.cards(task)
        yield page.chart(task)
        yield page.tree(task)
        yield page.failures(task)
        yield page.attempts(task)
        yield edits.edits(ledger.edits(task.name), edits.by_node(spent, task.name))
        source = ledger.source(task.name, task.best.number) if task.best else ""
        yield page.release(task)
        yield page.winner(task, source, ledger.task_source(task.name))
