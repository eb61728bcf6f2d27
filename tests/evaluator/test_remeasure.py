"""A second evaluation in a new process: when it happens, what it counts, what the log says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from evaluator_samples import ContextRecorder

from actors.evaluator.evaluation import Evaluation
from actors.evaluator.session import evaluate_twice_if_doubtful
from actors.evaluator.timing import audit
from actors.evaluator.timing.audit import FreshBlock, GroupClaim, TimedBlock
from actors.work_context import EvaluationContext
from protocol.values import Outcome, Seconds, Verdict


def claim(us: float, *, input_us: float = 250.0, reference_us: float = 370.0) -> GroupClaim:
    """A group of a memory-bound kernel: ten fresh calls of either side."""

    def side(known_us: float, fresh_us: float, transfer_us: float) -> tuple[TimedBlock, TimedBlock]:
        fresh = FreshBlock(calls=10, us=fresh_us, input_us=transfer_us, output_us=140.0)
        return TimedBlock(us=known_us, fresh=fresh), TimedBlock(us=known_us)

    return GroupClaim(
        reference=side(reference_us, reference_us + 8, 250.0),
        candidate=side(us, 378.0, input_us),
        on_gpu=True,
    )


HONEST = [claim(370.0)] * 8
SLOW_INPUTS = [claim(370.0, input_us=360.0)] * 8
CACHED_RESULTS = [claim(30.0)] * 8


class ScriptedEvaluation:
    """An evaluation whose processes claim what the script says, one after the other."""

    kernel_profile = None

    def __init__(
        self, script: list[Sequence[GroupClaim]], earlier: Sequence[GroupClaim] = ()
    ) -> None:
        self._script, self._earlier = script, earlier
        self._claims = script.pop(0)

    @property
    def doubted_claims(self) -> Sequence[GroupClaim]:
        return self._claims if audit.is_doubtful(self._claims) else ()

    def in_new_process(self) -> ScriptedEvaluation:
        return ScriptedEvaluation(self._script, self.doubted_claims)

    def run(self, context: EvaluationContext) -> Verdict:
        context.candidate_running()
        context.set_activity("timing")
        claims = audit.counted_groups(self._earlier, self._claims)
        return Verdict(
            verdict=Outcome.CORRECT,
            speedup=audit.audited_timing(claims).speedup,
            seconds=Seconds(build=0.0 if self._earlier else 2.0, check=0.5, time=1.0),
        )


def evaluated(*script: Sequence[GroupClaim]) -> tuple[Verdict, list[str], list[str]]:
    """Return verdict, reports and log lines, when processes claim what the script says."""
    claims, lines, context = list(script), list[str](), ContextRecorder()
    evaluation = cast("Evaluation", ScriptedEvaluation(claims))
    verdict, _profile = evaluate_twice_if_doubtful(evaluation, context, lines.append)
    assert not claims
    return verdict, context.reports, lines


def test_an_undoubted_candidate_is_evaluated_once() -> None:
    """A candidate without a doubt does not pay for a second evaluation."""
    verdict, reports, lines = evaluated(HONEST)
    assert (verdict.speedup, reports, lines) == (pytest.approx(1.0), ["running", "timing"], [])


def test_a_process_with_slow_input_transfer_costs_an_honest_candidate_nothing() -> None:
    """Its second process is not slow, and is believed; the log says why it took longer."""
    verdict, reports, lines = evaluated(SLOW_INPUTS, HONEST)
    assert verdict.speedup == pytest.approx(1.0)
    assert reports == ["running", "timing", "timing"]  # it is charged once
    assert len(lines) == 1
    assert verdict.seconds == Seconds(build=2.0, check=1.0, time=2.0)


@pytest.mark.parametrize("second", [CACHED_RESULTS, [*CACHED_RESULTS[:5], *HONEST[:3]], HONEST])
def test_a_candidate_that_caches_results_is_not_credited(second: Sequence[GroupClaim]) -> None:
    """Caching again, caching now and then, and honesty in the second process gain nothing."""
    verdict, _reports, _lines = evaluated(CACHED_RESULTS, second)
    assert verdict.speedup is not None
    assert verdict.speedup < 1.1
