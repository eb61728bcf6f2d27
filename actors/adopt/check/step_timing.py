"""Two states of one model compared over whole steps: A B B A, with a bootstrap interval."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import msgspec
import torch

from actors.adopt.model.host_clocks import waited_seconds
from actors.adopt.model.model_file import synchronize

LEAST_ROUNDS, MOST_ROUNDS = 6, 300
NARROW = 0.01  # half of the interval: more rounds would not change the decision
MORE_TIME = 2.0  # times the given seconds, once, for a gain that noise may hide
RESAMPLES = 1000
Step = Callable[[], object]
Round = list[tuple[float, float]]  # for each step: ms before and after, each of two


def timed_steps(steps: Sequence[Step], pass_s: float, seconds: float) -> list[Step]:
    """Return the steps that a comparison times: evenly spread ones where not all fit its time.

    `pass_s`: how long all of them take once.  At least one, so that very long steps take longer.
    """
    most_s = (1 + MORE_TIME) * seconds
    room = most_s / (4 * LEAST_ROUNDS * pass_s) if pass_s else 1.0
    count = min(len(steps), max(1, int(len(steps) * room)))
    return [steps[number * len(steps) // count] for number in range(count)]


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
    steps: Sequence[Step],
    device: torch.device,
    seconds: float,
) -> Gain:
    """Time each of `steps` in two states, which `before` and `after` set, in the order A B B A.

    The two states of one step follow each other at once: what else the machine does hits both.
    """
    for state in (before, after):
        for step in steps:
            state()
            step()
    rounds: list[Round] = []
    until, is_longer = time.perf_counter() + seconds, False
    while True:
        if len(rounds) >= LEAST_ROUNDS and time.perf_counter() >= until:
            if is_longer or not is_undecided(rounds):
                break
            # Decided once: stopping as soon as noise leaves 1 would take noise for a gain.
            until, is_longer = until + MORE_TIME * seconds, True
        rounds.append([_pair(before, after, step, device) for step in steps])
        enough = len(rounds) >= LEAST_ROUNDS * 3 and len(rounds) % LEAST_ROUNDS == 0
        if len(rounds) >= MOST_ROUNDS or (enough and _is_narrow(rounds)):
            break
    low, high = interval(rounds)
    before_ms, after_ms = pass_ms(rounds)
    return Gain(
        speedup=before_ms / after_ms,
        low=low,
        high=high,
        before_ms=before_ms,
        after_ms=after_ms,
        rounds=len(rounds),
    )


def pass_ms(rounds: Sequence[Round]) -> tuple[float, float]:
    """Return the time of a pass in both states: each step's median, added up."""
    columns = list(zip(*rounds, strict=True))
    return (
        sum(statistics.median(pair[0] for pair in column) for column in columns),
        sum(statistics.median(pair[1] for pair in column) for column in columns),
    )


def interval(rounds: Sequence[Round]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the speed-up; the generator has a fixed seed."""
    times = torch.tensor(rounds, dtype=torch.float64)  # round, step, state
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(rounds), (RESAMPLES, len(rounds)), generator=generator)
    passes = times[chosen].quantile(0.5, dim=1).sum(1)  # resample, state
    found = (passes[:, 0] / passes[:, 1]).sort().values
    return float(found[int(0.025 * RESAMPLES)]), float(found[int(0.975 * RESAMPLES)])


def is_undecided(rounds: Sequence[Round]) -> bool:
    """Whether the second state seems faster by more than a trifle, and the interval holds 1."""
    before_ms, after_ms = pass_ms(rounds)
    low, _ = interval(rounds)
    return low <= 1.0 and before_ms > after_ms * (1 + NARROW)


def _is_narrow(rounds: Sequence[Round]) -> bool:
    low, high = interval(rounds)
    return high - low < 2 * NARROW


def _pair(
    before: Callable[[], None], after: Callable[[], None], step: Step, device: torch.device
) -> tuple[float, float]:
    """Return the times of one step in both states: A B B A."""
    spent = [0.0, 0.0]
    for which in (0, 1, 1, 0):
        (before, after)[which]()
        spent[which] += _timed(step, device)
    return spent[0] / 2, spent[1] / 2


def _timed(step: Step, device: torch.device) -> float:
    """Return the milliseconds of a step.

    On a CPU without those in which it was ready and other programs had the processors.
    """
    synchronize(device)
    begun = time.perf_counter()
    before = waited_seconds()
    step()
    synchronize(device)
    waited = waited_seconds() - before if device.type == "cpu" else 0.0
    # This clock's readings are outside: what is waited between two readings can't be too much.
    return (time.perf_counter() - begun - waited) * 1e3
