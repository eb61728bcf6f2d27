"""Parts of outputs that the rest would hide: small columns, imaginary parts, small residuals."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import special_corpora

from actors.evaluator.judge import Judge
from protocol.values import Outcome


@pytest.fixture
def compare(torch: ModuleType):  # type: ignore[no-untyped-def]
    from actors.evaluator.children.small_parts import compare

    torch.manual_seed(3)
    return compare


def _reason(compare: Any, got: Any, exact: Any, single: Any, *inputs: Any) -> str:
    return str(compare(got, exact.to(single), exact, "output", inputs=inputs).reason)


def test_small_columns_beside_large_ones_are_compared(torch: ModuleType, compare: Any) -> None:
    """Anything was right for scores beside coordinates of 1e5 to 1e8."""
    large = torch.exp(2 * torch.randn(64, 16, dtype=torch.float64)) * 1e5
    small = torch.tanh(torch.randn(64, 48, dtype=torch.float64))
    exact = torch.cat([large, small], 1)
    noise = 1 + 1e-5 * torch.randn_like(exact)
    assert not _reason(compare, (exact * noise).float(), exact, torch.float32)
    without = torch.cat([large, torch.zeros_like(small)], 1).float()
    wanted = "output (indices 16 to 63 of dimension 1 alone)"
    assert wanted in _reason(compare, without, exact, torch.float32)


def test_a_small_imaginary_part_is_compared(torch: ModuleType, compare: Any) -> None:
    """Zeros were right for it beside a real part of 1e3."""
    values = torch.randn(2, 32, 32, dtype=torch.float64)
    exact = torch.complex(values[0].exp() * 1e3, values[1].tanh() * 0.05)
    right = exact.to(torch.complex64)
    assert not _reason(compare, right, exact, torch.complex64)
    without = torch.complex(right.real, torch.zeros(32, 32))
    assert _reason(compare, without, exact, torch.complex64)


def test_a_precision_that_the_user_allows_is_that_of_the_sum(
    torch: ModuleType, compare: Any
) -> None:
    """`--precision bfloat16`: a sum that is rounded to it loses most of what a block adds."""
    x = torch.randn(64, 64)
    exact = x.double() + 1e-3 * torch.randn(64, 64, dtype=torch.float64).tanh()
    rounded = exact.to(torch.bfloat16).float()
    found = [
        compare(rounded, exact.float(), exact, "output", floor=floor, inputs=(x,)).reason
        for floor in (4e-2, 0.0)
    ]
    assert not found[0]
    assert found[1]


def test_what_a_residual_block_adds_is_compared(torch: ModuleType, compare: Any) -> None:
    """The input was right for x + 1e-4 * f(x).  What eager itself loses says nothing."""
    x = torch.randn(64, 64)
    added = 3e-5 * torch.randn(64, 64, dtype=torch.float64).tanh()
    exact = x.double() + added
    assert not _reason(compare, exact.float(), exact, torch.float32, x)
    assert "less input 1" in _reason(compare, x.clone(), exact, torch.float32, x.int(), x)
    assert not _reason(compare, x.clone(), x.double() + 1e-3 * added, torch.float32, x)
    assert not _reason(compare, x.clone(), x.double(), torch.float32, x)
    other = (x.double() + added * (1 + 1e-3)).float()
    for got, is_right in ((exact.float(), True), (other, True), (x.clone(), False)):
        without_float64 = compare(got, exact.float(), None, "output", inputs=[x])
        assert is_right is not bool(without_float64.reason)


@pytest.mark.parametrize("large", [300.0, "columns", "rows"])
def test_what_is_added_to_a_constant_is_compared(
    torch: ModuleType, compare: Any, large: float | str
) -> None:
    """300 was right for temperatures of 300.005, and a bias for the output of a layer."""
    base = torch.full((32, 64), 300.0, dtype=torch.float64)
    if large == "columns":
        base = (300 * torch.randn(64, dtype=torch.float64)).expand(32, 64)
    elif large == "rows":
        base = (300 * torch.randn(32, 1, dtype=torch.float64)).expand(32, 64)
    added = 0.005 * torch.randn(32, 64, dtype=torch.float64)
    exact = base + added
    other = (exact + 1e-3 * added).float()
    for truth in (exact, None):
        assert not compare(other, exact.float(), truth, "output").reason
        assert "less its mean" in compare(base.float(), exact.float(), truth, "output").reason
    broadcast = base[:1].expand(32, 64)
    assert not _reason(compare, broadcast.float().clone(), broadcast, torch.float32)


def test_rests_of_rounding_are_no_parts(torch: ModuleType, compare: Any) -> None:
    """Saturated probabilities may be flushed, and imaginary parts that are noise may be other."""
    exact = torch.softmax(40 * torch.randn(64, 64, dtype=torch.float64), 1)
    flushed = torch.where(exact < 1e-6, 0.0, exact).float()
    assert not _reason(compare, flushed, exact, torch.float32)
    near_one = torch.sigmoid(torch.randn(64, 64, dtype=torch.float64) + 14)
    assert not _reason(compare, torch.ones(64, 64), near_one, torch.float32)
    x = 1e4 * torch.randn(8, 256) + 3e6
    spectrum = torch.fft.rfft(x.double())
    other = torch.fft.fft(x.to(torch.complex64))[:, :129].clone()
    assert not compare(other, torch.fft.rfft(x), spectrum, "output").reason


@pytest.mark.parametrize(
    ("corpus", "name"),
    [("layer_scale", "hostile/identity"), ("layer_scale", "honest/fused_scale")],
)
def test_a_residual_branch_that_begins_near_zero_is_compared(
    patient_judge: Judge, corpus: str, name: str
) -> None:
    """LayerScale begins at 1e-6: the input was right as the output, and 27 times as fast."""
    verdict = special_corpora.judged(patient_judge, corpus, f"{name}.py")
    is_honest = name.startswith("honest")
    assert verdict.verdict is (Outcome.CORRECT if is_honest else Outcome.WRONG), verdict


def test_what_a_call_adds_is_compared_as_far_as_rounding_shows_it(torch: ModuleType) -> None:
    from actors.evaluator.children.small_parts import compare_change

    torch.manual_seed(3)
    before = torch.randn(1 << 16)
    step = torch.randn(1 << 16)
    for size in (1.0, 1e-2, 1e-4, 1e-6, 1e-8):
        after = before + size * step
        other = torch.lerp(before, before + step, size) * (1 + 1e-7 * torch.randn(1 << 16).sign())
        assert not compare_change(other, after, before, "input", floor=0.0).reason
        assert bool(compare_change(before, after, before, "input", floor=0.0).reason) is (
            size >= 1e-4
        )
    # What the user allows is an error of the whole: of TF32 a small step is part of it.
    after = before + 1e-4 * step
    assert not compare_change(before, after, before, "input", floor=4e-3).reason
    halves = before.bfloat16(), (before + 1e-2 * step).bfloat16()
    assert not compare_change(halves[0], halves[1], halves[0], "input", floor=0.0).reason
    masked = before.masked_fill(before > 1, -torch.inf)
    assert not compare_change(masked, masked, masked, "input", floor=0.0).reason
