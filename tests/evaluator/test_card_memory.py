"""What judging takes of a card's memory: the plan of large tasks, by the sizes of their tensors."""

from __future__ import annotations

import pytest

from actors.evaluator.ipc.card_memory import TaskBytes

GIB = 1 << 30
CARD_80 = 79 * GIB  # what an H100 of 80 GB has
CARD_24 = 23 * GIB
MOST = 2048

# inputs and outputs in GiB -> GiB at the worst moment of preparing, checking and timing one call
PLANS = {
    (1, 1): (6.5, 8.5, 11.8),
    (2, 2): (11.5, 15.5, 21.0),
    (4, 4): (21.5, 29.5, 39.5),
    (8, 0): (17.5, 25.5, 17.6),
    (0, 8): (25.5, 41.5, 60.5),
    (8, 8): (41.5, 57.5, 76.5),
    (16, 0): (33.5, 49.5, 33.6),
}
WITH_DOUBLE = {(1, 1): (9.5, 15.5, 16.8), (2, 2): (17.5, 29.5, 31.0), (0, 2): (11.5, 19.5, 21.0)}


def task_of(sizes: tuple[int, int], *, has_double: bool = False) -> TaskBytes:
    """Return a task with so many GiB of inputs and outputs."""
    inputs, outputs = sizes
    return TaskBytes(inputs=inputs * GIB, outputs=outputs * GIB, has_double=has_double)


@pytest.mark.parametrize("has_double", [False, True])
def test_what_each_step_takes(has_double: bool) -> None:
    """The worst moment of each step, counted by hand: three processes, one draw at a time."""
    plans = WITH_DOUBLE if has_double else PLANS
    for sizes, wanted in plans.items():
        steps = task_of(sizes, has_double=has_double).steps
        found = tuple(round(steps[step] / GIB, 1) for step in ("prepare", "check", "time"))
        assert (sizes, found) == (sizes, wanted)


@pytest.mark.parametrize("sizes", PLANS)
def test_eight_gigabytes_fit_a_card_of_80(sizes: tuple[int, int]) -> None:
    """All these tasks are judged on such a card; a smaller card says what it lacks."""
    task = task_of(sizes)
    assert task.refusal(CARD_80, CARD_80) == ""
    assert bool(task.refusal(CARD_24, CARD_24)) == (task.most > CARD_24)


def test_what_a_call_takes_for_itself_counts_in_three_processes() -> None:
    """A pooling of 2 GB has indices of 4: blocks have fewer calls, so that they fit the card."""
    plain = task_of((2, 2), has_double=True)
    pooling = TaskBytes(inputs=2 * GIB, outputs=2 * GIB, working=4 * GIB, has_double=True)
    assert pooling.timing(1) - plain.timing(1) == 4 * pooling.working
    assert pooling.steps["check"] - plain.steps["check"] == 4 * pooling.working
    for free in (CARD_80, 64 * GIB):
        calls = pooling.block_calls(free, MOST)
        assert 1 <= calls <= plain.block_calls(free, MOST)
        assert pooling.timing(calls) <= free


def test_draws_that_slots_are_mixed_of_count() -> None:
    """Inputs of gigabytes that are drawn slowly are mixed of two draws, which the referee keeps."""
    plain = task_of((4, 4))
    mixed = TaskBytes(inputs=4 * GIB, outputs=4 * GIB, is_mixed=True)
    assert mixed.timing(3) - plain.timing(3) == 12 * GIB
    assert mixed.timing(mixed.block_calls(62 * GIB, MOST)) <= 62 * GIB


def test_float64_is_left_out_before_a_task_is_refused() -> None:
    """Two gigabytes in and out have float64 on a card of 80 GB only; both judge them."""
    task = task_of((2, 2))
    assert task.fits_double(CARD_80)
    assert not task.fits_double(CARD_24)
    assert not task.refusal(CARD_24, CARD_24)
    assert not task_of((8, 0)).fits_double(CARD_80)


def test_the_refusal_has_all_figures() -> None:
    """What the tensors take, what judging takes, and what the card has."""
    said = task_of((8, 0)).refusal(20 * GIB, CARD_24)
    assert "tensors take 8.0 GiB" in said
    assert "judging it takes 25.5 GiB (to check it), and 20.0 GiB of 23.0 GiB are free" in said


@pytest.mark.parametrize("free", [CARD_80, CARD_24])
@pytest.mark.parametrize("inputs", [0, 1 << 20, GIB // 4, GIB, 2 * GIB, 5 * GIB])
@pytest.mark.parametrize("outputs", [4, 1 << 20, GIB // 4, GIB, 2 * GIB])
def test_a_block_has_no_more_calls_than_fit(inputs: int, outputs: int, free: int) -> None:
    """Blocks get shorter until they fit; one call is what the refusal has allowed."""
    task = TaskBytes(inputs=inputs, outputs=outputs)
    calls = task.block_calls(free, MOST)
    assert 1 <= calls <= MOST
    assert calls == 1 or task.timing(calls) <= free
    if task.timing(2 * calls + 8) <= free / 4:
        assert calls == MOST


def test_eight_gigabytes_have_blocks_of_four_calls() -> None:
    """The first call of a block takes longer than the others: one call alone says too little."""
    assert task_of((8, 0)).block_calls(70 * GIB, 4) == 4
    assert task_of((8, 8)).block_calls(76 * GIB, 4) == 1


def test_small_tensors_have_blocks_of_any_length() -> None:
    """A card has room for blocks of 64 MB of inputs and outputs that last long enough."""
    assert TaskBytes(inputs=1 << 26, outputs=1 << 26).block_calls(CARD_80, MOST) > 150
