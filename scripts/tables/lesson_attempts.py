"""The judged attempts of a stored run, for `scripts/cards.py mine`.  Only reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from actors.agents.cards.lessons import LeverAttempt, architecture_of
from actors.agents.cards.task_operations import task_operations
from actors.coordinator.search.tree import ROOT
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from actors.coordinator.storage.store import Store
from actors.supervisor.reporting import run_folder_integrity
from protocol.values import Outcome


def attempts_of_run(run: Path) -> Iterator[LeverAttempt]:
    """Yield the attempts whose candidates were judged; raises ValueError for no run."""
    run_folder_integrity.check_readable(run)
    database = ReadOnlyDatabase(run)
    try:
        store = Store(database)
        for task, _budget, _status in store.tasks():
            reference = store.reference(task.name)
            if reference is None:
                continue
            views = [store.attempt_view(task.name, row.number) for row in store.nodes(task.name)]
            times = {view.node: view.score_us for view in views}
            times[ROOT] = reference.eager_us
            for view in views:
                is_judged = view.verdict.verdict is not Outcome.NO_CANDIDATE
                if view.parent is None or not view.advice or not is_judged:
                    continue
                yield LeverAttempt(
                    run=run.name,
                    task=task.name,
                    operations=task_operations(task.source, reference.inputs),
                    architecture=architecture_of(reference.device),
                    advice=view.advice,
                    from_module=view.parent == ROOT,
                    eager_us=reference.eager_us,
                    parent_us=times.get(view.parent),
                    us=view.score_us if view.verdict.is_correct else None,
                )
    finally:
        database.close()
