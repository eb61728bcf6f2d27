"""Laws of the second look: who gets one, what it counts, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from actors.evaluator import proofs
from actors.evaluator.build import Built
from actors.evaluator.proofs import Block, Claim, Fresh
from actors.evaluator.second_look import tried
from actors.evaluator.trial import Trial
from protocol.values import Seconds, Verdict, Word


def claim(us: float, *, fed_us: float = 250.0, reference_us: float = 370.0) -> Claim:
    """A group of a memory-bound kernel: ten fresh calls of either side."""

    def side(known_us: float, fresh_us: float, fed: float) -> tuple[Block, Block]:
        fresh = Fresh(calls=10, us=fresh_us, fed_us=fed, collected_us=140.0)
        return Block(us=known_us, fresh=fresh), Block(us=known_us)

    return Claim(
        reference=side(reference_us, reference_us + 8, 250.0),
        candidate=side(us, 378.0, fed_us),
        on_card=True,
    )


HONEST = [claim(370.0)] * 8
FED_SLOWLY = [claim(370.0, fed_us=360.0)] * 8
REMEMBERS = [claim(30.0)] * 8


class Told:
    """A trial that comes out as it is told to."""

    built: Built | None = None
    table = None

    def __init__(self, claims: Sequence[Claim], earlier: Sequence[Claim]) -> None:
        self.claims, self.earlier = claims, earlier

    @property
    def doubted(self) -> Sequence[Claim]:
        return self.claims if proofs.doubtful(self.claims) else ()

    def run(
        self, on_running: Callable[[], None], doing: Callable[[str], None], *, profiled: bool
    ) -> Verdict:
        on_running()
        doing("timing")
        return Verdict(
            verdict=Word.CORRECT,
            speedup=proofs.verified(proofs.counted(self.earlier, self.claims)).speedup,
            seconds=Seconds(build=0.0 if self.earlier else 2.0, check=0.5, time=1.0),
        )


def looked(*trials: Sequence[Claim]) -> tuple[Verdict, int, list[str]]:
    """Return the verdict, how often "running" was said, and what a log heard."""
    left, ran, heard = list(trials), list[int](), list[str]()

    def begin(_built: Built | None, earlier: Sequence[Claim]) -> Trial:
        return cast("Trial", Told(left.pop(0), earlier))

    verdict, _table = tried(
        begin, lambda: ran.append(1), lambda _words: None, heard.append, profiled=False
    )
    assert not left
    return verdict, len(ran), heard


def test_who_is_not_doubted_is_tried_once() -> None:
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
def test_who_remembers_results_is_not_credited(second: Sequence[Claim]) -> None:
    """Neither if it does so again, or now and then, nor if it behaves while it is looked at."""
    verdict, _ran, _heard = looked(REMEMBERS, second)
    assert verdict.speedup is not None
    assert verdict.speedup < 1.1
