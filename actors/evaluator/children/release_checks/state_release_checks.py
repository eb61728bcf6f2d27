"""The release check of a module that keeps a state in plain attributes: a sequence of calls.

Kernels and plain forwards take turns, and the state is changed between calls as a user may.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from actors.evaluator.children.release_checks.carried_attributes import (
    held_attributes,
    require_same_attributes,
    set_attribute,
    shares_memory,
)
from actors.evaluator.children.release_checks.input_release_checks import InputReleaseChecks
from actors.evaluator.children.release_checks.release_comparison import (
    exact_outputs,
    map_tensors,
    stats_of,
)
from actors.evaluator.children.release_checks.tensor_agreement import (
    ReleaseCheckError,
    UntestableUseError,
    require_same,
)
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone

Context = Callable[[], AbstractContextManager[object]]
MOST_KEPT_BYTES, LEAST_KEPT = 1 << 30, 6  # of former tensors of the attributes
ALTERNATING_CALLS = 8  # a state that is changed in some of the calls alone shows


class _ObservedMode(TorchFunctionMode):
    """Changes nothing; under a function mode a winner runs the plain forward."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Call:
    """One call of a module, and what it made of the attributes."""

    def __init__(
        self, module: Any, inputs: list[object], names: tuple[str, ...], within: Context
    ) -> None:
        self.held = held_attributes(module, names)
        self.given = clone(inputs)
        self.outputs: object = None
        self.error: Exception | None = None
        torch.manual_seed(0)
        with torch.no_grad(), within():
            try:
                self.outputs = module(*self.given)
            except Exception as error:  # noqa: BLE001  # the winner has to raise, too
                self.error = error
        self.after = held_attributes(module, names)

    def shared(self) -> set[str]:
        """Return which attributes share memory with an input, an output or their former tensor."""
        others = {f"input {number}": each for number, each in enumerate(tensors_in(self.given))}
        others |= {f"output {number}": each for number, each in enumerate(tensors_in(self.outputs))}
        others |= {f"the former {name}": value for name, value in self.held.items()}  # type: ignore[misc]
        others |= {f"the new {name}": value for name, value in self.after.items()}  # type: ignore[misc]
        return {
            f"{name} and {what}"
            for name, value in self.after.items()
            for what, other in others.items()
            if what != f"the new {name}" and shares_memory(value, other)
        }


class StateReleaseChecks(InputReleaseChecks):
    """The check `module state`."""

    def check_module_state(self) -> None:
        if not self.carried:
            raise UntestableUseError("no call changes a plain attribute of the module")
        plain, winner = self.pair()
        first = {
            name: _copied(value) for name, value in held_attributes(plain, self.carried).items()
        }
        # What each attribute was, in its copy, and what it is in the module.
        self._former: list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._keep(plain, winner)
        self.expect(winner, plain, self.inputs(), kernels=True)  # or its outputs are random
        seeds = iter(range(1, 1000))

        def call(where: str, within: Context = contextlib.nullcontext, *, kernels: bool | None,
                 change: Callable[[list[object]], list[object]] = list) -> None:  # fmt: skip
            inputs = change(self.inputs(next(seeds)))
            self._call_both(plain, winner, inputs, f"{where}: ", within, kernels)

        for _number in range(2):
            call("a further call", kernels=True)
        for number in range(ALTERNATING_CALLS):
            is_plain = number % 3 == 1
            within: Context = _ObservedMode if is_plain else contextlib.nullcontext
            call(f"call {number} of kernels and plain forwards", within, kernels=not is_plain)
        for what, replace in _REPLACEMENTS.items():
            for module in (plain, winner):
                for name, value in held_attributes(module, self.carried).items():
                    replace(module, name, value, _copied(first[name]))
            self._former = [(*each[:2], each[1].detach().clone(), each[3]) for each in self._former]
            call(f"after it was {what}", kernels=True)
        call("another shape", kernels=None, change=_shorter)
        call("after another shape", kernels=None)
        for count in self._shorter_calls():
            call(f"a call with {count} inputs", kernels=None, change=lambda given: given[:count])  # noqa: B023
            call(f"after a call with {count} inputs", kernels=None)
        call("a call with gradients", torch.enable_grad, kernels=None)
        for _number in range(2):
            call("after a call with gradients", kernels=None)

    def require_no_state(self) -> None:
        """Raise where the module keeps a state in attributes."""
        if self.carried:  # a graph would have that of the call that was recorded, as a constant
            raise UntestableUseError("each call changes the module's state")

    def _shorter_calls(self) -> Iterator[int]:
        """Yield how many inputs a call may have without the last ones, which have defaults."""
        parameters = list(inspect.signature(self.module.Model.forward).parameters.values())[1:]
        count = len(self.inputs())
        for number in range(count - 1, 0, -1):
            if number >= len(parameters) or parameters[number].default is inspect.Parameter.empty:
                return
            yield number

    def _call_both(
        self,
        plain: torch.nn.Module,
        winner: torch.nn.Module,
        inputs: list[object],
        where: str,
        within: Context,
        kernels: bool | None,
    ) -> None:
        """Call both modules; raise unless outputs, attributes and what shares memory agree."""
        before = None
        with contextlib.suppress(RuntimeError):  # a state with a gradient can't be copied
            before = copy.deepcopy(plain)
        ran = stats_of(winner)["kernel"]
        expected, got = (_Call(each, inputs, self.carried, within) for each in (plain, winner))
        require_same_attributes(winner, plain, self.carried, where)
        if (got.error is None) is not (expected.error is None):
            raise ReleaseCheckError(f"{where}{got.error!r}, the module: {expected.error!r}")
        if expected.error is not None:
            return
        exact = exact_outputs(before, inputs) if before is not None else lambda: None
        require_same(got.outputs, expected.outputs, where, exact)
        differing = got.shared() ^ expected.shared()
        if differing:
            here = "here" if min(differing) in got.shared() else "in the module"
            raise ReleaseCheckError(f"{where}{min(differing)} share memory, {here} alone")
        self._require_former_values(where)
        self._keep(plain, winner)
        if kernels is not None and (stats_of(winner)["kernel"] > ran) is not kernels:
            reasons = list(stats_of(winner)["reasons"]) or ["the kernels ran"]
            raise ReleaseCheckError(f"{where}{reasons[-1]}")

    def _require_former_values(self, where: str) -> None:
        """Raise where a former tensor of an attribute has values that the module never gives it.

        A user may keep it.  Kernels that leave it as it was are right, also where the module writes
        to it first and replaces it then.
        """
        for name, value, kept, expected in self._former:
            if not _is_equal(value, kept):
                require_same(value, expected, f"{where}a former tensor of {name}: ")

    def _keep(self, plain: torch.nn.Module, winner: torch.nn.Module) -> None:
        """Keep the tensors of the attributes, as a user may."""
        theirs = held_attributes(plain, self.carried)
        for name, value in held_attributes(winner, self.carried).items():
            expected = theirs[name]
            if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor):
                self._former.append((name, value, value.detach().clone(), expected))
        while len(self._former) > LEAST_KEPT and self._kept_bytes() > MOST_KEPT_BYTES:
            del self._former[0]

    def _kept_bytes(self) -> int:
        return sum(value.nbytes for _, value, _, _ in self._former)


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.detach().nan_to_num(), other.nan_to_num())


def _copied(value: object) -> object:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _shorter(inputs: list[object]) -> list[object]:
    """Return inputs with half of their first dimension."""
    return map_tensors(
        inputs, lambda each: each[: each.shape[0] // 2].contiguous() if each.dim() else each
    )


def _replace(module: torch.nn.Module, name: str, _value: object, first: object) -> None:
    set_attribute(module, name, first)


def _write(module: torch.nn.Module, _name: str, value: object, _first: object) -> None:
    if isinstance(value, torch.Tensor):
        value.zero_()


def _write_data(module: torch.nn.Module, _name: str, value: object, first: object) -> None:
    if isinstance(value, torch.Tensor) and isinstance(first, torch.Tensor):
        value.data.copy_(first)


def _replace_data(module: torch.nn.Module, _name: str, value: object, _first: object) -> None:
    if isinstance(value, torch.Tensor):
        value.data = torch.zeros_like(value)


_REPLACEMENTS = {
    "replaced": _replace,
    "set to zero in place": _write,
    "written to through .data": _write_data,
    "given other .data": _replace_data,
}
