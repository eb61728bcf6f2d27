"""Inputs of a case: values like those of get_inputs(), in other shapes and dtypes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from protocol.cases import TaskCase


@pytest.fixture
def draw(torch: ModuleType) -> Any:
    from actors.evaluator.children.tensors.case_inputs import in_case

    def drawn(inputs: list[Any], seed: int = 1, **case: Any) -> list[Any]:
        return in_case(inputs, TaskCase(name="c", **case), seed)

    return drawn


def test_a_float_tensor_keeps_its_distribution(draw: Any, torch: ModuleType) -> None:
    """Range, mean and spread are those of the drawn tensor, and no two draws are equal."""
    x = torch.rand(64, 32) * 3 + 5
    (one,) = draw([x], shapes=((7, 100),))
    (two,) = draw([x], seed=2, shapes=((7, 100),))
    assert (7, 100) == tuple(one.shape)
    assert x.min() <= one.min()
    assert one.max() <= x.max()
    assert abs(float(one.mean() - x.mean())) < 0.3
    assert not torch.equal(one, two)
    assert one.unique().numel() > 600  # not only elements of the small tensor


@pytest.mark.parametrize("shape", [(9, 9), (2, 3, 20, 20), (4, 12)])
def test_a_causal_mask_stays_one(draw: Any, torch: ModuleType, shape: tuple[int, ...]) -> None:
    """Every row sees what is before it, also in a mask of another length or with more columns."""
    (mask,) = draw([torch.ones(5, 5, dtype=torch.bool).tril()], shapes=(shape,))
    whole = torch.ones(shape[-2:], dtype=torch.bool).tril(shape[-1] - shape[-2]).expand(shape)
    assert torch.equal(mask, whole)
    added = torch.full((5, 5), float("-inf")).triu(1)
    (floats,) = draw([added], shapes=(shape,))
    assert torch.equal(floats == 0, whole)


def test_integers_stay_in_range_and_positions_count(draw: Any, torch: ModuleType) -> None:
    """Indices stay below the table's length, position numbers stay position numbers."""
    ids, places = torch.randint(3, 50, (8, 4)), torch.arange(4).expand(8, 4)
    new_ids, new_places = draw([ids, places], shapes=((2, 90), (2, 90)))
    assert 3 <= int(new_ids.min())
    assert int(new_ids.max()) < 50
    assert new_ids.dtype == torch.int64
    assert torch.equal(new_places, torch.arange(90).expand(2, 90))


def test_a_dtype_changes_floats_only(draw: Any, torch: ModuleType) -> None:
    """`dtype` is what `.to(dtype)` of a module is; `dtypes` says each one."""
    inputs = [{"x": torch.randn(3), "ids": torch.arange(3)}, torch.ones(2, dtype=torch.bool)]
    nest, flags = draw(inputs, dtype="bfloat16")
    assert (torch.bfloat16, torch.int64, torch.bool) == (
        nest["x"].dtype,
        nest["ids"].dtype,
        flags.dtype,
    )
    (half,) = draw([torch.randn(3)], dtypes=("float16",))
    assert half.dtype == torch.float16


def test_a_wrong_number_of_shapes_is_said(draw: Any, torch: ModuleType) -> None:
    """The message has both counts."""
    with pytest.raises(ValueError, match="returns 2 tensors, and the case has 1 shapes"):
        draw([torch.randn(3), torch.randn(3)], shapes=((4,),))


def test_another_shape_is_in_the_same_order_in_memory(draw: Any, torch: ModuleType) -> None:
    """Before, cases of a channels-last model were judged contiguous, and its calls ran unfitted."""
    last = torch.randn(2, 5, 5, 8).permute(0, 3, 1, 2)
    heads = torch.randn(2, 9, 4, 16).transpose(1, 2)
    sliced = torch.randn(2, 9, 8)[:, ::2]
    shapes = ((1, 8, 7, 7), (3, 4, 5, 16), (2, 3, 8))
    one, other, third = draw([last, heads, sliced], shapes=shapes)
    assert shapes == tuple(tuple(each.shape) for each in (one, other, third))
    assert one.is_contiguous(memory_format=torch.channels_last)
    assert other.transpose(1, 2).is_contiguous()
    assert third.is_contiguous()


def test_a_layout_is_known_without_values(draw: Any, torch: ModuleType) -> None:
    """The judge asks for it before it draws: 2 s of each case of 6 million numbers went there."""
    from actors.evaluator.children.tensors.tensor_bytes import layout_of
    from actors.evaluator.children.tensors.tensor_copies import map_tensors

    inputs = [
        torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last),
        torch.ones(5, 5, dtype=torch.bool).tril(),
        torch.arange(4).expand(8, 4),
        torch.randint(9, (3, 7)),
        torch.randn(5, requires_grad=True),
    ]
    shapes = ((3, 4, 9, 9), (2, 3, 20, 20), (2, 90), (4, 7), (5,))
    real = draw(inputs, shapes=shapes)
    meta = draw([each.to("meta") for each in inputs], shapes=shapes)
    assert layout_of(map_tensors(real, lambda each: each.to("meta"))) == layout_of(meta)
