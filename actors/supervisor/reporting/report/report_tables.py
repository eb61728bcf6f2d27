"""The values of each part of report.html: figures, failures, tree, attempts, device.

Plain values only; `report.html.j2` turns them into HTML and escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from actors.supervisor.reporting.run_data import formatting, run_results, unit_costs
from actors.supervisor.reporting.run_data.case_rows import case_rows as case_results
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from protocol.values import Value

MAX_TREE_DEPTH = 200  # browsers cut deeper nesting themselves
MAX_REASONS = 3  # shown for each kind of failure
TREE_SUMMARY = 110  # characters of a node's summary
TABLE_SUMMARY = 200


class FailureKind(Value, frozen=True, kw_only=True):
    """One verdict of failed attempts, with the first different reasons."""

    verdict: str
    count: int
    reasons: tuple[str, ...]


class TreeStep(Value, frozen=True, kw_only=True):
    """One step of a walk over the tree: a list or a node begins or ends."""

    kind: Literal["list", "end of list", "node", "end of node"]
    node: NodeView | None = None
    style: str = ""
    result: str = ""
    summary: str = ""
    is_best: bool = False


class AttemptRow(Value, frozen=True, kw_only=True):
    """One line of the table of all attempts, in the order of its columns."""

    node: NodeView
    first_look: str
    confirmed: str
    duration: str
    judged_s: float
    summary: str
    is_best: bool


def key_figures(task: TaskState) -> tuple[tuple[str, str], ...]:
    """Return the figures at the top of a task, as pairs of name and text."""
    best = task.best
    label = "confirmed" if best and best.confirmed else "first look"
    name = f"speed-up against eager, {label}" if best else "speed-up against eager"
    attempt, percent = unit_costs.task_cost(task)
    costs = (("an attempt", attempt), ("for 1 % of the time", percent)) if task.spend.usd else ()
    return (
        (name, formatting.speedup(best.verdict) if best else "nothing faster"),
        ("best, a call", formatting.duration(task.shown_us(best)) if best else "–"),
        ("reference, a call", formatting.duration(task.eager_us(best or task.closest))),
        ("attempts", f"{len(task.attempts)} of {task.budget}"),
        ("compiled", str(sum(node.verdict.is_compiled for node in task.attempts))),
        ("correct", str(sum(node.verdict.is_correct for node in task.attempts))),
        *costs,
    )


TASK_HEADINGS = (
    *("task", "speed-up against eager", "best, a call", "reference, a call"),
    *("attempts", "compiled", "correct"),
)


def task_row(task: TaskState) -> tuple[str, ...]:
    """Return a task's row below `TASK_HEADINGS`."""
    (name, speedup), *others = key_figures(task)
    label = name.partition(", ")[2]
    texts = [text for _name, text in others[: len(TASK_HEADINGS) - 2]]
    return (task.name, f"{speedup}, {label}" if label else speedup, *texts)


def failure_kinds(task: TaskState) -> list[FailureKind]:
    """Return the failures of a task by verdict, the most frequent first."""
    failed = [node for node in task.attempts if not node.verdict.is_correct]
    kinds = []
    for verdict, count in formatting.counts(task).items():
        reasons = dict.fromkeys(
            node.verdict.reason for node in failed if node.verdict.verdict == verdict
        )
        if reasons:
            first = tuple(reasons)[:MAX_REASONS]
            kinds.append(FailureKind(verdict=verdict, count=count, reasons=first))
    return kinds


def tree_steps(task: TaskState) -> Iterator[TreeStep]:
    """Yield the walk over all nodes below the root; with a stack, because a chain can be long."""
    children: dict[int, list[NodeView]] = {}
    for node in task.attempts:
        children.setdefault(node.parent or 0, []).append(node)
    best = task.best.number if task.best else None
    waiting: list[TreeStep | tuple[int, int]] = [(0, 0)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, TreeStep):
            yield item
            continue
        number, depth = item
        below = children.get(number, [])
        if not below or depth >= MAX_TREE_DEPTH:
            continue
        steps: list[TreeStep | tuple[int, int]] = [TreeStep(kind="list")]
        for node in below:
            end = TreeStep(kind="end of node")
            steps += [_node_step(task, node, best), (node.number, depth + 1), end]
        waiting += reversed([*steps, TreeStep(kind="end of list")])


def _node_step(task: TaskState, node: NodeView, best: int | None) -> TreeStep:
    is_best = node.number == best
    return TreeStep(
        kind="node",
        node=node,
        style="best" if is_best else "ok" if node.verdict.is_correct else "bad",
        result=formatting.result(task, node),
        summary=formatting.node_summary(node, TREE_SUMMARY),
        is_best=is_best,
    )


def attempt_rows(task: TaskState) -> Iterator[AttemptRow]:
    """Yield the table of all attempts."""
    best = task.best.number if task.best else None
    for node in task.attempts:
        verdict, first = node.verdict, node.first_verdict
        looks = (first, verdict) if first is not verdict else (verdict,)
        yield AttemptRow(
            node=node,
            first_look=formatting.speedup(first) if first.is_correct else "",
            confirmed=formatting.speedup(verdict) if node.confirmed else "",
            duration=formatting.duration(task.shown_us(node) if verdict.is_correct else None),
            judged_s=sum(
                look.seconds.build + look.seconds.check + look.seconds.time for look in looks
            ),
            summary=formatting.node_summary(node, TABLE_SUMMARY),
            is_best=node.number == best,
        )


def release_lines(task: TaskState) -> list[str]:
    """Return what the winner passed as a drop-in module, a sentence each; none without a winner."""
    if task.best is None:
        return []
    checked = task.best.verdict.release is not None
    return run_results.release_lines(run_results.release_of(task, task.best), checked=checked)


def case_rows(task: TaskState) -> list[tuple[str, ...]]:
    """Return the table of a task's cases; [] for a task without cases."""
    return [
        (
            row.name,
            f"{row.weight:.2g}",
            row.inputs,
            formatting.duration(row.eager_us),
            formatting.duration(row.median_us) if row.median_us else "–",
            f"{row.speedup:.3g}×" if row.speedup else "–",
            f"{row.speedup_ci95[0]:.3g}–{row.speedup_ci95[1]:.3g}" if row.speedup_ci95 else "–",
        )
        for row in case_results(task)
    ]


def device_facts(snapshot: Snapshot) -> dict[str, str]:
    """Return what is known of the device on which the references were measured."""
    references = [task.reference for task in snapshot.tasks if task.reference]
    if not references:
        return {}
    device = references[0].device
    return {"device": device.name, "fingerprint": device.fingerprint, **device.facts}
