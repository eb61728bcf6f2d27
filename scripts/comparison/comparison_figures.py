"""The figures of a comparison: what each variation wins, with intervals over the seeds.  Pure.

A task's *gain* is what its user gets: the speed-up of the winner, or 1 where no candidate is faster
with its whole interval.  A run's gain is the geometric mean over its tasks.  A variation's is
the geometric mean over its runs, with the 95 % interval of Student's t over the runs' logarithms:
seeds are the only thing that is repeated, so tasks are not taken as a sample of all tasks.  Two
variations are compared seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from actors.supervisor.reporting.unit_costs import saved_percent
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
    gain: Estimate
    against_first: Estimate | None  # the gain over the first variation's, seed by seed
    success: float  # share of tasks with a correct candidate
    fast: float  # share of tasks with a faster one
    correct_rate: float | None  # of attempts
    attempts: int
    usd: float | None  # a task, on average; None as soon as one price is unknown
    minutes: float | None  # a task, on average
    usd_per_percent: float | None  # for each 1 % of the tasks' time saved


def variation_figures(runs: SeedRuns, first: SeedRuns) -> VariationFigures:
    """Return a variation's figures; `first`: the runs that it is compared with."""
    rows = [row for run in runs.values() for row in run.rows]
    attempts = sum(row.attempts for row in rows)
    prices = [row.usd for row in rows if row.attempts or row.usd]
    usd = mean_price(prices)
    minutes = [row.minutes for row in rows if row.minutes is not None]
    gain = estimate([run_gain(run) for run in runs.values()])
    shared = sorted(set(runs) & set(first))
    saved = saved_percent(gain.value)
    return VariationFigures(
        runs=len(runs),
        tasks=len(next(iter(runs.values())).rows),
        unfinished=sum(row.state is ProblemState.UNFINISHED for row in rows),
        gain=gain,
        against_first=(
            estimate([run_gain(runs[seed]) / run_gain(first[seed]) for seed in shared])
            if runs is not first and shared
            else None
        ),
        success=fmean(row.is_solved for row in rows),
        fast=fmean(gain_of(row) > 1 for row in rows),
        correct_rate=sum(row.correct for row in rows) / attempts if attempts else None,
        attempts=attempts,
        usd=usd,
        minutes=fmean(minutes) if minutes else None,
        usd_per_percent=usd / saved if usd is not None and saved > 0 else None,
    )


def gain_of(row: ProblemRow) -> float:
    """Return a task's gain."""
    return max(1.0, row.speed_eager or 1.0) if row.is_winner else 1.0


def run_gain(run: RunRows) -> float:
    """Return the geometric mean of a run's gains."""
    return math.exp(fmean(math.log(gain_of(row)) for row in run.rows))


def task_gain(runs: SeedRuns, task: str) -> tuple[float, float, float]:
    """Return the lowest, the median and the highest gain of one task over the seeds."""
    gains = [gain_of(row) for run in runs.values() for row in run.rows if row.task == task]
    return min(gains), median(gains), max(gains)


def estimate(ratios: Sequence[float]) -> Estimate:
    """Return the geometric mean of ratios, with Student's interval of their logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    middle = fmean(logs)
    if len(logs) < 2:
        return Estimate(value=math.exp(middle))
    freedom = len(logs) - 1
    quantile = T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else NORMAL_QUANTILE
    reach = quantile * stdev(logs) / math.sqrt(len(logs))
    return Estimate(
        value=math.exp(middle), interval=(math.exp(middle - reach), math.exp(middle + reach))
    )
