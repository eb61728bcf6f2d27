"""Inputs that are equal in each draw: constants, masks, positions.  Pure functions on tensors.

Nothing that is compared on such inputs alone shows whether a candidate reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone, has_same_bytes
from actors.evaluator.children.tensors.value_kinds import is_constant, is_free

MOST_SAMPLED = 4096  # elements of a tensor; where these are equal, all are compared


class FixedInputs:
    """Finds out which inputs are equal in each draw, from draws that are made anyway."""

    def __init__(self, inputs: Sequence[object]) -> None:
        """`inputs`: of a first draw."""
        self._samples = [_sample(each) for each in tensors_in(list(inputs))]
        self._alike: dict[int, torch.Tensor] = {}

    def compare(self, inputs: Sequence[object]) -> None:
        """Keep copies of those that seem to be equal in another draw."""
        pairs = zip(self._samples, tensors_in(list(inputs)), strict=False)
        self._alike = {
            number: clone(each)
            for number, (sample, each) in enumerate(pairs)
            if each.numel() and has_same_bytes(sample, _sample(each))
        }

    def kept(self, draw: Callable[[], Sequence[object]]) -> tuple[int, ...]:
        """Return the numbers of those tensors that are equal, and that other kinds of draws keep.

        `draw`: a further draw, where one is needed.
        """
        if not self._alike:
            return ()
        drawn = list(tensors_in(list(draw())))
        return tuple(
            number
            for number, each in self._alike.items()
            if has_same_bytes(each, drawn[number]) and not is_free(each)
        )


def fixed_notes(fixed: Sequence[int]) -> tuple[str, ...]:
    """Return what a reader has to know of a task with such inputs."""
    if not fixed:
        return ()
    names = " and ".join(filter(None, [", ".join(map(str, fixed[:-1])), str(fixed[-1])]))
    what = f"inputs {names} are" if len(fixed) > 1 else f"input {names} is"
    return (
        f"{what} the same in each draw: ModelNew may have the values built in, and is judged on "
        "no others",
    )


def other_values(x: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor of the same kind with other values, in its strides; None: none is known.

    Values stay in their range, and sorted ones sorted, with the first and the last one as they are:
    they may be indices, or places of a larger tensor.  Others change places.
    """
    held = x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.stride())]
    changed = _other_constant(held) if is_constant(held) else _changed_places(held)
    if changed is None:
        return None
    if changed.stride() != held.stride():
        changed = torch.empty_strided(
            held.shape, held.stride(), dtype=x.dtype, device=x.device
        ).copy_(changed)
    return changed.expand(x.shape)


def _changed_places(x: torch.Tensor) -> torch.Tensor | None:
    if x.dim() and x.shape[-1] > 2 and bool((x[..., 1:] >= x[..., :-1]).all()):
        changed = torch.cat([x[..., :1], x[..., :-2], x[..., -1:]], -1)
        if not has_same_bytes(changed, x):
            return changed
    for dim in reversed(range(x.dim())):
        changed = x.roll(1, dim)
        if not has_same_bytes(changed, x):
            return changed
    return None


def _other_constant(x: torch.Tensor) -> torch.Tensor | None:
    """Return other values for elements that are all equal: every second one is changed."""
    flat = x.reshape(-1).clone()
    if not flat.numel():
        return None
    some = flat[::2]
    if x.dtype == torch.bool:
        some.logical_not_()
    elif x.is_floating_point() or x.is_complex():
        some.copy_(some * 0.75 if bool(some.any()) else some + 0.25)
    elif bool((some > 0).all()):  # a length, a number of classes: no larger
        some.sub_(1)
    else:
        return None
    return flat.reshape(x.shape)


def _sample(x: torch.Tensor) -> torch.Tensor:
    flat = x.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // MOST_SAMPLED)].clone()
