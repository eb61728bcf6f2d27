"""The comparison of a winner with the plain module, which all release checks share.

It runs in a confined child, in the winner's own process, so it finds mistakes, not lies.  Each
check compares `ModelNew` of the drop-in file with `Model` of the same file.  The tolerance is wide:
a process without candidate code has compared the outputs with float64 before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from actors.evaluator.children.tensor_copies import clone, to_device
from actors.evaluator.children.tensors import tensors_in
from protocol.values import DeviceKind

TOLERANCES = {torch.float16: 3e-2, torch.bfloat16: 1e-1}  # relative to the largest element
DEFAULT_TOLERANCE = 2e-3


class ReleaseCheckError(Exception):
    """The winner is wrong in a use; the error text is one line."""


class NotCheckableError(Exception):
    """A use can't be tried on this machine or with this module; the error text is one line."""


class ReleaseComparison:
    """One imported drop-in file: its modules, its inputs, and the comparison of both."""

    def __init__(self, module: ModuleType, device: DeviceKind) -> None:
        self.module = module
        self.device = device

    def plain(self) -> torch.nn.Module:
        """Return a plain module."""
        return self._construct(self.module.Model)

    def pair(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Return a plain module and a winner with the same parameters."""
        plain = self.plain()
        return plain, self.winner_like(plain)

    def winner_like(self, plain: torch.nn.Module) -> torch.nn.Module:
        """Return a winner with a plain module's parameters."""
        winner = self._construct(self.module.ModelNew)
        winner.load_state_dict(plain.state_dict())
        return winner

    def _construct(self, module_class: Callable[..., torch.nn.Module]) -> torch.nn.Module:
        torch.manual_seed(1)
        return module_class(*to_device(list(self.module.get_init_inputs()), self.device)).to(
            self.device
        )

    def inputs(self, seed: int = 0) -> list[object]:
        """Draw inputs."""
        torch.manual_seed(seed)
        return to_device(list(self.module.get_inputs()), self.device)

    def expect(
        self,
        winner: Callable[..., object],
        plain: torch.nn.Module,
        inputs: Sequence[object],
        *,
        kernels: bool | None = None,
        where: str = "",
    ) -> None:
        """Call both modules; raise unless their outputs and their states afterwards agree.

        `kernels`: True if the winner's kernels must run, False if they must not, None for either.
        `where`: the beginning of the error text.
        """
        try:
            expected = call_on_copies(plain, inputs)
        except Exception as error:  # noqa: BLE001  # the module rejects the inputs: so must the winner
            expected = error
        if not isinstance(expected, Exception) and self._is_random(plain, inputs, expected):
            raise NotCheckableError("the module's own outputs differ from call to call")
        before = stats_of(winner)["kernel"]
        try:
            got = call_on_copies(winner, inputs)
        except Exception as error:
            if isinstance(expected, Exception):
                return
            raise ReleaseCheckError(f"{where}{type(error).__name__}: {error}") from error
        if isinstance(expected, Exception):
            raise ReleaseCheckError(f"{where}it accepts inputs that the module rejects: {expected}")
        require_same(got, expected, where)
        if state_of(winner):
            require_same(state_of(winner), state_of(plain), f"{where}state after a call: ")
        ran = stats_of(winner)["kernel"] > before
        if kernels is not None and ran is not kernels:
            reasons = list(stats_of(winner)["reasons"]) or ["the kernels ran"]
            raise ReleaseCheckError(f"{where}{reasons[-1]}")

    @staticmethod
    def _is_random(plain: torch.nn.Module, inputs: Sequence[object], expected: object) -> bool:
        try:
            require_same(call_on_copies(copy.deepcopy(plain), inputs), expected)
        except ReleaseCheckError:
            return bool(plain.training and list(plain.buffers())) is False
        return False


def require_same(got: object, expected: object, where: str = "") -> None:
    """Raise `ReleaseCheckError` unless the tensors in two values agree within the tolerance."""
    winners, plains = list(tensors_in(got)), list(tensors_in(expected))
    if len(winners) != len(plains):
        raise ReleaseCheckError(f"{where}{len(winners)} tensors, expected {len(plains)}")
    for winner, plain in zip(winners, plains, strict=True):
        _require_same_tensor(winner, plain, where)


def _require_same_tensor(winner: torch.Tensor, plain: torch.Tensor, where: str) -> None:
    if winner.shape != plain.shape or winner.dtype != plain.dtype:
        raise ReleaseCheckError(
            f"{where}{winner.dtype}{list(winner.shape)}, expected {plain.dtype}{list(plain.shape)}"
        )
    if not plain.numel():
        return
    got, expected = (tensor.detach().to(torch.float64) for tensor in (winner, plain))
    finite = expected.isfinite()
    if not torch.equal(got.isfinite(), finite):
        raise ReleaseCheckError(f"{where}not the same elements are finite as expected")
    largest = float(expected[finite].abs().max()) if bool(finite.any()) else 0.0
    error = float((got[finite] - expected[finite]).abs().max()) if bool(finite.any()) else 0.0
    if error > TOLERANCES.get(plain.dtype, DEFAULT_TOLERANCE) * max(largest, 1e-30):
        raise ReleaseCheckError(f"{where}off by {error:.3g}, the largest is {largest:.3g}")


def call_on_copies(module: Callable[..., object], inputs: Sequence[object]) -> object:
    """Call a module, seeded, on copies of the inputs; return copies of its outputs."""
    torch.manual_seed(0)
    # A copy would lose the strides or the address that an input was given for a check.
    dense = all(is_dense(tensor) for tensor in tensors_in(inputs))
    arguments = clone(list(inputs)) if dense else list(inputs)
    with torch.no_grad():
        return clone(module(*arguments))


def is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.storage_offset()


def map_tensors(
    values: Sequence[object], change: Callable[[torch.Tensor], torch.Tensor]
) -> list[object]:
    """Return `values` with `change` applied to every tensor in them."""

    def visit(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, dict):
            return {key: visit(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(visit(item) for item in value)
        return value

    return [visit(value) for value in values]


def perturbed(module: torch.nn.Module) -> torch.nn.Module:
    """Give the parameters other values, in place; return the module."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.mul_(0.75).add_(torch.randn_like(parameter), alpha=0.01)
    return module


def state_of(module: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a module's state; none for a traced or exported module."""
    original = getattr(module, "_orig_mod", module)  # the module that torch.compile wraps
    is_own_class = type(original).__name__.startswith("Model")
    return dict(original.state_dict()) if is_own_class else {}


def changes_state(module: torch.nn.Module) -> bool:
    return module.training and bool(list(module.buffers()))


def stats_of(module: object) -> dict[str, Any]:
    """Return a winner's `kernel_stats()`; for other modules no calls and no reasons."""
    kernel_stats = getattr(module, "kernel_stats", None)
    stats: dict[str, Any] = (
        kernel_stats() if callable(kernel_stats) else {"kernel": 0, "reasons": {}}
    )
    return stats
