"""Two states of one model compared over whole steps: A B B A, with a bootstrap interval."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec
import torch

from actors.adopt.model_file import synchronize

LEAST_ROUNDS, MOST_ROUNDS = 5, 200
NARROW = 0.01  # half of the interval: more rounds would not change the decision
RESAMPLES = 2000


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """How much faster the second state is: a ratio with its 95 % interval."""

    speedup: float
    low: float
    high: float
    before_ms: float  # a pass over all batches
    after_ms: float
    rounds: int

    def describe(self) -> str:
        """Return "1.23× (1.20–1.26)"."""
        return f"{self.speedup:.3f}× ({self.low:.3f}-{self.high:.3f})".replace("-", "–")


def compare_states(
    before: Callable[[], None],
    after: Callable[[], None],
    run: Callable[[], None],
    device: torch.device,
    seconds: float,
) -> Gain:
    """Time `run` in two states, which `before` and `after` set, in the order A B B A."""
    for state in (before, after):
        state()
        run()
    ratios: list[float] = []
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    while len(ratios) < LEAST_ROUNDS or time.perf_counter() < until:
        spent = [0.0, 0.0]
        for which in (0, 1, 1, 0):
            (before, after)[which]()
            spent[which] += _timed(run, device)
        ratios.append(spent[0] / spent[1])
        times[0].append(spent[0] / 2)
        times[1].append(spent[1] / 2)
        if len(ratios) >= MOST_ROUNDS or (len(ratios) >= LEAST_ROUNDS * 3 and _is_narrow(ratios)):
            break
    low, high = interval(ratios)
    return Gain(
        speedup=statistics.median(ratios),
        low=low,
        high=high,
        before_ms=statistics.median(times[0]),
        after_ms=statistics.median(times[1]),
        rounds=len(ratios),
    )


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median; the generator has a fixed seed."""
    rng = random.Random(0)  # noqa: S311  # a resampling, not a secret
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def _is_narrow(ratios: Sequence[float]) -> bool:
    low, high = interval(ratios)
    return high - low < 2 * NARROW


def _timed(run: Callable[[], None], device: torch.device) -> float:
    synchronize(device)
    begun = time.perf_counter()
    run()
    synchronize(device)
    return (time.perf_counter() - begun) * 1e3
