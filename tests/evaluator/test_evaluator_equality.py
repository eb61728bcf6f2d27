"""Comparison of outputs: the tolerance follows the reference, special values must match."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def compare(torch: ModuleType):  # type: ignore[no-untyped-def]
    from actors.evaluator.children.correctness import compare

    return compare


def test_eagers_own_error_is_allowed_and_a_little_more(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Eager's own error against float64 is never wrong; a hundred times as much is."""
    torch.manual_seed(1)
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    exact = a.double() @ b.double()
    eager = a @ b
    assert not compare(eager, eager, exact, "output").reason
    off = exact + (eager.double() - exact) * 4
    assert not compare(off.float(), eager, exact, "output").reason
    assert compare((exact * 1.001).float(), eager, exact, "output").reason


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_the_tolerance_follows_the_scale(torch: ModuleType, compare, scale: float) -> None:  # type: ignore[no-untyped-def]
    """The same relative error has the same result at every magnitude."""
    torch.manual_seed(2)
    eager = torch.randn(256) * scale
    assert not compare(eager * (1 + 1e-5), eager, None, "output").reason
    assert compare(eager * (1 + 1e-2), eager, None, "output").reason
    assert compare(torch.zeros(256), eager, None, "output").reason


def test_one_wrong_element_among_many_is_found_and_named(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """The reason has the first index, both numbers and the number of wrong elements."""
    eager = torch.ones(100, 100)
    got = eager.clone()
    got[17, 3] = 1.5
    found = compare(got, eager, None, "output")
    assert found.reason.startswith("output[17, 3]: expected 1, got 1.5; 1 of 10000 elements")
    assert found.max_error > 1


def test_special_values_must_be_where_the_reference_has_them(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Only NaN matches NaN, and only inf of the same sign matches inf."""
    inf, nan = math.inf, math.nan
    eager = torch.tensor([1.0, inf, -inf, nan])
    assert not compare(eager.clone(), eager, eager.double(), "output").reason
    for wrong in (
        [nan, inf, -inf, nan],
        [1, -inf, -inf, nan],
        [1, inf, -inf, 0],
        [1, 1e30, -inf, nan],
    ):
        assert compare(torch.tensor(wrong), eager, eager.double(), "output").reason


def test_a_note_reports_a_reference_that_is_all_nan(torch: ModuleType) -> None:
    """Every output matches it, so a reader of "correct" must know that nothing was checked."""
    from actors.evaluator.children.task_notes import unchecked

    blank, fine = torch.full((3,), float("nan")), torch.tensor([float("nan"), 1.0])
    assert unchecked([blank]) == ("the reference's output is all NaN: nothing is checked",)
    assert unchecked([blank, blank])[0].startswith("the reference's outputs are all NaN")
    assert unchecked([fine, blank]) == (
        "output 1 of the reference is all NaN: nothing of it is checked",
    )
    assert not unchecked([fine, torch.zeros(2, dtype=torch.int64), torch.empty(0)])


def test_both_values_are_right_where_eager_overflows(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Where eager overflows in half precision, inf and the exact value both count as right."""
    eager = torch.tensor([1.0, math.inf], dtype=torch.float16)
    exact = torch.tensor([1.0, 65600.0], dtype=torch.float64)
    assert not compare(eager.clone(), eager, exact, "output").reason


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_integers_are_exact(torch: ModuleType, compare, dtype: str) -> None:  # type: ignore[no-untyped-def]
    """An index that is off by one is wrong at every magnitude."""
    eager = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    got = torch.tensor([1, 1, 1]).to(getattr(torch, dtype))
    assert not compare(eager.clone(), eager, None, "output").reason
    assert "1 of 3" in compare(got, eager, None, "output").reason


def test_integers_that_eager_rounds_to_another_side_are_few(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """An exact result is right, and one that rounds otherwise at a few further elements.

    "expected 19, got 19" was the reason for a quantisation that multiplied by a reciprocal.
    """
    torch.manual_seed(6)
    exact = torch.randint(-100, 100, (10000,))
    eager = exact.clone()
    eager[:3] += 1
    assert not compare(exact.clone(), eager, exact, "output").reason
    few, many, far = exact.clone(), exact.clone(), exact.clone()
    few[10:20] -= 1
    many[10:50] -= 1
    far[10] -= 20
    assert not compare(few, eager, exact, "output").reason
    assert compare(many, eager, exact, "output").reason
    assert compare(far, eager, exact, "output").reason
    assert compare(few, exact, exact, "output").reason
    assert compare(few, eager, None, "output").reason


def test_complex_numbers_are_compared(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Equal complex numbers are equal, and a wrong imaginary part is found."""
    eager = torch.fft.fft(torch.randn(64))
    assert not compare(eager.clone(), eager, eager.to(torch.complex128), "output").reason
    assert compare(eager.conj(), eager, None, "output").reason


def test_a_jump_of_eager_excuses_as_few_elements(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Where eager takes the other side of a jump, a candidate may take it at as many elements.

    Its error there, a whole step, is no measure of precision: zeros would be within it.
    """
    torch.manual_seed(3)
    a, b = torch.randn(1024, 512), torch.randn(512, 1024)
    exact, eager = (torch.frac(x @ y) for x, y in ((a.double(), b.double()), (a, b)))
    lost = int(((eager - exact).abs() > 0.5).sum())
    assert lost > 0
    assert compare(torch.zeros_like(eager), eager, exact, "output").reason
    assert not compare(eager, eager, exact, "output").reason
    got = exact.float()
    got.view(-1)[: 8 * lost] = 0.0
    assert not compare(got, eager, exact, "output").reason
    got.view(-1)[: 40 * lost] = 0.0
    assert compare(got, eager, exact, "output").reason


def test_where_eager_loses_much_not_all_is_right(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """An eighth of the elements is lost: so many errors like that lose two thirds, and not all."""
    torch.manual_seed(4)
    exact = torch.rand(1 << 14, dtype=torch.float64)
    eager, honest = exact.float(), exact.float()
    for lossy, share in ((eager, 0.125), (honest, 0.6)):
        moved = torch.rand(exact.shape) < share
        lossy[moved] = torch.rand(int(moved.sum()))
    assert not compare(honest, eager, exact, "output").reason
    assert compare(torch.zeros_like(eager), eager, exact, "output").reason
    nan = honest.clone()
    nan[(nan - exact).abs() > 0.9] = math.nan
    assert compare(nan, eager, exact, "output").reason


def test_a_scalar_that_eager_loses_is_not_anything(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Eight times the error of eager is the most, also where that is more than a quarter."""
    exact, eager = torch.tensor([1.0], dtype=torch.float64), torch.tensor([1.1])
    for right in (1.3, 0.5, 1.75):
        assert not compare(torch.tensor([right]), eager, exact, "output").reason
    for wrong in (0.0, 2.0, math.nan):
        assert compare(torch.tensor([wrong]), eager, exact, "output").reason


@pytest.mark.parametrize("fill", [-9999.0, -1e4, -1e9, -1e20, "lowest", "infinite"])
@pytest.mark.parametrize("has_double", [True, False])
def test_what_a_mask_fills_in_is_no_scale_of_the_other_elements(
    torch: ModuleType, compare: Any, fill: float | str, has_double: bool
) -> None:
    """Zeros for scores of one are wrong, whatever the mask fills in, and an exact result is right.

    The lowest number of float64 is another one than that of float32.
    """
    from actors.evaluator.children.correctness import relative_loss, within_range

    torch.manual_seed(5)
    scores, mask = torch.randn(64, 64).double(), torch.rand(64, 64) < 0.3

    def filled(values: Any) -> Any:
        named: dict[object, float] = {
            "lowest": torch.finfo(values.dtype).min,
            "infinite": -math.inf,
        }
        return values.masked_fill(mask, named.get(fill, fill))

    eager = filled(scores.float())
    assert relative_loss(eager, filled(scores)) < 1e-6
    exact = within_range(filled(scores), eager) if has_double else None
    assert not compare(filled((scores + 1e-6).float()), eager, exact, "output").reason
    assert compare(filled(torch.zeros(64, 64)), eager, exact, "output").reason
    assert compare(torch.zeros(64, 64), eager, exact, "output").reason


@pytest.mark.parametrize("fill", [-100.0, -1000.0])
def test_a_fill_beside_half_precision_may_be_smaller(
    torch: ModuleType, compare: Any, fill: float
) -> None:
    """A hundredth of it is as large as the scores."""
    scores, mask = torch.rand(64, 64).bfloat16(), torch.rand(64, 64) < 0.3
    eager = scores.masked_fill(mask, fill)
    rounded = (scores * 1.004).masked_fill(mask, fill)
    assert not compare(rounded, eager, eager.double(), "output").reason
    assert compare(torch.full_like(scores, 0.5).masked_fill(mask, fill), eager, None, "").reason


def test_a_range_of_magnitudes_has_one_scale(torch: ModuleType) -> None:
    """Large numbers are no fill where others lie between them and the small ones, or are zeros."""
    from actors.evaluator.children.correctness import scale_of

    spread = 10.0 ** torch.linspace(-3, 9, 1000)
    assert scale_of(spread) == pytest.approx(spread.double().square().mean().sqrt().item())
    saturated = torch.tensor([1.0, 1.0, 1e-9, 1e-20])
    assert scale_of(saturated) == pytest.approx(0.5**0.5)
    sparse = torch.tensor([0.0, 0.0, 1e9, 2e9])
    assert scale_of(sparse) == pytest.approx(sparse.double().square().mean().sqrt().item())
