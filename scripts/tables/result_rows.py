"""Rows: one for each problem, read from a run's database, as text and figures.

A row has the state of its problem, also without a result.  A figure that was not measured is null.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from enum import StrEnum
from pathlib import Path

import msgspec

from actors.cli import UsageError
from actors.supervisor.reporting.run_data import formatting, run_folder_integrity, run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.run_results import BestResult, TaskResult
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from protocol import settings as settings_file
from protocol.run_db import RUN_DB, read_only_uri
from protocol.settings import Settings
from protocol.values import Value
from scripts.tables.problems import ProblemOrigin, origin_of


class ProblemState(StrEnum):
    """The result of a problem."""

    SOLVED = "solved"  # a correct candidate was found
    UNSOLVED = "unsolved"  # the budget ended without one
    UNMEASURED = "unmeasured"  # its reference can't be measured on this machine
    UNFINISHED = "unfinished"  # the run is not over


class ProblemRow(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One problem under one strategy."""

    level: int
    problem: int
    name: str
    task: str
    state: ProblemState
    reason: str = ""  # why there is no candidate
    attempts: int = 0
    compiled: int = 0
    correct: int = 0
    verdicts: dict[str, int] = msgspec.field(default_factory=dict)
    best_us: float | None = None
    eager_us: float | None = None
    compile_us: float | None = None
    max_autotune_us: float | None = None
    speed_eager: float | None = None
    speed_eager_ci95: tuple[float, float] | None = None
    speed_compile: float | None = None
    speed_max_autotune: float | None = None
    usd: float | None = None
    minutes: float | None = None  # of leases: the time of the problem alone
    sandbox_level: int | None = None
    node: int | None = None  # the candidate of the figures
    is_winner: bool = False  # whether that candidate is faster, its whole interval above 1

    @property
    def is_solved(self) -> bool:
        return self.state is ProblemState.SOLVED


class RunRows(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The rows of one run and its settings: the contents of rows.json."""

    strategy: str
    policy: str
    model: str
    budget: int
    seed: int
    device: str
    hardware: str | None = None
    run_minutes: float = 0.0  # wall minutes of the run, all its starts together
    rows: tuple[ProblemRow, ...] = ()

    def of_level(self, level: int) -> tuple[ProblemRow, ...]:
        return tuple(row for row in self.rows if row.level == level)

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(sorted({row.level for row in self.rows}))


def rows_of_run(run_dir: Path, *, any_task: bool = False) -> RunRows:
    """Return the rows of a run, finished or not; raise ValueError when it can't be read.

    `any_task`: a task that is not a problem of KernelBench has level 0 and its place as number.
    """
    settings = settings_file.read(run_dir)
    run_folder_integrity.check_settings(
        run_dir, settings.tasks, run_folder_integrity.check_run_folder(run_dir)
    )
    snapshot = _unsteered_snapshot(run_dir)
    minutes = _minutes(run_dir)
    results = run_results.run_results(snapshot, settings).tasks
    by_task = {
        state.name: (state, result) for state, result in zip(snapshot.tasks, results, strict=True)
    }
    rows = [
        _row(
            _origin(run_dir, task, place, any_task=any_task),
            task,
            by_task.get(task),
            snapshot,
            minutes.get(task),
        )
        for place, task in enumerate(settings.tasks, start=1)
    ]
    return RunRows(
        strategy=settings.strategy,
        policy=settings.requested_policy or "no policy",
        model=_models(settings),
        budget=settings.search.budget,
        seed=settings.seed,
        device=settings.device,
        hardware=next((result.hardware for result in results if result.hardware), None),
        run_minutes=round(snapshot.seconds / 60, 2),
        rows=tuple(rows),
    )


def _unsteered_snapshot(run_dir: Path) -> Snapshot:
    """Return the run as it is; raise UsageError for one that a person steered."""
    reader = RunReader(run_dir)
    try:
        snapshot = reader.poll() or Snapshot()
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{run_dir / RUN_DB} can't be read: {error}") from error
    finally:
        reader.close()
    if snapshot.person:
        raise UsageError(
            f"{run_dir} was steered by a person ({formatting.person_line(snapshot.person)}): the"
            " tables compare searches without help; run the problems again in another folder"
        )
    return snapshot


def _origin(run_dir: Path, task: str, place: int, *, any_task: bool) -> ProblemOrigin:
    origin = origin_of(task)
    if origin is None and any_task:
        return ProblemOrigin(level=0, number=place, name=task)
    if origin is None:
        raise ValueError(f"{run_dir}: task {task} is not a problem of KernelBench")
    return origin


def _row(
    origin: ProblemOrigin,
    task: str,
    task_result: tuple[TaskState, TaskResult] | None,
    snapshot: Snapshot,
    minutes: float | None,
) -> ProblemRow:
    row = ProblemRow(
        level=origin.level,
        problem=origin.number,
        name=origin.name,
        task=task,
        state=ProblemState.UNFINISHED,
    )
    if task_result is None:
        return row
    state, result = task_result
    row = msgspec.structs.replace(
        row,
        state=_state(state, result, finished=snapshot.is_finished(state)),
        reason=_reason(state),
        attempts=result.attempts,
        compiled=result.compiled,
        correct=result.correct,
        verdicts=dict(Counter(str(node.verdict.verdict) for node in state.attempts)),
        eager_us=result.reference.eager_us,
        compile_us=result.reference.compile_us,
        max_autotune_us=result.reference.max_autotune_us,
        usd=result.usd,
        minutes=minutes,
        sandbox_level=result.sandbox_level,
        is_winner=result.best is not None,
    )
    best = result.best or result.closest  # KernelBench counts correct ones, faster or not
    return row if best is None else _with_best(row, best)


def _with_best(row: ProblemRow, best: BestResult) -> ProblemRow:
    return msgspec.structs.replace(
        row,
        node=best.node,
        best_us=best.median_us,
        speed_eager=best.speedup_eager,
        speed_eager_ci95=best.speedup_eager_ci95,
        speed_compile=best.speedup_compile,
        speed_max_autotune=best.speedup_max_autotune,
    )


def _state(task: TaskState, result: TaskResult, *, finished: bool) -> ProblemState:
    if task.problem:
        return ProblemState.UNMEASURED
    if not finished:
        return ProblemState.UNFINISHED
    return ProblemState.SOLVED if result.best or result.closest else ProblemState.UNSOLVED


def _reason(task: TaskState) -> str:
    """Return why there is no candidate: the task's problem, or the last attempt's fault."""
    if task.problem:
        return task.problem.removeprefix(f"{task.name}: ")
    if task.best or task.closest or not task.attempts:
        return ""
    last = task.attempts[-1].verdict
    return f"{last.verdict}: {last.reason}" if last.reason else str(last.verdict)


def _minutes(run_dir: Path) -> dict[str, float]:
    """Return the minutes of each task's leases."""
    query = (
        "SELECT substr(work, 1, instr(work, '/') - 1), SUM(ended - granted) FROM lease"
        " WHERE ended IS NOT NULL GROUP BY 1"
    )
    path = run_dir / RUN_DB
    try:
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as database:
            return {task: round(seconds / 60, 3) for task, seconds in database.execute(query)}
    except sqlite3.OperationalError:
        return {}  # no database yet


def _models(settings: Settings) -> str:
    names = [settings.model, settings.planner_model, settings.coder_model, settings.debugger_model]
    return ", ".join(dict.fromkeys(short_model(name) for name in names if name))


def short_model(name: str) -> str:
    """Return a model's name; of a file or a run folder its last part, since the path is private."""
    return name if ":" not in name else f"{name.partition(':')[0]}:{Path(name).name}"
