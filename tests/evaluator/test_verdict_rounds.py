"""Several rounds as one verdict: it is never better than the worst of them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.worker import EvaluatorWorker, combine_verdicts, has_enough
from actors.work_context import STANDALONE
from protocol.layouts import Nest
from protocol.messages import Evaluate, Evaluated, Lease
from protocol.release import Judged, Release
from protocol.values import (
    MAX_SHOWN_GROUPS,
    Outcome,
    Reference,
    Task,
    TimedGroups,
    Verdict,
)


def correct(speedup: float, width: float) -> Verdict:
    return Verdict(
        verdict=Outcome.CORRECT,
        median_us=100.0 / speedup,
        reference_us=100.0,
        speedup=speedup,
        speedup_ci95=(speedup - width, speedup + width),
        sandbox_level=1,
    )


ROUNDS = st.lists(
    st.builds(correct, st.floats(0.1, 10.0), st.floats(0.0, 0.05)), min_size=1, max_size=5
)


@given(ROUNDS)
def test_the_interval_covers_every_round(verdicts: list[Verdict]) -> None:
    """The interval of a few rounds contains the figure of each round, and the median."""
    combined = combine_verdicts(verdicts)

    assert combined.speedup_ci95 is not None
    low, high = combined.speedup_ci95
    assert all(low <= verdict.speedup <= high for verdict in [*verdicts, combined])


@given(ROUNDS)
def test_one_bad_round_is_the_verdict(verdicts: list[Verdict]) -> None:
    """A candidate that is right two times out of three is not correct."""
    wrong = Verdict(verdict=Outcome.WRONG, reason="output[3]", stage="check")

    assert wrong == combine_verdicts([*verdicts, wrong])


def test_some_groups_of_each_round_are_kept() -> None:
    """A confirmation shows groups of all its rounds, and no more of them than one round's."""
    many = TimedGroups(reference_us=(100.0,) * 60, candidate_us=tuple(map(float, range(1, 61))))
    few = TimedGroups(reference_us=(90.0,), candidate_us=(45.0,))
    rounds = [replace(correct(2.0, 0.1), groups=groups) for groups in (many, few, None)]
    groups = combine_verdicts(rounds).groups

    assert groups is not None
    assert len(groups.reference_us) == len(groups.candidate_us) <= MAX_SHOWN_GROUPS
    assert (100.0, 90.0) == (groups.reference_us[0], groups.reference_us[-1])
    assert combine_verdicts([correct(2.0, 0.1)]).groups is None


def test_a_round_without_an_interval_is_not_left_out() -> None:
    """A busy machine gives a round without an interval; the combined one reaches its figure."""
    unknown = replace(correct(0.7, 0.0), speedup_ci95=None)

    assert (0.7, 1.55) == combine_verdicts([correct(1.5, 0.05), unknown]).speedup_ci95
    assert combine_verdicts([unknown]).speedup_ci95 is None


def test_more_rounds_make_the_interval_narrower() -> None:
    """One outlier does not widen the interval of nine rounds, but does widen that of three."""
    rounds = [correct(2.0 + n / 100, 0.5) for n in range(8)]
    few, many = (
        combine_verdicts([*rounds[:2], correct(0.9, 0.1)]),
        combine_verdicts([*rounds, correct(0.9, 0.1)]),
    )

    assert few.speedup_ci95[0] < 1.0  # type: ignore[index]
    assert (2.0, 2.06) == pytest.approx(many.speedup_ci95)
    assert (few.is_faster, many.is_faster) == (False, True)


@given(st.lists(st.sampled_from([0.96, 1.04]), min_size=3, max_size=9))
def test_two_runs_of_the_same_code_are_measured_to_the_end(ratios: list[float]) -> None:
    """An interval below and above 1 leads to more rounds, unless there were as many as may be."""
    verdicts = [correct(ratio, 0.05) for ratio in ratios]
    wide = combine_verdicts(verdicts).is_wide

    assert has_enough(verdicts, 3, 9) == (
        len(verdicts) == 9 or (len(verdicts) % 3 == 0 and not wide)
    )


@pytest.mark.parametrize(
    ("speedup", "low", "high", "wide"),
    [
        (2.0, 1.9, 2.1, False),
        (2.0, 1.7, 2.3, True),  # more than 8 % to a side
        (1.07, 0.84, 3.02, True),
        (1.03, 0.99, 1.06, True),  # above 1, or not?
        (0.98, 0.95, 1.01, False),  # not faster, and more rounds can't change that
    ],
)
def test_a_wide_interval_leads_to_more_rounds(
    speedup: float, low: float, high: float, wide: bool
) -> None:
    """An interval is wide if it leaves open how large the gain is, or whether there is one."""
    verdict = replace(correct(speedup, 0.0), speedup_ci95=(low, high))

    assert wide == verdict.is_wide
    assert has_enough([verdict] * 3, 3, 9) == (not wide)
    assert has_enough([verdict] * 9, 3, 9)


NOTHING = Nest(kind="list", items=())
RELEASE = Release(
    judged=Judged(
        device="cpu",
        init=NOTHING,
        inputs=NOTHING,
        outputs=NOTHING,
        state=Nest(kind="dict", items=()),
    ),
    limits=("threads",),
)


class ScriptedJudge:
    """Gives verdicts in their order; when they are used up, the work is cancelled."""

    ahead, device = 0, None

    def __init__(self, *verdicts: Verdict, release: Release = RELEASE) -> None:
        self.left = list(verdicts)
        self.found = release
        self.sources: list[object] = []  # what was judged

    def build(self, source: str, modules: object, context: object) -> None:
        """Build nothing."""

    def turn(self, _task: Task, _context: object) -> AbstractContextManager[None]:
        return nullcontext()

    def release(self, task: Task, source: str, context: object) -> Release:
        return self.found

    def judge(self, _task: Task, source: str, _context: object, **_options: object) -> Verdict:
        self.sources.append(source)
        if not self.left:
            raise EvaluationCancelledError
        return self.left.pop(0)

    def inspect(self, task: Task, source: str, verdict: Verdict, context: object) -> Verdict:
        return verdict


def judged(judge: ScriptedJudge, *, is_doubtful: bool = False) -> Verdict | None:
    """Return the verdict of a confirmation of 3 to 9 rounds; None: it was handed back."""
    order = Evaluate(
        lease=Lease(work="t/1/confirm", epoch=1), task=Task(name="t", source=""), source="",
        reference=Reference(eager_us=1.0), rounds=3, most_rounds=9, is_doubtful=is_doubtful,
    )  # fmt: skip
    worker = EvaluatorWorker(judge)  # type: ignore[arg-type]
    answer = worker.work(order, STANDALONE)  # type: ignore[arg-type]
    return answer.verdict if isinstance(answer, Evaluated) else None


def test_a_confirmation_goes_on_while_the_interval_is_wide() -> None:
    """Three rounds that agree, or show a loss, are enough; others are followed by up to six."""
    calm = ScriptedJudge(*[correct(2.0, 0.05)] * 12)
    noisy = ScriptedJudge(*[correct(2.0, 0.5)] * 3, *[correct(1.9, 0.05)] * 9)
    never = ScriptedJudge(*[correct(1.0 + n % 2, 0.3) for n in range(12)])
    slower = ScriptedJudge(*[correct(0.7, 0.2)] * 12)  # wide, and no winner all the same
    for judge, left in ((calm, 9), (noisy, 6), (never, 3), (slower, 9)):
        assert judged(judge) is not None
        assert left == len(judge.left)


def test_a_slower_candidate_has_one_round_and_no_release_checks() -> None:
    """The best of a task may be slower than the module: a second look shows that, or denies it."""
    slower = ScriptedJudge(*[correct(0.7, 0.1)] * 9)
    denied = ScriptedJudge(correct(1.3, 0.1), *[correct(1.2, 0.01)] * 3)
    found, faster = judged(slower, is_doubtful=True), judged(denied, is_doubtful=True)

    assert found is not None
    assert faster is not None
    assert (0.7, None, 8) == (found.speedup, found.release, len(slower.left))
    assert (1.2, RELEASE, 0) == (faster.speedup, faster.release, len(denied.left))


def test_a_confirmation_without_time_for_more_rounds_counts() -> None:
    """Cancelled after the rounds that were asked for: these count. Before: handed back."""
    found = judged(ScriptedJudge(*[correct(2.0, 0.5)] * 4))
    assert found is not None
    assert (1.5, 2.5) == found.speedup_ci95
    assert judged(ScriptedJudge(*[correct(2.0, 0.5)] * 2)) is None


def test_what_is_confirmed_is_the_file_that_is_shipped() -> None:
    """The final figure is that of the drop-in file, with the limits of the release check."""
    judge = ScriptedJudge(*[correct(2.0, 0.01)] * 3)
    found = judged(judge)
    assert found is not None
    assert found.release == RELEASE
    assert all("class ModelNew(Model," in str(source) for source in judge.sources)
    assert all("('threads',)" in str(source) for source in judge.sources)


def test_a_winner_that_is_not_a_drop_in_is_wrong() -> None:
    """It is not timed, its verdict says which check failed, and another node may win."""
    broken = replace(RELEASE, failed={"state dict": "load_state_dict: off by 1"})
    judge = ScriptedJudge(correct(2.0, 0.01), release=broken)
    found = judged(judge)
    assert found is not None
    assert found.verdict is Outcome.WRONG
    assert "state dict: load_state_dict: off by 1" in found.reason
    assert not judge.sources
