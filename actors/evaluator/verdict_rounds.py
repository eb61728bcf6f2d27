"""Several judgements of one candidate as one: what its best figure is worth.

Each round is a fresh process, so that what differs from start to start (where memory lies, which
pages are huge) is seen, and the interval covers it.
"""

from __future__ import annotations

import math
from statistics import median

from actors.evaluator.timing.timing_statistics import median_interval
from protocol.values import Seconds, Verdict

MIN_SIGN_ROUNDS = 6  # the fewest rounds of which a sign interval holds 95 %


def has_enough(verdicts: list[Verdict], least: int, most: int) -> bool:
    """Whether to stop: one round failed, the interval is not wide, or `most` rounds are done.

    Looked at after every `least` rounds, so that a lucky moment in between does not end it.
    """
    if not verdicts[-1].is_correct or len(verdicts) >= max(least, most):
        return True
    return len(verdicts) % least == 0 and not combine_verdicts(verdicts).is_wide


def combine_verdicts(verdicts: list[Verdict]) -> Verdict:
    """Return the first verdict that is not correct, or one of all of them.

    The figures are the medians.  The interval of a few rounds reaches from the lowest to the
    highest bound; from six rounds on it is the 95 % sign interval of the rounds' own figures, so
    that further rounds make it narrower.
    """
    for verdict in verdicts:
        if not verdict.is_correct:
            return verdict
    first = verdicts[0]
    return Verdict(
        verdict=first.verdict,
        median_us=_median([verdict.median_us for verdict in verdicts]),
        reference_us=_median([verdict.reference_us for verdict in verdicts]),
        speedup=_median([verdict.speedup for verdict in verdicts]),
        speedup_ci95=_interval(verdicts),
        max_error=max((v.max_error for v in verdicts if v.max_error is not None), default=None),
        log=first.log,
        profile=first.profile,
        seconds=Seconds(
            build=sum(verdict.seconds.build for verdict in verdicts),
            check=sum(verdict.seconds.check for verdict in verdicts),
            time=sum(verdict.seconds.time for verdict in verdicts),
        ),
        sandbox_level=min(verdict.sandbox_level for verdict in verdicts),
        device=first.device,
    )


def _interval(verdicts: list[Verdict]) -> tuple[float, float] | None:
    ratios = [verdict.speedup for verdict in verdicts if verdict.speedup is not None]
    if len(ratios) >= MIN_SIGN_ROUNDS:
        inside = median_interval([math.log(ratio) for ratio in ratios])
        return inside and (math.exp(inside[0]), math.exp(inside[1]))
    bounds = [verdict.speedup_ci95 for verdict in verdicts if verdict.speedup_ci95]
    if not bounds:
        return None
    # A round without an interval of its own is covered by its figure at least.
    bounds += [(ratio, ratio) for ratio in ratios]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _median(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return median(known) if known else None
