"""The figures of a comparison: what each variation wins, with intervals over the seeds.  Pure.

A task's *gain* is what its user gets: the speed-up of the winner, or 1 where no candidate is faster
with its whole interval.  A run's gain is the geometric mean over its tasks.  A variation's is
the geometric mean over its runs, with the 95 % interval of Student's t over the runs' logarithms:
seeds are the only thing that is repeated, so tasks are not taken as a sample of all tasks.  Two
variations are compared seed by seed.  While runs are under way, a task of a seed counts where each
variation of that seed has a judged attempt for it, so that all count the same tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from msgspec.structs import replace

from actors.supervisor.reporting.run_data.unit_costs import saved_percent
from protocol.values import Value
from scripts.tables.result_rows import ProblemRow, ProblemState, RunRows
from scripts.tables.table_metrics import mean_price

# The 97.5 % quantile of Student's t, for 1 to 30 degrees of freedom; beyond that the normal one.
T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
NORMAL_QUANTILE = 1.96
DIFFERENT = 1.02  # a ratio of two gains from which on one of them is larger

SeedRuns = Mapping[int, RunRows]  # by seed


class Estimate(Value, frozen=True, kw_only=True):
    """A ratio with its 95 % interval over seeds; no interval with fewer than two seeds."""

    value: float
    interval: tuple[float, float] | None = None


class VariationFigures(Value, frozen=True, kw_only=True):
    """All figures of one variation."""

    runs: int
    tasks: int  # of each run
    unfinished: int  # tasks of all runs
    left_out: int  # of these: without a judged attempt here or in another variation of the seed
    gain: Estimate | None  # None: nothing is judged
    against_first: Estimate | None  # the gain over the first variation's, seed by seed
    pairs: tuple[int, int] | None  # tasks of seeds in which the gain is larger, smaller than that
    success: float | None  # share of tasks with a correct candidate
    fast: float | None  # share of tasks with a faster one
    correct_rate: float | None  # of attempts
    attempts: int
    asked: int  # attempts of all runs when they are finished
    usd: float | None  # a task, on average; None as soon as one price is unknown
    minutes: float | None  # a task, on average
    usd_per_percent: float | None  # for each 1 % saved of the time of the tasks that count


def comparable(runs_by_label: Mapping[str, SeedRuns]) -> dict[str, SeedRuns]:
    """Return the runs with the tasks that are judged in all variations of their seed."""
    judged: dict[int, set[str]] = {}
    for runs in runs_by_label.values():
        for seed, run in runs.items():
            tasks = {row.task for row in run.rows if is_judged(row)}
            judged[seed] = judged.get(seed, tasks) & tasks
    return {
        label: {
            seed: replace(run, rows=tuple(r for r in run.rows if r.task in judged[seed]))
            for seed, run in runs.items()
        }
        for label, runs in runs_by_label.items()
    }


def variation_figures(runs: SeedRuns, counted: SeedRuns, first: SeedRuns) -> VariationFigures:
    """Return a variation's figures.

    `counted`: its runs with the tasks that count; `first`: those that it is compared with.
    """
    every = [row for run in runs.values() for row in run.rows]
    rows = [row for run in counted.values() for row in run.rows]
    attempts = sum(row.attempts for row in every)
    usd = mean_price([row.usd for row in every if row.attempts or row.usd])
    spent = mean_price([row.usd for row in rows])  # on the tasks whose gain counts
    minutes = [row.minutes for row in every if row.minutes is not None]
    gain = estimate([run_gain(run) for run in counted.values() if run.rows])
    shared = sorted(seed for seed in {*counted} & {*first} if counted[seed].rows)
    saved = saved_percent(gain.value) if gain is not None else 0.0
    is_first = counted is first
    return VariationFigures(
        runs=len(runs),
        tasks=len(next(iter(runs.values())).rows),
        unfinished=sum(row.state is ProblemState.UNFINISHED for row in every),
        left_out=len(every) - len(rows),
        gain=gain,
        against_first=(
            None
            if is_first
            else estimate([run_gain(counted[seed]) / run_gain(first[seed]) for seed in shared])
        ),
        pairs=None if is_first or not shared else _pairs(counted, first, shared),
        success=fmean(row.correct > 0 for row in rows) if rows else None,
        fast=fmean(gain_of(row) > 1 for row in rows) if rows else None,
        correct_rate=sum(row.correct for row in every) / attempts if attempts else None,
        attempts=attempts,
        asked=sum(run.budget * len(run.rows) for run in runs.values()),
        usd=usd,
        minutes=fmean(minutes) if minutes else None,
        usd_per_percent=spent / saved if spent is not None and saved > 0 else None,
    )


def _pairs(runs: SeedRuns, first: SeedRuns, seeds: Sequence[int]) -> tuple[int, int]:
    """Return in how many tasks of seeds a gain is larger, and smaller, than the first one's."""
    ratios = [
        gain_of(row) / gain_of(other)
        for seed in seeds
        for row, other in zip(runs[seed].rows, first[seed].rows, strict=True)
    ]
    larger = sum(ratio > DIFFERENT for ratio in ratios)
    return larger, sum(ratio < 1 / DIFFERENT for ratio in ratios)


def is_judged(row: ProblemRow) -> bool:
    """Whether a task has a judged attempt, or is over without one."""
    return row.attempts > 0 or row.state is not ProblemState.UNFINISHED


def gain_of(row: ProblemRow) -> float:
    """Return a task's gain."""
    return max(1.0, row.speed_eager or 1.0) if row.is_winner else 1.0


def run_gain(run: RunRows) -> float:
    """Return the geometric mean of a run's gains."""
    return math.exp(fmean(math.log(gain_of(row)) for row in run.rows))


def task_rows(runs: SeedRuns, task: str) -> list[ProblemRow]:
    """Return the rows of one task, one for each seed."""
    return [row for run in runs.values() for row in run.rows if row.task == task]


def estimate(ratios: Sequence[float]) -> Estimate | None:
    """Return the geometric mean of ratios, with Student's interval of their logarithms.

    Runs that found nothing faster have gains of 1, and no scatter to tell an interval from.
    """
    if not ratios:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    middle = fmean(logs)
    if len(logs) < 2 or not any(logs):
        return Estimate(value=math.exp(middle))
    freedom = len(logs) - 1
    quantile = T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else NORMAL_QUANTILE
    reach = quantile * stdev(logs) / math.sqrt(len(logs))
    return Estimate(
        value=math.exp(middle), interval=(math.exp(middle - reach), math.exp(middle + reach))
    )
