"""Laws of the second look: who gets one, what it counts, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from actors.evaluator.build.stage import BuildResult
from actors.evaluator.evaluation import Evaluation
from actors.evaluator.remeasure import judge_twice_if_doubtful
from actors.evaluator.timing import audit
from actors.evaluator.timing.audit import FreshBlock, GroupClaim, TimedBlock
from protocol.values import Outcome, Seconds, Verdict


def claim(us: float, *, fed_us: float = 250.0, reference_us: float = 370.0) -> GroupClaim:
    """A group of a memory-bound kernel: ten fresh calls of either side."""

    def side(known_us: float, fresh_us: float, fed: float) -> tuple[TimedBlock, TimedBlock]:
        fresh = FreshBlock(calls=10, us=fresh_us, fed_us=fed, collected_us=140.0)
        return TimedBlock(us=known_us, fresh=fresh), TimedBlock(us=known_us)

    return GroupClaim(
        reference=side(reference_us, reference_us + 8, 250.0),
        candidate=side(us, 378.0, fed_us),
        on_gpu=True,
    )


HONEST = [claim(370.0)] * 8
FED_SLOWLY = [claim(370.0, fed_us=360.0)] * 8
REMEMBERS = [claim(30.0)] * 8


class Told:
    """A trial that comes out as it is told to."""

    built: BuildResult | None = None
    table = None

    def __init__(self, claims: Sequence[GroupClaim], earlier: Sequence[GroupClaim]) -> None:
        self.claims, self.earlier = claims, earlier

    @property
    def doubted(self) -> Sequence[GroupClaim]:
        return self.claims if audit.is_doubtful(self.claims) else ()

    def run(
        self, on_running: Callable[[], None], doing: Callable[[str], None], *, profiled: bool
    ) -> Verdict:
        on_running()
        doing("timing")
        return Verdict(
            verdict=Outcome.CORRECT,
            speedup=audit.audited_timing(audit.counted_groups(self.earlier, self.claims)).speedup,
            seconds=Seconds(build=0.0 if self.earlier else 2.0, check=0.5, time=1.0),
        )


def looked(*trials: Sequence[GroupClaim]) -> tuple[Verdict, int, list[str]]:
    """Return the verdict, how often "running" was said, and what a log heard."""
    left, ran, heard = list(trials), list[int](), list[str]()

    def begin(_built: BuildResult | None, earlier: Sequence[GroupClaim]) -> Evaluation:
        return cast("Evaluation", Told(left.pop(0), earlier))

    verdict, _table = judge_twice_if_doubtful(
        begin, lambda: ran.append(1), lambda _words: None, heard.append, profiled=False
    )
    assert not left
    return verdict, len(ran), heard


def test_an_undoubted_candidate_is_evaluated_once() -> None:
    """Nobody pays for a second look who needs none."""
    verdict, ran, heard = looked(HONEST)
    assert (verdict.speedup, ran, heard) == (pytest.approx(1.0), 1, [])


def test_a_process_that_is_fed_slowly_costs_an_honest_candidate_nothing() -> None:
    """In another process it is not, and is believed; the log says why it took longer."""
    verdict, ran, heard = looked(FED_SLOWLY, HONEST)
    assert verdict.speedup == pytest.approx(1.0)
    assert ran == 1
    assert len(heard) == 1
    assert verdict.seconds == Seconds(build=2.0, check=1.0, time=2.0)


@pytest.mark.parametrize("second", [REMEMBERS, [*REMEMBERS[:5], *HONEST[:3]], HONEST])
def test_a_candidate_that_caches_results_is_not_credited(second: Sequence[GroupClaim]) -> None:
    """Neither if it does so again, or now and then, nor if it behaves while it is looked at."""
    verdict, _ran, _heard = looked(REMEMBERS, second)
    assert verdict.speedup is not None
    assert verdict.speedup < 1.1
