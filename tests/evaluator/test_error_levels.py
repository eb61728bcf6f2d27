"""An element that is ill-conditioned widens the tolerance of no others."""

from __future__ import annotations

from types import ModuleType

import pytest

COLUMNS = 256


def _compared(torch: ModuleType, module, got, *inputs):  # type: ignore[no-untyped-def]
    from actors.evaluator.children.correctness import compare

    eager, exact = module(*inputs), module(*(each.double() for each in inputs))
    return compare(got(*inputs), eager, exact, "output").reason


def _normalised(torch: ModuleType, rows):  # type: ignore[no-untyped-def]
    """Rows of which the first is nearly constant: eager loses its last digits."""
    constant = 300 + 1e-3 * rows[:1]
    return torch.nn.functional.layer_norm(torch.cat([constant, rows[1:]]), (COLUMNS,))


def test_one_row_that_eager_loses_does_not_excuse_the_others(torch: ModuleType) -> None:
    """A product in bfloat16 was right in all of 1,024 rows: 1.6 times as fast."""
    torch.manual_seed(1)
    rows, weight = torch.randn(1024, COLUMNS), torch.randn(COLUMNS, 64) / 16

    def product(rows, weight):  # type: ignore[no-untyped-def]
        return _normalised(torch, rows) @ weight

    def in_another_order(rows, weight):  # type: ignore[no-untyped-def]
        return _normalised(torch, rows).flip(1).contiguous() @ weight.flip(0)

    def in_bfloat16(rows, weight):  # type: ignore[no-untyped-def]
        return (_normalised(torch, rows).bfloat16() @ weight.bfloat16()).float()

    assert not _compared(torch, product, in_another_order, rows, weight)
    assert "elements differ" in _compared(torch, product, in_bfloat16, rows, weight)


def test_a_quantisation_has_to_round(torch: ModuleType) -> None:
    """Eager takes another step than float64 at a few of a million elements: not at all."""
    torch.manual_seed(2)
    rows, weight = torch.randn(2048, COLUMNS), torch.randn(COLUMNS, 512)

    def quantised(rows, weight):  # type: ignore[no-untyped-def]
        sums = rows @ weight
        step = sums.abs().amax() / 127
        return torch.round(sums / step) * step

    def in_another_order(rows, weight):  # type: ignore[no-untyped-def]
        sums = rows.flip(1) @ weight.flip(0)
        most = sums.abs().amax()
        return torch.round(sums * (127 / most)) * (most / 127)

    assert not _compared(torch, quantised, in_another_order, rows, weight)
    assert _compared(torch, quantised, torch.matmul, rows, weight)


def test_as_many_errors_of_each_size_as_eager_has_are_right(torch: ModuleType) -> None:
    """Eight times as large, and eight times as many."""
    from actors.evaluator.children.correctness import compare

    exact = torch.ones(1 << 12, dtype=torch.float64)
    eager, got = exact.float(), exact.float()
    eager[:3] += 4e-3
    for count, error, is_right in ((20, 2e-2, True), (40, 2e-2, False), (2000, 1e-4, True)):
        got[:] = 1
        got[100 : 100 + count] += error
        assert (not compare(got, eager, exact, "output").reason) is is_right


@pytest.mark.parametrize("last", [0.0, 1.0, 1e30, float("inf")])
def test_errors_are_counted_by_octaves(torch: ModuleType, last: float) -> None:
    """Those of 1 are not beyond 1."""
    from actors.evaluator.children.error_levels import crowded_level

    errors, few = [torch.tensor([1.0, 3.0, 5.0, last])], [torch.tensor([9.0, 0.0])]
    assert crowded_level(errors, [errors], 4, 1.0) is None
    assert crowded_level(errors, [few], 4, 1.0) == 0
    assert crowded_level([torch.zeros(4)], [[torch.zeros(4)]], 4, 1.0) is None
