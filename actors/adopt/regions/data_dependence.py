"""Whether the size of a function's result depends on the values of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)


def depends_on_values(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Run a function on tensors without values; return whether it needs these for a size."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        try:
            function(*_without_values(args), **_without_values(kwargs))
        except (DataDependentOutputException, DynamicOutputShapeException):
            return True
        except Exception:  # noqa: BLE001  # a function that can't be run so: its text is compared
            return False
    return False


def _without_values(value: Any) -> Any:
    if isinstance(value, torch.Tensor):  # inside of the mode: it has no values
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    if isinstance(value, slice):
        ends = (_without_values(each) for each in (value.start, value.stop, value.step))
        return slice(*ends)
    if type(value) in (list, tuple):
        return type(value)(_without_values(each) for each in value)
    if type(value) is dict:
        return {key: _without_values(each) for key, each in value.items()}
    return value
