"""What a run leaves for its user: result.json, best.py, and the exit status.

All from a snapshot of `run.db`.  A figure that was not measured is null, never 0.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Literal

import msgspec

from actors.supervisor.files import write_whole
from actors.supervisor.ledger import Ledger
from actors.supervisor.snapshot import Node, Snapshot, TaskState
from protocol.settings import Settings
from protocol.values import Seconds, Value, Word

RESULT_FILE = "result.json"


class Exit(IntEnum):
    """The exit statuses of the command."""

    FASTER = 0  # a correct candidate at least as fast as the reference was found, for every task
    IDLE = 0  # --until-idle: the roles that run here can do nothing more
    NONE = 1  # the budget ended without one
    USAGE = 2
    STOPPED = 3  # before the end; can be resumed
    FAULT = 4  # that the supervisor could not get over


class BestResult(Value, frozen=True, kw_only=True):
    """The winner's figures."""

    node: int
    median_us: float | None
    speedup_eager: float | None
    speedup_eager_ci95: tuple[float, float] | None
    speedup_compile: float | None
    speedup_max_autotune: float | None


class ReferenceResult(Value, frozen=True, kw_only=True):
    """What the winner is compared with."""

    eager_us: float | None
    compile_us: float | None
    max_autotune_us: float | None


class TaskResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One object under `tasks` in result.json; its keys are fixed."""

    task: str
    status: Literal["finished", "stopped"]
    device: str
    hardware: str | None
    model: str
    strategy: str
    policy: str | None  # null: the strategy asks none
    seed: int
    budget: int
    attempts: int
    compiled: int
    correct: int
    best: BestResult | None
    reference: ReferenceResult
    usd: float | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float
    sandbox_level: int | None  # the weakest that any attempt ran under
    notes: tuple[str, ...] = ()  # why it ended before its budget, what could not be checked

    @property
    def won(self) -> bool:
        """Whether the best candidate is at least as fast as the reference."""
        return (
            self.best is not None
            and self.best.speedup_eager is not None
            and self.best.speedup_eager >= 1.0
        )


class Results(Value, frozen=True, kw_only=True):
    """The whole of result.json."""

    tasks: tuple[TaskResult, ...]


def results(snapshot: Snapshot, settings: Settings) -> Results:
    """Return the results of all tasks as they stand."""
    return Results(tasks=tuple(_task_result(task, snapshot, settings) for task in snapshot.tasks))


def exit_status(found: Results) -> Exit:
    """Return the status of a run: stopped as long as a task is unfinished, else won or not."""
    if not found.tasks or any(task.status == "stopped" for task in found.tasks):
        return Exit.STOPPED
    return Exit.FASTER if all(task.won for task in found.tasks) else Exit.NONE


def to_json(found: Results) -> str:
    """Return result.json's text."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def write_result(run_dir: Path, found: Results) -> None:
    """Write result.json."""
    write_whole(run_dir / RESULT_FILE, to_json(found))


def is_over(run_dir: Path) -> bool:
    """Whether the run in a folder has left its results, and all its tasks are finished."""
    try:
        found = msgspec.json.decode((run_dir / RESULT_FILE).read_bytes(), type=Results)
    except (OSError, ValueError):
        return False
    return bool(found.tasks) and all(task.status == "finished" for task in found.tasks)


def best_file(run_dir: Path, task: str, tasks: int) -> Path:
    """Return where the winner of `task` goes in a run of so many tasks."""
    return run_dir / ("best.py" if tasks == 1 else f"best-{task}.py")


def write_best(run_dir: Path, ledger: Ledger, settings: Settings, task: TaskState) -> Path | None:
    """Write the winner of one task, if there is one; return its path."""
    best = task.best
    if best is None:
        return None
    path = best_file(run_dir, task.name, len(settings.tasks))
    write_whole(path, header(task, best, settings) + ledger.source(task.name, best.number))
    return path


def header(task: TaskState, best: Node, settings: Settings) -> str:
    """Return the comment that a winner carries."""
    verdict = best.verdict
    against = ""
    if verdict.speedup is not None:
        against = f", {verdict.speedup:.2f}× eager PyTorch"
        if verdict.speedup_ci95 is not None:
            low, high = verdict.speedup_ci95
            against += f" (95 %: {low:.2f}–{high:.2f})"
    hardware = _hardware(task)
    lines = (
        f"{task.name}: ModelNew, a drop-in for the task's Model; runs without us.",
        f"{(verdict.median_us or best.score_us or 0.0):.1f} µs a call{against}.",
        f"Measured on {hardware or settings.device}; node {best.number}, by {settings.model}.",
    )
    return "".join(f"# {' '.join(line.split())}\n" for line in lines) + "\n"


def _task_result(task: TaskState, snapshot: Snapshot, settings: Settings) -> TaskResult:
    attempts = task.attempts
    reference = task.reference
    return TaskResult(
        task=task.name,
        status="finished" if snapshot.is_finished(task) else "stopped",
        device=settings.device,
        hardware=_hardware(task) or None,
        model=settings.model,
        strategy=settings.strategy,
        policy=settings.asked_policy,
        seed=settings.seed,
        budget=task.budget,
        attempts=len(attempts),
        compiled=sum(node.verdict.compiled for node in attempts),
        correct=sum(node.verdict.correct for node in attempts),
        best=_best_result(task),
        reference=ReferenceResult(
            eager_us=task.eager_us,
            compile_us=reference.compile_us if reference else None,
            max_autotune_us=reference.max_autotune_us if reference else None,
        ),
        usd=None if task.spend.usd is None else round(task.spend.usd, 6),
        input_tokens=task.spend.input_tokens,
        cached_tokens=task.spend.cached_tokens,
        output_tokens=task.spend.output_tokens,
        seconds=round(snapshot.seconds, 3),
        sandbox_level=min(
            (node.verdict.sandbox_level for node in attempts if _was_judged(node)), default=None
        ),
        notes=task.notes,
    )


def _hardware(task: TaskState) -> str:
    """Return what the winner was measured on; as long as there is none, the reference."""
    best = task.best
    if best is not None and best.verdict.device in task.elsewhere:
        return best.verdict.device
    return task.reference.device.name if task.reference else ""


def _was_judged(node: Node) -> bool:
    """Whether an evaluator made the verdict, so that its sandbox level means something."""
    verdict = node.verdict
    return verdict.verdict is not Word.NO_CANDIDATE and (
        bool(verdict.device) or verdict.seconds != Seconds()
    )


def _best_result(task: TaskState) -> BestResult | None:
    best = task.best
    if best is None:
        return None
    # Compiled references were timed on the reference's device: no ratio across two devices.
    reference = None if best.verdict.device in task.elsewhere else task.reference
    median_us = best.verdict.median_us
    return BestResult(
        node=best.number,
        median_us=median_us,
        speedup_eager=best.verdict.speedup,
        speedup_eager_ci95=best.verdict.speedup_ci95,
        speedup_compile=_ratio(reference.compile_us if reference else None, median_us),
        speedup_max_autotune=_ratio(reference.max_autotune_us if reference else None, median_us),
    )


def _ratio(other_us: float | None, median_us: float | None) -> float | None:
    return other_us / median_us if other_us and median_us else None
