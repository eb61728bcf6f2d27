"""What an attempt costs, and each percent of time that was saved.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.snapshot import TaskState


def saved_percent(speedup: float) -> float:
    """Return the percent of eager's time that is saved; at most 0 for what is not faster."""
    return 100 * (1 - 1 / speedup)


def usd_per_percent(usd: float | None, speedup: float | None) -> float | None:
    """Return dollars for each 1 % of eager's time that is saved; None: nothing is, or no price."""
    if usd is None or speedup is None or speedup <= 1.0:
        return None
    return round(usd / saved_percent(speedup), 6)


def task_cost(task: TaskState) -> tuple[str, str]:
    """Return the texts for an attempt and for 1 % of a task's time; "–": no figure."""
    usd, begun = task.spend.usd, _paid_attempts(task)
    speedup = task.best.verdict.speedup if task.best else None
    return _dollars(usd / begun if usd is not None and begun else None), _dollars(
        usd_per_percent(usd, speedup)
    )


def _paid_attempts(task: TaskState) -> int:
    """Return how many attempts the dollars are for: all with a result, or with a model's call.

    What waits for its first agent, as between two phases of a run, has cost nothing.
    """
    return len(task.attempts) + sum(one.calls > 0 for one in task.under_way)


def cost_line(tasks: Sequence[TaskState]) -> str:
    """`0.0755 USD an attempt, 0.0031 USD for 1 % of a task's time`; "" for what cost nothing.

    With several tasks, their saved percents are added.
    """
    usd = formatting.total_spend([task.spend for task in tasks]).usd
    if not usd:
        return ""
    begun = sum(_paid_attempts(task) for task in tasks)
    speedups = [task.best.verdict.speedup for task in tasks if task.best]
    saved = sum(saved_percent(speedup) for speedup in speedups if speedup and speedup > 1)
    parts = [f"{_dollars(usd / begun)} an attempt"] if begun else []
    parts += [f"{_dollars(usd / saved)} for 1 % of a task's time"] if saved > 0 else []
    return ", ".join(parts)


def spent_line(tasks: Sequence[TaskState]) -> str:
    """Return all that tasks have spent, and what that is for an attempt and for a percent."""
    spent = formatting.spend_line(formatting.total_spend([task.spend for task in tasks]))
    cost = cost_line(tasks)
    return f"{spent}; {cost}" if cost else spent


def _dollars(usd: float | None) -> str:
    return "–" if usd is None else f"{usd:.4f} USD"
