"""The short way to compare a call's layout says what the long one says."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch

from actors.adopt.fitted_package import layout_matching
from actors.adopt.model.call_layouts import layout_of

runtime: ModuleType = layout_matching
BASE = torch.randn(4, 6)
CALLS: list[tuple[Any, ...]] = [
    (BASE,),
    (BASE, BASE),
    (BASE.double(),),
    (BASE.t(),),
    (BASE[:, ::2],),
    (BASE[:2],),
    (torch.nn.Parameter(BASE),),
    (BASE.clone().requires_grad_(),),
    (BASE.to("meta"),),
    (BASE.int(),),
    (None,),
    (3.0, BASE),
    ([BASE],),
    (),
]


def compared(layout: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a call's layout as the package reads it."""
    stored = msgspec.json.decode(msgspec.json.encode(layout_of((layout, {}))))
    found: tuple[Any, ...] = runtime.as_tuples(stored)
    return found


@pytest.mark.parametrize("gradients", [False, True])
def test_the_short_way_takes_no_call_that_the_long_one_refuses(gradients: bool) -> None:
    """For all pairs of a judged call and another one; tensors' own subclasses go the long way."""
    taken = 0
    for judged, call in itertools.product(CALLS, CALLS):
        spec = compared(judged)
        flat = runtime.flat_specs(spec)
        wanted = not gradients and torch.is_grad_enabled()
        short = runtime.flat_layout(call, [None, flat], wanted) == 1
        long = runtime.matches((call, {}), spec, [], gradients)
        assert long or not short, (judged, call)
        if long and flat and all(type(each) is torch.Tensor for each in call):
            assert short, (judged, call)
            taken += 1
    assert taken >= 6


def test_keywords_and_plain_values_have_no_flat_layout() -> None:
    """These go the long way, which compares them."""
    words = msgspec.json.decode(msgspec.json.encode(layout_of(((BASE,), {"scale": 2.0}))))
    assert runtime.flat_specs(runtime.as_tuples(words)) is None
    assert runtime.flat_specs(compared((BASE, 2.0))) is None
    assert runtime.flat_specs(compared((BASE, BASE))) is not None
