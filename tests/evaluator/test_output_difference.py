"""Laws of what is told of a wrong output: planted patterns are found, accidents are not named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.evaluator.children import correctness
from actors.evaluator.children.output_difference import (
    MAX_LINES,
    ComparedOutput,
    describe_outputs,
    difference_lines,
)

ROWS, COLUMNS = 33, 200


def described(
    got: torch.Tensor, truth: torch.Tensor, eager: torch.Tensor | None = None
) -> tuple[str, ...]:
    """Return the lines on `got`, with the tolerance of the judge's own comparison."""
    ours = truth if eager is None else eager
    found = correctness.compare(got, ours, truth, "output")
    assert found.reason
    return difference_lines(got, ours, truth, found.rms, found.allowed)


def right(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def planted(change: Callable[[torch.Tensor], object], *shape: int) -> str:
    """Return the text on a right output after `change` to a copy of it."""
    truth = right(*(shape or (ROWS, COLUMNS)))
    got = truth.clone()
    change(got)
    return "\n".join(described(got, truth))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[-1].add_(1), "wrong only at index 32, the last one of dimension 0 (of 33)"),
        (lambda x: x[:, 17].add_(1), "wrong only at index 17 of dimension 1 (of 200)"),
        (
            lambda x: x[:, 192:].add_(1),
            "indices 192 to 199, up to the end (the part after the last whole block of 64)",
        ),
        (lambda x: x[:, :100].add_(1), "indices 0 to 99, from the beginning of dimension 1"),
        (lambda x: x[:, 3::4].add_(1), "every 4th index, from 3 on of dimension 1"),
        (
            lambda x: x.reshape(-1)[:6592].reshape(-1, 32)[:, 24:].add_(1),
            "in row-major order, wrong only at the tail of every block of 32: 24 to 31 of each",
        ),
        (
            lambda x: x.reshape(-1)[5050:].add_(1),
            "in row-major order, wrong only at indices 5050 to 6599, up to the end",
        ),
        (lambda x: x[4:].fill_(float("nan")), "all of the wrong elements are NaN"),
        (lambda x: x[4:].fill_(float("inf")), "all of the wrong elements are infinite"),
        (lambda x: x[4:].fill_(0), "all of the wrong elements are exactly 0: not written"),
        (lambda x: x[4:].fill_(2.5), "all wrong elements have one value, 2.5"),
        (lambda x: x[4:].mul_(0.125), "each wrong element is 0.125 times the right one"),
        (lambda x: x.sub_(3), "each wrong element is the right one minus 3"),
        (lambda x: x.copy_(x.roll(1, 1)), "it looks shifted by 1 along dimension 1"),
        (lambda x: x.add_(1), "all elements are wrong"),
        (lambda x: x[5, 6].add_(1), "1 of 6600 elements is wrong, at [5, 6]"),
    ],
)
def test_a_planted_pattern_is_named(change: Callable[[torch.Tensor], object], words: str) -> None:
    """The usual mistakes of kernels are named as what they are."""
    assert words in planted(change)


@pytest.mark.parametrize("shape", [(40, 40), (3, 24, 40)])
def test_a_transposed_output_is_named(shape: tuple[int, ...]) -> None:
    """An output whose last dimensions are stored in the other order is named, square or not."""
    truth = right(*shape)
    got = truth.transpose(-1, -2).reshape(shape).contiguous()

    assert any("transposed" in line for line in described(got, truth))


@given(
    row=st.integers(0, ROWS - 1),
    start=st.integers(1, COLUMNS - 1),
    period=st.sampled_from([2, 4, 8, 16, 32]),
)
@settings(max_examples=10)
def test_any_row_tail_and_period_is_found(row: int, start: int, period: int) -> None:
    """A wrong row, a wrong tail of rows and every n-th column are found wherever they are."""
    assert f"index {row}" in planted(lambda x: x[row].add_(1))
    tail = planted(lambda x: x[:, start:].add_(1))
    assert f"indices {start} to {COLUMNS - 1}" in tail or f"index {start}, the last" in tail
    every = planted(lambda x: x[:, period - 1 :: period].add_(1))
    assert f"every {period}" in every


@given(seed=st.integers(0, 10_000), wrong=st.integers(1, 400))
@settings(max_examples=10)
def test_wrong_elements_at_random_places_have_no_pattern(seed: int, wrong: int) -> None:
    """An accident is not called a pattern, so that no model repairs what is not broken."""
    places = torch.randperm(ROWS * COLUMNS, generator=torch.Generator().manual_seed(seed))[:wrong]
    noise = torch.rand(wrong, generator=torch.Generator().manual_seed(seed)) + 1

    text = planted(lambda x: x.reshape(-1).index_add_(0, places, noise))

    assert "wrong only" not in text
    assert "looks" not in text


@pytest.mark.parametrize(
    "truth",
    [
        torch.tensor(1.5),
        torch.arange(7),
        torch.zeros(2, 3, 4, 5),
        torch.ones(3, 1, dtype=torch.int8),
    ],
)
def test_any_shape_and_dtype_is_described(truth: torch.Tensor) -> None:
    """Scalars, integers and deep shapes are described within the limit of lines."""
    lines = described(truth + 1, truth)

    assert 1 <= len(lines) <= MAX_LINES
    assert all(line.isprintable() for line in lines)


def test_the_largest_errors_stand_beside_eagers_own() -> None:
    """A model sees what was expected, what came, what is allowed and what eager itself loses."""
    truth = right(8, 8).double()
    eager = truth.float()
    got = eager.clone()
    got[2, 3] += 0.5
    got[4, 5] += 0.25

    lines = described(got, truth, eager)

    assert lines[-2].startswith("at [2, 3]: expected ")
    assert "off by 0.5, allowed 0.0" in lines[-2]
    assert "eager's own" in lines[-2]
    assert lines[-1].startswith("at [4, 5]: ")


def test_a_ratio_near_one_is_told_only_if_it_is_exact() -> None:
    """Rounding in a lower precision is no factor that was forgotten."""
    truth = right(64, 64).abs() + 1
    rounded = truth.bfloat16().float() * 0.999
    assert "times the right one" not in "\n".join(described(rounded, truth))
    assert "0.999 times the right one" in "\n".join(described(truth * 0.999, truth))


def test_booleans_are_described() -> None:
    """A mask with a wrong part is described as other outputs are."""
    truth = torch.zeros(8, 8, dtype=torch.bool)
    got = truth.clone()
    got[6:] = True

    assert any("indices 6 to 7, up to the end" in line for line in described(got, truth))


def test_two_values_that_seem_equal_are_told_apart() -> None:
    """A float32 sum in a float64 output is off behind the digits that are shown otherwise."""
    truth = torch.full((4,), 0.1, dtype=torch.float64)
    text = correctness.expected_and_got(truth, truth + 1e-9, 0)
    assert "expected 0.10000000000000001, got 0.10000000100000001" == text
    assert "expected 0.1, got 0.25" == correctness.expected_and_got(truth, truth + 0.15, 3)


def test_a_tail_is_named_only_where_the_last_block_begins() -> None:
    """Rows 200 to 256 of 257 were called what follows the last block of 8, which ends at 256."""
    text = planted(lambda x: x[200:].fill_(0), 257, 40)
    assert "wrong only at indices 200 to 256, up to the end of dimension 0 (of 257)" in text
    assert "block" not in text


def test_the_size_of_a_rounding_is_told() -> None:
    """Results through float16 look right; other errors are not the rounding of anything."""
    truth = right(64, 64)
    halves = described((truth * 1.0).half().float() * (1 + 1e-4 * truth.sign()), truth)
    assert any("no wrong element is off by more than 0.0005" in line for line in halves)
    noise = right(128, 64)[64:] * 0.05
    assert not any("rounding" in line for line in described(truth + noise, truth))


FACTORS = torch.linspace(0.7, 1.3, COLUMNS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.mul_(FACTORS), "times a factor that only its index in dimension 1 (of 200)"),
        (lambda x: x.add_(FACTORS), "plus a summand that only its index in dimension 1 (of 200)"),
        (lambda x: x.add_(FACTORS[:ROWS, None]), "decides (0.7 to 0.796): as without a parameter"),
    ],
)
def test_a_parameter_that_is_left_out_shows(
    change: Callable[[torch.Tensor], object], words: str
) -> None:
    """All elements are wrong, each by another amount, and one index explains them."""
    assert words in planted(change)


def test_values_that_no_index_decides_are_not_called_a_parameter() -> None:
    """Noise, and a result in which two dimensions have a share."""
    noise = right(ROWS, COLUMNS).flip(0)
    for change in (
        lambda x: x.add_(noise),
        lambda x: x.mul_(FACTORS).add_(FACTORS[:ROWS, None]),
        lambda x: x.zero_().add_(1).mul_(FACTORS),
        lambda x: x.copy_(x.relu()),
    ):
        assert "parameter" not in planted(change)


def test_a_forgotten_relu_is_no_parameter() -> None:
    """The elements that are right have the factor 1; the wrong ones should be 0."""
    truth = right(ROWS, COLUMNS)
    assert not any("parameter" in line for line in described(truth, truth.relu()))


def test_wrong_booleans_are_not_called_unwritten() -> None:
    """False is as good a value as True."""
    truth = right(64) > 0
    got = truth & (right(64) > 0.5)
    assert not any("not written" in line for line in described(got, truth))


def test_right_values_of_zero_give_no_factor() -> None:
    """Where all right values are 0, nothing is divided by them."""
    lines = described(right(8, 8), torch.zeros(8, 8))
    assert "all elements are wrong" in lines
    assert not any("parameter" in line for line in lines)


def test_of_several_outputs_the_wrong_and_the_right_ones_are_named() -> None:
    """A sum that is wrong because its summands are is another bug than a wrong sum alone."""
    truths = [right(8, 8), right(8), right(4)]
    gots = [truths[0], truths[1] + 1, truths[2] + 1]
    outputs = [
        ComparedOutput(f"output {number}", got, truth, None)
        for number, (got, truth) in enumerate(zip(gots, truths, strict=True))
    ]
    found = correctness.compare(gots[1], truths[1], None, "output 1")
    lines = describe_outputs(outputs, 1, found, 0.0)
    assert lines[0] == "what follows is about output 1; wrong, too: output 2; right: output 0"
    assert "all elements are wrong" in lines
    alone = describe_outputs(outputs[1:2], 0, found, 0.0)
    assert alone == lines[1:]
