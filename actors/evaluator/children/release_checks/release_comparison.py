"""Compares a winner with the plain module: the common part of the release checks.

It runs in a confined child, in the winner's own process, so it finds mistakes, not fraud.  Each
check compares `ModelNew` of the drop-in file with `Model` of the same file.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch

from actors.evaluator.children.release_checks.card_construction import prepare_guard
from actors.evaluator.children.release_checks.carried_attributes import require_same_attributes
from actors.evaluator.children.release_checks.tensor_agreement import (
    ReleaseCheckError,
    UntestableUseError,
    require_same,
)
from actors.evaluator.children.tensors import tensor_copies
from actors.evaluator.children.tensors.call_arguments import positional_inputs
from actors.evaluator.children.tensors.card_draws import can_draw_on
from actors.evaluator.children.tensors.case_inputs import in_case
from actors.evaluator.children.tensors.mixed_seeds import mixed_seeds
from actors.evaluator.children.tensors.random_fills import large_fills
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone, to_device
from protocol.cases import TaskCase
from protocol.values import DeviceKind


class ReleaseComparison:
    """One imported drop-in file: modules, inputs, and the comparison of `ModelNew` with `Model`."""

    def __init__(
        self,
        module: ModuleType,
        device: DeviceKind,
        case: TaskCase | None = None,
        *,
        fills_on_card: bool = False,
    ) -> None:
        """`case`: the layout of inputs and module; None: the file's own.

        `fills_on_card`: whether modules are so large that the card draws their first values.
        """
        self.module = module
        self.device = device
        self._case = case or TaskCase(name="")
        # The attributes in which the module keeps a state; () for most modules.
        self.carried: tuple[str, ...] = module._JUDGED.get("carried", ("dict", ()))[1]
        # Whether the kernels must run after calls of other kinds: those may leave another state.
        self.again = None if self.carried else True
        self._fills_on_card = fills_on_card
        if fills_on_card:
            prepare_guard(module)
        self._draws_on_card = can_draw_on(device, lambda: self._drawn(0))

    def plain(self) -> torch.nn.Module:
        """Return a plain module."""
        return self._construct(self.module.Model)

    def pair(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Return a plain module and a winner with the same parameters."""
        plain = self.plain()
        return plain, self.like(plain)

    def like(self, plain: torch.nn.Module) -> torch.nn.Module:
        """Return a winner with a plain module's parameters."""
        winner = self._construct(self.module.ModelNew)
        winner.load_state_dict(plain.state_dict())
        return winner

    def _construct(self, kind: Callable[..., torch.nn.Module]) -> torch.nn.Module:
        torch.manual_seed(1)
        with large_fills(on_card=self._fills_on_card):
            made = kind(*to_device(list(self.module.get_init_inputs()), self.device))
        made = made.to(self.device)
        return made.to(getattr(torch, self._case.dtype)) if self._case.dtype else made

    def inputs(self, seed: int = 0) -> list[object]:
        """Draw inputs."""
        torch.manual_seed(seed)
        with torch.device(self.device) if self._draws_on_card else nullcontext():
            drawn = self._drawn(seed)
        return to_device(drawn, self.device)

    def _drawn(self, seed: int) -> list[object]:
        with mixed_seeds(seed, vars(self.module)):
            made = positional_inputs(self.module.get_inputs(), self.module.Model.forward)
        return in_case(made, self._case, seed)

    def expect(
        self,
        winner: Callable[..., object],
        plain: torch.nn.Module,
        inputs: Sequence[object],
        *,
        kernels: bool | None = None,
        where: str = "",
    ) -> None:
        """Call both modules; raise unless their outputs and their states agree.

        `kernels`: whether the winner's kernels must have run (True) or not (False).
        """
        # What a call returns may follow from the state in attributes, which calls change.
        before = copy.deepcopy(plain) if self.carried else plain
        try:
            expected = call_on_copies(plain, inputs)
        except Exception as error:  # noqa: BLE001  # the module's own: the winner must raise, too
            expected = error
        if not isinstance(expected, Exception) and self._is_random(before, inputs, expected):
            raise UntestableUseError("the module's own outputs differ from call to call")
        earlier = stats_of(winner)["kernel"]
        try:
            got = call_on_copies(winner, inputs)
        except Exception as error:
            if isinstance(expected, Exception):
                require_same_attributes(winner, plain, self.carried, where)
                return
            raise ReleaseCheckError(f"{where}{type(error).__name__}: {error}") from error
        if isinstance(expected, Exception):
            raise ReleaseCheckError(f"{where}it returns what the module refuses: {expected}")
        require_same(got, expected, where, exact_outputs(before, inputs))
        if state_of(winner):
            require_same(state_of(winner), state_of(plain), f"{where}state after a call: ")
        require_same_attributes(winner, plain, self.carried, where)
        ran = stats_of(winner)["kernel"] > earlier
        if kernels is not None and ran is not kernels:
            why = list(stats_of(winner)["reasons"]) or ["the kernels ran"]
            raise ReleaseCheckError(f"{where}{why[-1]}")

    @staticmethod
    def _is_random(plain: torch.nn.Module, inputs: Sequence[object], expected: object) -> bool:
        try:
            require_same(call_on_copies(copy.deepcopy(plain), inputs), expected)
        except ReleaseCheckError:
            return bool(plain.training and list(plain.buffers())) is False
        return False


def exact_outputs(plain: torch.nn.Module, inputs: Sequence[object]) -> Callable[[], object]:
    """Return what computes a module's outputs in float64; None where it does not run so.

    Nor where they depend on random draws: float64 draws others.
    """

    @functools.cache
    def exact() -> object:
        try:
            doubled = copy.deepcopy(plain).double()
            wide = widened(inputs)
            first, second = (call_on_copies(doubled, wide, seed) for seed in range(2))
        except Exception:  # noqa: BLE001  # a user's module may mix dtypes
            return None
        pairs = zip(tensors_in(first), tensors_in(second), strict=True)
        return first if all(torch.equal(one, other) for one, other in pairs) else None

    return exact


def call_on_copies(
    module: Callable[..., object], inputs: Sequence[object], seed: int = 0
) -> object:
    """Call a module on copies of inputs, seeded; return copies of its outputs."""
    torch.manual_seed(seed)
    given = (
        clone(list(inputs))
        if all(is_whole_storage(t) for t in tensors_in(inputs))
        else list(inputs)
    )
    with torch.no_grad():
        return clone(module(*given))


def is_whole_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor is contiguous and begins where its storage begins."""
    return tensor.is_contiguous() and not tensor.storage_offset()


def map_tensors(
    values: Sequence[object], change: Callable[[torch.Tensor], torch.Tensor]
) -> list[object]:
    """Return `values` with `change` applied to each tensor in them."""
    return [tensor_copies.map_tensors(value, change) for value in values]


def widened(values: Sequence[object]) -> list[object]:
    """Return `values` with floating tensors in float64."""
    return map_tensors(values, lambda t: t.double() if t.is_floating_point() else t)


def perturbed(module: torch.nn.Module) -> torch.nn.Module:
    """Give parameters other values, in place, and return the module."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.mul_(0.75).add_(torch.randn_like(parameter), alpha=0.01)
    return module


def state_of(module: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a module's state; {} for a traced or exported module."""
    wrapped = getattr(module, "_orig_mod", module)  # the module in a compiled one
    is_plain = type(wrapped).__name__.startswith("Model")
    return dict(wrapped.state_dict()) if is_plain else {}


def changes_state(module: torch.nn.Module) -> bool:
    """Whether a call may change the module's buffers."""
    return module.training and bool(list(module.buffers()))


def stats_of(module: object) -> dict[str, Any]:
    """Return how often a winner ran its kernels, and the reasons why not; zero for others."""
    stats = getattr(module, "kernel_stats", None)
    found: dict[str, Any] = stats() if callable(stats) else {"kernel": 0, "reasons": {}}
    return found
