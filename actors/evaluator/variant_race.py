"""The variants of one candidate, raced by successive halving; the best ones are judged in full.

A candidate may declare a small space of values (`actors/tune_space.py`).  All its variants are
built, checked on one draw and timed roughly by their own processes.  Of those near the fastest, at
most a quarter are timed again for longer: a trial's process costs more than its timing.  A variant
that fails leaves the race.  The fastest one is then judged as any candidate is, so a race can't be
won by a lie that a single candidate could not tell.  If it is wrong in the full check or in a
timed call, the next best is judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from actors.tune_space import Assignment, TuneSpace, TuneSpaceError, tune_space, with_values
from protocol.values import Outcome, Seconds, Value, VariantResult, Verdict

FIRST_ROUND_S = 0.1  # of timing; each further round has `TIME_FACTOR` times that
TIME_FACTOR = 2
FACTOR = 4  # fewer variants in each round
NEAR_THE_FASTEST = 1.05  # times its time: a slower variant leaves the race
MAX_RACE_S = 120.0  # after that the best so far is judged, for the evaluator is wanted elsewhere
MAX_JUDGED = 3  # variants that are judged in full, if the best ones are wrong


class Variant(Value, frozen=True, kw_only=True):
    """One variant: its values and its text."""

    assignment: Assignment
    source: str


class RaceResult(Value, frozen=True, kw_only=True):
    """What each variant gave in a race, and in which order they are to be judged in full."""

    ranking: tuple[int, ...]  # places in `variants`, the best first; one at least
    variants: tuple[Variant, ...]
    results: tuple[VariantResult, ...]  # in the same order
    seconds: Seconds  # of all rounds
    unbuilt: Verdict | None = None  # of the best, where no variant could be built

    def judged(self, in_full: Callable[[str], Verdict]) -> Verdict:
        """Return the verdict of the best variant that is right, with the race's results.

        `in_full` judges a text.  If all that are tried fail, the best one's verdict is returned.
        """
        if self.unbuilt is not None:
            return self.verdict_of({self.ranking[0]: self.unbuilt})
        verdicts: dict[int, Verdict] = {}
        for place in self.ranking[:MAX_JUDGED]:
            verdict = verdicts[place] = in_full(self.variants[place].source)
            if verdict.verdict is not Outcome.WRONG and verdict.stage != "check":
                break
        return self.verdict_of(verdicts)

    def verdict_of(self, verdicts: dict[int, Verdict]) -> Verdict:
        """Return the verdict of variants judged in full, in order, with the race's results."""
        last, verdict = list(verdicts.items())[-1]
        shown = verdict if verdict.is_correct else next(iter(verdicts.values()))
        results = tuple(
            _result(variant.assignment, verdicts[place])
            if place in verdicts
            else _with_speedup(self.results[place], verdict.reference_us)
            for place, variant in enumerate(self.variants)
        )
        return msgspec.structs.replace(
            shown,
            variants=results,
            variant=last if verdict.is_correct else None,
            seconds=_sum([self.seconds, *(each.seconds for each in verdicts.values())]),
        )


RunTrials = Callable[[Sequence[str], float], Sequence[Verdict]]


def declared_space(source: str) -> TuneSpace | Verdict | None:
    """Return the space that a candidate declares, None, or the verdict on a literal that is wrong.

    The rules are for the author, so a broken one is the candidate's failure.
    """
    try:
        return tune_space(source)
    except TuneSpaceError as error:
        return Verdict(verdict=Outcome.COMPILE_FAILED, stage="import", reason=str(error))


def variants_of(source: str, space: TuneSpace) -> tuple[Variant, ...]:
    """Return the variants of `source`, at most `MAX_VARIANTS`."""
    return tuple(
        Variant(assignment=one, source=with_values(source, one)) for one in space.assignments()
    )


def race(variants: tuple[Variant, ...], trials: RunTrials) -> RaceResult:
    """Race the variants: `trials` takes texts and the seconds of timing for each.

    It returns their verdicts in order, and may build them at the same time.
    """
    verdicts: dict[int, Verdict] = {}
    spent: list[Seconds] = []
    running = list(range(len(variants)))
    time_s, until = FIRST_ROUND_S, time.monotonic() + MAX_RACE_S
    while len(running) > 1 and time.monotonic() < until:
        answers = trials([variants[number].source for number in running], time_s)
        verdicts |= dict(zip(running, answers, strict=True))
        spent += [answer.seconds for answer in answers]
        ranked = _ranked(running, verdicts)
        limit = NEAR_THE_FASTEST * min((_rank(verdicts[number]) for number in ranked), default=0.0)
        near = [number for number in ranked if _rank(verdicts[number]) <= limit]
        running = near[: -(-len(running) // FACTOR)]
        time_s *= TIME_FACTOR
    others = _ranked([number for number in verdicts if number not in running], verdicts)
    results = tuple(
        _result(variant.assignment, verdicts.get(number)) for number, variant in enumerate(variants)
    )
    is_built = any(each.stage not in ("build", "import") for each in verdicts.values())
    return RaceResult(
        # Where every variant failed, the first one's failure is shown.
        ranking=(*running, *others) or (0,),
        # A build is the same in a race and without it.
        unbuilt=None if is_built or not verdicts else verdicts[0],
        variants=variants,
        results=results,
        seconds=_sum(spent),
    )


def _ranked(numbers: Sequence[int], verdicts: dict[int, Verdict]) -> list[int]:
    """Return the variants that are correct, the fastest first."""
    correct = [number for number in numbers if verdicts[number].is_correct]
    return sorted(correct, key=lambda number: _rank(verdicts[number]))


def _sum(parts: Sequence[Seconds]) -> Seconds:
    return Seconds(
        build=round(sum(part.build for part in parts), 3),
        check=round(sum(part.check for part in parts), 3),
        time=round(sum(part.time for part in parts), 3),
    )


def _rank(verdict: Verdict) -> float:
    """Return what variants are sorted by, smaller is better: they share one reference.

    Without a time of the reference, which a trial does not take, it is the variant's own time.
    """
    if verdict.speedup:
        return 1 / verdict.speedup
    return verdict.median_us or float("inf")


def _with_speedup(result: VariantResult, reference_us: float | None) -> VariantResult:
    """Return a result whose speed-up is against the reference's time beside the judged variant."""
    if result.median_us is None or reference_us is None:
        return result
    return msgspec.structs.replace(result, speedup=reference_us / result.median_us)


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
