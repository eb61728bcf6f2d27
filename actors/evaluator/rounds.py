"""Several judgements of one candidate as one: what its best figure is worth.

Each round is a fresh process, so that what differs from start to start (where memory lies, which
pages are huge) is seen, and the interval covers it.
"""

from __future__ import annotations

from statistics import median

from protocol.values import Seconds, Verdict


def combined(verdicts: list[Verdict]) -> Verdict:
    """Return the first verdict that is not correct, or one that covers all of them.

    The figures are the medians; the interval reaches from the lowest to the highest bound.
    """
    for verdict in verdicts:
        if not verdict.correct:
            return verdict
    first = verdicts[0]
    bounds = [verdict.speedup_ci95 for verdict in verdicts if verdict.speedup_ci95]
    return Verdict(
        verdict=first.verdict,
        median_us=_median([verdict.median_us for verdict in verdicts]),
        reference_us=_median([verdict.reference_us for verdict in verdicts]),
        speedup=_median([verdict.speedup for verdict in verdicts]),
        speedup_ci95=(min(low for low, _ in bounds), max(high for _, high in bounds))
        if bounds
        else None,
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


def _median(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return median(known) if known else None
