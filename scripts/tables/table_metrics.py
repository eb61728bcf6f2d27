"""The figures of a table: counted over the rows of one level under one strategy.  Pure.

This is the definition of how a problem without a candidate counts:

- success and fast_p are shares of all chosen problems, also of those whose reference could not be
  measured; fast_p requires a correct candidate whose speed is above p, as KernelBench counts.
- speed is over the problems that were solved.  `with_fallback` is the mean over all problems where
  an unsolved one counts 1×: its user keeps the reference.
- a problem that was measured but has no time under a baseline (torch.compile can't compile all) is
  left out of that baseline's figures, and `problems` says how many remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, geometric_mean, median

from protocol.values import Value
from scripts.tables.result_rows import ProblemRow, ProblemState

SPEEDUP_STEPS = (1.0, 1.5, 2.0)  # the p of fast_p


class BaselineFigures(Value, frozen=True, kw_only=True):
    """The figures of candidates against one baseline."""

    baseline: str
    problems: int  # with a time under this baseline
    solved: int
    fast: tuple[float, ...]  # shares of `problems`, one for each of SPEEDUP_STEPS
    mean: float | None = None
    median: float | None = None
    geomean: float | None = None
    with_fallback: float | None = None


class LevelFigures(Value, frozen=True, kw_only=True):
    """All figures of one level under one strategy."""

    problems: int
    solved: int
    unmeasured: int
    unfinished: int
    attempts: int
    success: float | None = None
    compile_rate: float | None = None  # of attempts
    correct_rate: float | None = None  # of attempts
    usd: float | None = None  # a problem, on average; None as soon as one price is unknown
    minutes: float | None = None  # a problem, on average
    against: tuple[BaselineFigures, ...] = ()  # measured ones of eager, compile, max-autotune

    def baseline(self, name: str) -> BaselineFigures | None:
        return next((one for one in self.against if one.baseline == name), None)


EAGER, COMPILE, MAX_AUTOTUNE = "eager", "compile", "max-autotune"

_TIMES: dict[str, Callable[[ProblemRow], float | None]] = {
    EAGER: lambda row: row.eager_us,
    COMPILE: lambda row: row.compile_us,
    MAX_AUTOTUNE: lambda row: row.max_autotune_us,
}
_SPEEDS: dict[str, Callable[[ProblemRow], float | None]] = {
    EAGER: lambda row: row.speed_eager,
    COMPILE: lambda row: row.speed_compile,
    MAX_AUTOTUNE: lambda row: row.speed_max_autotune,
}


def level_figures(rows: Sequence[ProblemRow]) -> LevelFigures:
    """Return the figures of these rows."""
    attempts = sum(row.attempts for row in rows)
    solved = sum(row.is_solved for row in rows)
    prices = [row.usd for row in rows if row.attempts or row.usd]
    minutes = [row.minutes for row in rows if row.minutes is not None]
    against = (_against(name, rows) for name in _TIMES)
    return LevelFigures(
        problems=len(rows),
        solved=solved,
        unmeasured=sum(row.state is ProblemState.UNMEASURED for row in rows),
        unfinished=sum(row.state is ProblemState.UNFINISHED for row in rows),
        attempts=attempts,
        success=_share(solved, len(rows)),
        compile_rate=_share(sum(row.compiled for row in rows), attempts),
        correct_rate=_share(sum(row.correct for row in rows), attempts),
        usd=mean_price(prices),
        minutes=fmean(minutes) if minutes else None,
        against=tuple(one for one in against if one is not None),
    )


def _against(name: str, rows: Sequence[ProblemRow]) -> BaselineFigures | None:
    time, speed = _TIMES[name], _SPEEDS[name]
    if not any(time(row) is not None for row in rows):
        return None  # not measured: blank, not zero
    compared = [row for row in rows if row.eager_us is None or time(row) is not None]
    speeds = [value for row in compared if row.is_solved and (value := speed(row)) is not None]
    return BaselineFigures(
        baseline=name,
        problems=len(compared),
        solved=len(speeds),
        fast=tuple(sum(one > p for one in speeds) / len(compared) for p in SPEEDUP_STEPS),
        mean=fmean(speeds) if speeds else None,
        median=median(speeds) if speeds else None,
        geomean=geometric_mean(speeds) if speeds else None,
        with_fallback=(math.fsum(speeds) + len(compared) - len(speeds)) / len(compared),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def mean_price(prices: Sequence[float | None]) -> float | None:
    """Return the mean of prices; None where one of them is unknown."""
    known = [price for price in prices if price is not None]
    return fmean(known) if known and len(known) == len(prices) else None
