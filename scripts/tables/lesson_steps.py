"""The judged attempts of a stored run, for `scripts/cards.py mine`.  Only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from actors.agents.cards.lessons import Step, architecture_of
from actors.agents.cards.task_operations import task_operations
from actors.agents.cards.techniques import techniques_in
from actors.coordinator.search.tree import ROOT
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from actors.coordinator.storage.store import Store
from actors.supervisor.reporting.run_data import run_folder_integrity
from protocol.values import AttemptView, Outcome, Reference, Task


def steps_of_run(run: Path) -> Iterator[Step]:
    """Yield the attempts whose candidates were judged; raises ValueError for no run."""
    run_folder_integrity.check_readable(run)
    database = ReadOnlyDatabase(run)
    try:
        store = Store(database)
        for task, _budget, _status in store.tasks():
            reference = store.reference(task.name)
            if reference is None:
                continue
            nodes = [store.attempt_view(task.name, row.number) for row in store.nodes(task.name)]
            yield from _steps(run.name, task, reference, {one.node: one for one in nodes})
    finally:
        database.close()


def _steps(
    run: str, task: Task, reference: Reference, nodes: Mapping[int, AttemptView]
) -> Iterator[Step]:
    for node in nodes.values():
        is_judged = node.verdict.verdict is not Outcome.NO_CANDIDATE
        if node.parent is None or not node.advice or not is_judged:
            continue
        parent = nodes.get(node.parent)
        before, after = (_launches(one) if one else None for one in (parent, node))
        yield Step(
            run=run,
            task=task.name,
            operations=task_operations(task.source, reference.inputs),
            architecture=architecture_of(reference.device),
            advice=node.advice,
            added=frozenset(techniques_in(node.source) - techniques_in(parent.source))
            if parent
            else frozenset(),
            has_fewer_launches=before is not None and after is not None and after < before,
            is_design=node.parent == ROOT,
            eager_us=reference.eager_us,
            parent_us=parent.score_us if parent else None,
            us=node.score_us if node.verdict.is_correct else None,
        )


def _launches(node: AttemptView) -> int | None:
    return node.verdict.facts.launches if node.verdict.facts is not None else None
