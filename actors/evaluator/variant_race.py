"""The variants of one candidate, raced by successive halving; the best one is judged in full.

A candidate may declare a small space of values (`actors/tune_space.py`).  All its variants are
built, checked and timed roughly by their own processes.  Of those near the fastest, at most a
quarter are timed again for four times as long, and so on: a trial's process and check cost more
than its timing.  A variant that fails leaves the race.  The chosen one is judged as any candidate
is, so a race can't be won by a lie that a single candidate could not tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from actors.tune_space import Assignment, TuneSpace, TuneSpaceError, tune_space, with_values
from protocol.values import Outcome, Seconds, Value, VariantResult, Verdict

FIRST_ROUND_S = 0.1  # of timing; each further round has `FACTOR` times that
FACTOR = 4  # fewer variants in each round
NEAR_THE_FASTEST = 1.1  # times its time: a slower variant leaves the race
MAX_RACE_S = 120.0  # after that the best so far is judged, for the evaluator is wanted elsewhere


class Variant(Value, frozen=True, kw_only=True):
    """One variant: its values and its text."""

    assignment: Assignment
    source: str


class RaceResult(Value, frozen=True, kw_only=True):
    """The variant to judge in full, and what each variant gave."""

    chosen: int  # place in `variants`
    variants: tuple[Variant, ...]
    results: tuple[VariantResult, ...]  # in the same order
    seconds: Seconds  # of all rounds

    @property
    def source(self) -> str:
        """The chosen variant's text."""
        return self.variants[self.chosen].source

    def attach_to(self, verdict: Verdict) -> Verdict:
        """Return the chosen variant's verdict with the results and the cost of the race."""
        return msgspec.structs.replace(
            verdict,
            variants=self.results,
            variant=self.chosen if verdict.is_correct else None,
            seconds=_sum([self.seconds, verdict.seconds]),
        )


JudgeVariants = Callable[[Sequence[str], float], Sequence[Verdict]]


def declared_space(source: str) -> TuneSpace | Verdict | None:
    """Return the space that a candidate declares, None, or the verdict on a literal that is wrong.

    The rules are for the author, so a broken one is the candidate's failure.
    """
    try:
        return tune_space(source)
    except TuneSpaceError as error:
        return Verdict(verdict=Outcome.COMPILE_FAILED, stage="import", reason=str(error))


def race(source: str, space: TuneSpace, judge: JudgeVariants) -> RaceResult:
    """Race the variants of `source`.

    `judge` takes texts and the seconds of timing for each, and returns their verdicts in order; it
    may build them at the same time.
    """
    variants = tuple(
        Variant(assignment=one, source=with_values(source, one)) for one in space.assignments()
    )
    verdicts: dict[int, Verdict] = {}
    spent: list[Seconds] = []
    running = list(range(len(variants)))
    time_s, until = FIRST_ROUND_S, time.monotonic() + MAX_RACE_S
    while len(running) > 1:
        answers = judge([variants[number].source for number in running], time_s)
        verdicts |= dict(zip(running, answers, strict=True))
        spent += [answer.seconds for answer in answers]
        correct = [number for number in running if verdicts[number].is_correct]
        if not correct or time.monotonic() > until:
            running = sorted(correct, key=lambda number: _rank(verdicts[number]))[:1]
            break
        ranked = sorted(correct, key=lambda number: _rank(verdicts[number]))
        limit = NEAR_THE_FASTEST * _rank(verdicts[ranked[0]])
        near = [number for number in ranked if _rank(verdicts[number]) <= limit]
        running = near[: -(-len(running) // FACTOR)]
        time_s *= FACTOR
    results = tuple(
        _result(variant.assignment, verdicts.get(number)) for number, variant in enumerate(variants)
    )
    return RaceResult(
        chosen=_chosen(running, verdicts), variants=variants, results=results, seconds=_sum(spent)
    )


def _sum(parts: Sequence[Seconds]) -> Seconds:
    return Seconds(
        build=round(sum(part.build for part in parts), 3),
        check=round(sum(part.check for part in parts), 3),
        time=round(sum(part.time for part in parts), 3),
    )


def _chosen(running: Sequence[int], verdicts: dict[int, Verdict]) -> int:
    """Return the winner, or where every variant failed, the first: its failure is shown."""
    return running[0] if running else min(verdicts, default=0)


def _rank(verdict: Verdict) -> float:
    """Return what variants are sorted by, smaller is better: they share one reference."""
    return 1 / verdict.speedup if verdict.speedup else float("inf")


def _result(assignment: Assignment, verdict: Verdict | None) -> VariantResult:
    """Return what a variant gave in the last round that it was in."""
    values = {name: str(value) for name, value in assignment}
    if verdict is None:  # the only one: it is judged in full at once
        return VariantResult(values=values)
    return VariantResult(
        values=values,
        verdict=verdict.verdict,
        reason=verdict.reason[:200],
        median_us=verdict.median_us,
        speedup=verdict.speedup,
    )
