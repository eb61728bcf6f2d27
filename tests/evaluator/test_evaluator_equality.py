"""What counts as equal: the tolerance follows the reference, special values must match."""

from __future__ import annotations

import math
from types import ModuleType

import pytest


@pytest.fixture
def compare(torch: ModuleType):  # type: ignore[no-untyped-def]
    from actors.evaluator.children.correctness import compare

    return compare


def test_eagers_own_error_is_allowed_and_a_little_more(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Against float64, the error of eager is never wrong; a hundred times as much is."""
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
    """The same relative error has the same verdict at every magnitude."""
    torch.manual_seed(2)
    eager = torch.randn(256) * scale
    assert not compare(eager * (1 + 1e-5), eager, None, "output").reason
    assert compare(eager * (1 + 1e-2), eager, None, "output").reason
    assert compare(torch.zeros(256), eager, None, "output").reason


def test_one_wrong_element_among_many_is_found_and_named(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """The reason has the first index, both numbers and the count."""
    eager = torch.ones(100, 100)
    got = eager.clone()
    got[17, 3] = 1.5
    found = compare(got, eager, None, "output")
    assert found.reason.startswith("output[17, 3]: expected 1, got 1.5; 1 of 10000 elements")
    assert found.max_error > 1


def test_special_values_must_be_where_the_reference_has_them(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """NaN matches NaN, inf matches inf of the same sign, and nothing else does."""
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


def test_a_reference_of_only_nan_is_reported_to_check_nothing(torch: ModuleType) -> None:
    """Every output equals an expected NaN, and a reader of `correct` has to know that."""
    from actors.evaluator.children.correctness import unchecked

    blank, fine = torch.full((3,), float("nan")), torch.tensor([float("nan"), 1.0])
    assert unchecked([blank]) == ("the reference's output is all NaN: nothing is checked",)
    assert unchecked([blank, blank])[0].startswith("the reference's outputs are all NaN")
    assert unchecked([fine, blank]) == (
        "output 1 of the reference is all NaN: nothing of it is checked",
    )
    assert not unchecked([fine, torch.zeros(2, dtype=torch.int64), torch.empty(0)])


def test_where_a_half_overflows_both_answers_are_right(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Where eager overflows to inf in half precision, both inf and the true value are correct."""
    eager = torch.tensor([1.0, math.inf], dtype=torch.float16)
    exact = torch.tensor([1.0, 65600.0], dtype=torch.float64)
    assert not compare(eager.clone(), eager, exact, "output").reason


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_integers_are_exact(torch: ModuleType, compare, dtype: str) -> None:  # type: ignore[no-untyped-def]
    """An index that is off by one is wrong, however large it is."""
    eager = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    got = torch.tensor([1, 1, 1]).to(getattr(torch, dtype))
    assert not compare(eager.clone(), eager, None, "output").reason
    assert "1 of 3" in compare(got, eager, None, "output").reason


def test_complex_numbers_are_compared(torch: ModuleType, compare) -> None:  # type: ignore[no-untyped-def]
    """Equal complex numbers are equal, and a wrong imaginary part is found."""
    eager = torch.fft.fft(torch.randn(64))
    assert not compare(eager.clone(), eager, eager.to(torch.complex128), "output").reason
    assert compare(eager.conj(), eager, None, "output").reason
