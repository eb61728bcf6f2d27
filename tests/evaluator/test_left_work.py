"""Work that goes on when the stream of a candidate's calls is done is found, and nothing else."""

from __future__ import annotations

import pytest

from actors.evaluator.timing.left_work import LeftWork
from actors.evaluator.timing.timing_policy import POLICY

BLOCKS = POLICY.left_blocks
NOTHING = [5e-6] * BLOCKS  # what it takes to see that a card is idle


def left(reference_s: list[float], candidate_s: list[float]) -> LeftWork:
    """Return what blocks of both sides left."""
    made = LeftWork()
    for reference, candidate in zip(reference_s, candidate_s, strict=True):
        made.add("reference", reference)
        made.add("candidate", candidate)
    return made


@pytest.mark.parametrize(
    ("reference_s", "candidate_s", "is_too_much"),
    [
        (NOTHING, [90e-6] * BLOCKS, True),
        (NOTHING, NOTHING, False),
        (NOTHING, [30e-6] * BLOCKS, False),  # less than a part of a call
        # Another program has the card, once and always.
        (NOTHING, [2e-3] * (BLOCKS - 1) + [5e-6], False),
        ([2e-3] * BLOCKS, [2e-3] * BLOCKS, False),
        ([5e-6] * (BLOCKS - 1) + [2e-3], [1e-3] * BLOCKS, False),
        ([5e-6] * 3, [90e-6] * 3, False),  # few blocks say nothing
        # Only the last blocks count: the first ones prepare.
        (NOTHING * 2, [90e-6] * BLOCKS + NOTHING, False),
    ],
)
def test_only_what_each_block_leaves_accuses(
    reference_s: list[float], candidate_s: list[float], *, is_too_much: bool
) -> None:
    """Calls on side streams that are not joined overlap: they were 1.3 to 1.5 times as fast."""
    assert left(reference_s, candidate_s).is_too_much(100e-6) is is_too_much


def test_short_calls_are_not_accused_for_what_waiting_takes() -> None:
    """A part of a call of some microseconds is less than two waits of the host differ by."""
    assert not left(NOTHING, [20e-6] * BLOCKS).is_too_much(10e-6)


def test_what_seeing_an_idle_card_takes_after_a_long_wait_is_not_left_work() -> None:
    """Kernels of 100 µs beside a reference that keeps launching were rejected on an H200."""
    found = left([20e-6, 26e-6, 18e-6, 25e-6, 22e-6, 19e-6], [65e-6, 70e-6, 98e-6] * 2)
    assert found.is_too_much(100e-6)
    for wait_s in (50e-6, 64e-6, 52e-6, 66e-6, 88e-6, 57e-6):
        found.add_wait(wait_s)
    assert not found.is_too_much(100e-6)


def test_work_that_is_left_is_more_than_a_long_wait() -> None:
    found = left(NOTHING, [300e-6] * BLOCKS)
    for _wait in range(BLOCKS):
        found.add_wait(90e-6)
    assert found.is_too_much(100e-6)
