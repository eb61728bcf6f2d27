"""The task's own module: its inputs, its parameters, its outputs in two precisions.

The task comes from the user and is trusted.  Runs in the referee, which no candidate shares.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

import torch

from actors.evaluator.children import (
    correctness,
    input_variants,
    memory_estimate,
    task_dependencies,
    tensors,
)
from actors.evaluator.children.runner import import_file, seed_all
from actors.evaluator.children.task_errors import UnsuitableTaskError, task_errors_as
from actors.evaluator.children.tensor_copies import as_double, clone, to_device
from actors.evaluator.ipc.layout_checks import Layout, untransferable_types
from actors.evaluator.ipc.orders import InputKind
from protocol.values import DeviceKind

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
# Bytes of inputs and parameters; of more, eager itself is the truth: float64 would take minutes.
MAX_DOUBLE_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31}
MAX_NON_FINITE_SHARE = (
    1e-3  # the share that eager may lose on other draws; more, and they say nothing
)


class TaskModule:
    """One task, imported; constructed by `make`."""

    def __init__(
        self, source: str, device: DeviceKind, modules: Mapping[str, str] | None = None
    ) -> None:
        """Raise `UnsuitableTaskError` when the task is no task."""
        self.device = device
        with task_errors_as("the task"):
            task_dependencies.write_dependencies(modules or {})
            self._task: ModuleType = import_file(source, "task")
        for name in REQUIRED_NAMES:
            if not callable(getattr(self._task, name, None)):
                raise UnsuitableTaskError(f"the task defines no {name}")
        self.init: list[object] = []
        self.model: torch.nn.Module
        self.first: dict[str, torch.Tensor] = {}
        self.state = self.first
        self.has_double = False  # whether a float64 version can be had
        self._there = False  # whether inputs are drawn on the device itself

    def make(self, seed: int) -> None:
        """Construct the module; raise `UnsuitableTaskError` when that can't be done."""
        if self.device == "cpu":
            memory_estimate.require_memory(
                self._task
            )  # a card says itself that it is full, and nobody is killed
        self.init = self._list("get_init_inputs", self._task.get_init_inputs)
        require_transferable("get_init_inputs()", tensors.layout_of(self.init))
        seed_all(seed)
        with task_errors_as("Model(...)"):
            self.model = self._task.Model(*to_device(self.init, self.device)).to(self.device)
        self.first = clone(dict(self.model.state_dict()))  # as it was constructed
        self.state = self.first
        self._there = self.device == "cuda" and self._draws_there(seed)

    def _draws_there(self, seed: int) -> bool:
        """Whether `get_inputs` draws on the card when told so: hundreds of times faster."""
        slow = tensors.layout_of(self.inputs(seed))
        try:
            with torch.device(self.device):
                fast = self._task.get_inputs()
        # Whatever a task makes of a default device (numpy, a generator of its own).
        except Exception:  # noqa: BLE001
            return False
        return tensors.layout_of(to_device(list(fast), self.device)) == slow

    def inputs(self, seed: int, kind: InputKind = "plain") -> list[object]:
        """Draw inputs."""
        seed_all(seed)
        with self._place():
            inputs = self._list("get_inputs", self._task.get_inputs)
        require_transferable("get_inputs()", tensors.layout_of(inputs))
        made = to_device(inputs, self.device)
        return made if kind == "plain" else input_variants.vary(made, kind, seed)  # type: ignore[return-value]

    def _place(self) -> AbstractContextManager[object]:
        return torch.device(self.device) if self._there else nullcontext()

    def _list(self, name: str, make: Callable[[], object]) -> list[object]:
        with task_errors_as(f"{name}()"):
            made = make()
        if not isinstance(made, list | tuple):
            raise UnsuitableTaskError(f"{name}() returns a {type(made).__name__}, expected a list")
        return list(made)

    # --- parameters --------------------------------------------------------------------------

    def perturb(self, seed: int) -> None:
        """Give parameters other values, where the task bears them."""
        inputs = self.inputs(seed)
        self._load(input_variants.perturb(self.model, seed))
        # Tied parameters are read back as one.
        self.state = clone(dict(self.model.state_dict()))
        if not self._runs_on(inputs, seed):
            self.state = self.first
            self._load(self.first)

    def restore(self, names: tuple[str, ...]) -> None:
        """Give these parameters the values they were constructed with, the rest the shaken ones.

        Zeros and ones stay shaken: a module that has no such parameter counted on its value.
        """
        back = {name for name in names if not input_variants.is_constant(self.first[name])}
        self._load({**self.state, **{name: self.first[name] for name in back}})

    def _load(self, state: dict[str, torch.Tensor]) -> None:
        own = self.model.state_dict()
        with torch.no_grad():
            for name, value in state.items():
                own[name].copy_(value)

    # --- outputs -----------------------------------------------------------------------------

    def eager_outputs(self, inputs: list[object], seed: int) -> object:
        """Return the module's outputs; the inputs may be changed by it."""
        seed_all(seed)
        with task_errors_as("Model.forward"), torch.no_grad():
            # Cloned: a reference that returns its own buffer must not change it later.
            return clone(self.model(*inputs))

    def has_aliases(self, inputs: list[object], seed: int) -> bool:
        """Whether an output lies in an input's memory: a view of it, or written in place."""
        seed_all(seed)
        given = clone(inputs)
        with task_errors_as("Model.forward"), torch.no_grad():
            returned = self.model(*given)
        held = {each.untyped_storage().data_ptr() for each in tensors.tensors_in(given)}
        places = {each.untyped_storage().data_ptr() for each in tensors.tensors_in(returned)}
        return bool(held & places - {0})

    def double_outputs(self, inputs: list[object], seed: int) -> object:
        """Return the outputs in float64, None where there is no such version."""
        return self._double(inputs, seed) if self.has_double else None

    def _double(self, inputs: list[object], seed: int) -> object:
        model = copy.deepcopy(self.model).double()
        seed_all(seed)
        with torch.no_grad():
            return clone(model(*as_double(inputs)))

    def find_precision(self, inputs: list[object]) -> None:
        """See whether the module can be widened."""
        held = [*tensors.tensors_in(inputs), *self.model.parameters()]
        if sum(each.numel() * each.element_size() for each in held) > MAX_DOUBLE_BYTES[self.device]:
            return
        floating = [tensor for tensor in held if tensor.is_floating_point()]
        if not floating or all(tensor.dtype == torch.float64 for tensor in floating):
            return
        try:
            exact = self._double(inputs, 0)
        # Whatever a module raises when its precision is changed: then there is no such reference.
        except Exception:  # noqa: BLE001
            return
        self.has_double = all(
            tensor.dtype in (torch.float64, torch.complex128) or not tensor.is_floating_point()
            for tensor in tensors.tensors_in(exact)
        )

    def is_deterministic(self, inputs: list[object], seed: int | None) -> bool:
        """Whether the same inputs give the same outputs, seeded alike or (None) not at all."""
        model = copy.deepcopy(self.model)
        results = []
        for _time in range(2):
            if seed is not None:
                model = copy.deepcopy(self.model)
                seed_all(seed)
            with task_errors_as("Model.forward"), torch.no_grad():
                returned = model(*clone(inputs))
            require_transferable("Model.forward", tensors.layout_of(returned))
            results.append(clone(returned))
        first, second = map(tensors.tensors_in, results)
        return all(
            a.shape == b.shape and not correctness.compare(b, a, None, "").reason
            for a, b in zip(first, second, strict=True)
        )

    def _runs_on(self, inputs: list[object], seed: int) -> bool:
        """Whether outputs are finite and eager's own precision still says something."""
        try:
            eager, exact = (
                self.eager_outputs(clone(inputs), seed),
                self.double_outputs(inputs, seed),
            )
        # A task may refuse what its own get_inputs never gives it.
        except Exception:  # noqa: BLE001
            return False
        ours = [each for each in tensors.tensors_in(eager) if each.is_floating_point()]
        if not all(bool(each.isfinite().all()) for each in ours):
            return False
        if exact is None:
            return True
        pairs = zip(tensors.tensors_in(eager), tensors.tensors_in(exact), strict=True)
        return all(correctness.relative_loss(a, b) <= MAX_NON_FINITE_SHARE for a, b in pairs)

    def accepts_kind(self, kind: InputKind, seed: int) -> bool:
        """Whether inputs of this kind can be asked for, and differ from plain ones."""
        plain, other = self.inputs(seed), self.inputs(seed, kind)
        pairs = zip(tensors.tensors_in(plain), tensors.tensors_in(other), strict=True)
        if all(torch.equal(a, b) for a, b in pairs):
            return False
        return self._runs_on(other, seed)


def require_transferable(where: str, layout: Layout) -> None:
    """Raise `UnsuitableTaskError` when a value holds what can't be handed to another process."""
    found = next(untransferable_types(layout), None)
    if found is not None:
        raise UnsuitableTaskError(
            f"{where} has a value of type {found}: only tensors and plain values can be judged"
        )
