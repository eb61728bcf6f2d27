"""Several judgements as one: nothing is made better than the worst of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.rounds import combined
from protocol.values import Verdict, Word


def correct(speedup: float, width: float) -> Verdict:
    return Verdict(
        verdict=Word.CORRECT,
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
    """Each round's figure lies within the interval that is reported, and so does the median."""
    whole = combined(verdicts)

    assert whole.speedup_ci95 is not None
    low, high = whole.speedup_ci95
    assert all(low <= verdict.speedup <= high for verdict in [*verdicts, whole])


@given(ROUNDS)
def test_one_bad_round_is_the_verdict(verdicts: list[Verdict]) -> None:
    """A candidate that is right two times out of three is not correct."""
    wrong = Verdict(verdict=Word.WRONG, reason="output[3]", stage="check")

    assert wrong == combined([*verdicts, wrong])
