"""The task's own module: its inputs, its parameters, its outputs in two precisions.

The task comes from the user and is trusted.  The code runs in the referee, a process without
candidate code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from types import ModuleType
from typing import Any

import torch

from actors.evaluator.children import correctness, input_variants, memory_estimate
from actors.evaluator.children.call_form import backward_form, call_of, module_copy, placed
from actors.evaluator.children.random_state import RandomStart, start_from
from actors.evaluator.children.source_import import import_task, seed_all
from actors.evaluator.children.task_errors import UnsuitableTaskError, task_errors_as
from actors.evaluator.children.tensors import value_kinds
from actors.evaluator.children.tensors.call_arguments import CallArgumentsError, positional_inputs
from actors.evaluator.children.tensors.card_draws import can_draw_on
from actors.evaluator.children.tensors.case_inputs import in_case
from actors.evaluator.children.tensors.held_state import AttributesBefore
from actors.evaluator.children.tensors.mixed_seeds import mixed_seeds
from actors.evaluator.children.tensors.random_fills import LARGE_STATE_BYTES, large_fills
from actors.evaluator.children.tensors.tensor_bytes import layout_of, tensors_in
from actors.evaluator.children.tensors.tensor_copies import as_double, clone, map_tensors, to_device
from actors.evaluator.children.wide_casts import WideCasts, casts_only_round
from actors.evaluator.ipc.card_memory import TaskBytes
from actors.evaluator.ipc.layout_checks import Layout, tensor_leaves, untransferable_types
from actors.evaluator.ipc.orders import CallForm, InputKind
from protocol.values import DeviceKind, TaskCase

GRADIENT_FUNCTION = "get_grad_inputs"  # optional: the gradients of the outputs
REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
# Bytes of inputs and parameters.  With more, float64 would take minutes, and eager is the truth.
MAX_HOST_DOUBLE_BYTES = 1 << 27
# Eager's relative error on other draws, in units of the tolerance; with more they prove nothing.
MAX_EAGER_ERROR = 10.0


@contextmanager
def without_tf32() -> Iterator[None]:
    """Keep products and convolutions of float32 from TF32, by the names that the task has used.

    torch refuses to read a setting by its older name once it was made by the newer one.
    """
    products: Any = torch.backends.cuda.matmul
    convolutions: Any = torch.backends.cudnn
    newer_convolutions: Any = getattr(convolutions, "conv", None)  # not in older torch
    with ExitStack() as stack:
        for older, newer in ((products, products), (convolutions, newer_convolutions)):
            try:
                before = older.allow_tf32
            except RuntimeError:
                stack.callback(setattr, newer, "fp32_precision", newer.fp32_precision)
                newer.fp32_precision = "ieee"
            else:
                stack.callback(setattr, older, "allow_tf32", before)
                older.allow_tf32 = False
        yield


class TaskModule:
    """One imported task; `make` constructs its module."""

    def __init__(
        self,
        source: str,
        device: DeviceKind,
        modules: Mapping[str, str] | None = None,
        case: TaskCase | None = None,
        *,
        backward: bool = False,
    ) -> None:
        """Import the task; raise `UnsuitableTaskError` when that fails or a name is missing.

        `case`: the layout that it is judged on; None: what its own functions draw.  `backward`: it
        is differentiated, as a task with `get_grad_inputs` always is.
        """
        self.device = device
        self._case = case or TaskCase(name="")
        self.form = CallForm(dtype=self._case.dtype)  # `make` adds what is differentiated
        self._gradients: Layout | None = None  # of the outputs
        with task_errors_as("the task"):
            self._task: ModuleType = import_task(source, modules or {})
        for name in REQUIRED_NAMES:
            if not callable(getattr(self._task, name, None)):
                raise UnsuitableTaskError(f"the task defines no {name}")
        self._is_differentiated = backward or hasattr(self._task, GRADIENT_FUNCTION)
        self.init: list[object] = []
        self.model: torch.nn.Module
        self.first: dict[str, torch.Tensor] = {}
        self.state = self.first
        self.attributes: dict[str, torch.Tensor] = {}  # that calls change, and that decide outputs
        self.varied: dict[str, torch.Tensor] = {}  # other values of state, for a timed block
        self.state_floors: dict[str, float] = {}  # errors that pass in what calls change, by name
        self.is_made_anew = False  # for each candidate
        self.is_repeated = False  # a call follows from its inputs, and from random numbers
        self.has_double = False  # whether a float64 version works
        self.widens_casts = False  # in it, to lower precision
        self.has_integers = False  # among its outputs
        self._output_bytes = 0  # of a call
        self.working_bytes = 0  # of a card, that a call allocates besides them
        self.fills_on_card = False  # large fills with random numbers, while it is constructed
        self._draws_on_device = False  # whether inputs are drawn on the device itself

    def make(self, seed: int) -> None:
        """Construct the module; raise `UnsuitableTaskError` when that fails."""
        sizes = memory_estimate.require_memory(self._task, self.device)
        self.fills_on_card = self.device == "cuda" and sizes.parameters >= LARGE_STATE_BYTES
        self.init = self._list("get_init_inputs", self._task.get_init_inputs)
        require_transferable("get_init_inputs()", layout_of(self.init))
        self._seed = seed
        self._construct()
        if self._is_differentiated:
            self._find_gradients(seed)
        self.first = clone(dict(self.model.state_dict()))  # as it was constructed
        self.state = self.first
        self._draws_on_device = can_draw_on(self.device, lambda: self._layout_draws(seed))

    def _construct(self) -> None:
        seed_all(self._seed)
        with task_errors_as("Model(...)"), large_fills(on_card=self.fills_on_card):
            made = self._task.Model(*to_device(self.init, self.device))
            self.model = placed(made, self.form, self.device)  # type: ignore[assignment]
        self.attributes_made = AttributesBefore(self.model)

    def _find_gradients(self, seed: int) -> None:
        """Find out what is differentiated, by a call of the module."""
        inputs = self.inputs(seed)
        with task_errors_as("Model.forward"), torch.enable_grad():
            leaves = map_tensors(
                inputs, lambda each: each.requires_grad_() if each.is_floating_point() else each
            )
            returned = module_copy(self.model)(*leaves)  # type: ignore[misc]  # a list
        form = backward_form(self.form, self.model, self._drawn_inputs(seed), returned)
        if not form.outputs:
            raise UnsuitableTaskError("Model.forward returns nothing that can be differentiated")
        if not form.inputs and not form.parameters:
            raise UnsuitableTaskError(
                "nothing gets a gradient: no parameter and no input requires one"
            )
        outputs = list(tensors_in(returned))
        self._gradients = layout_of([outputs[number].detach() for number in form.outputs])
        self.form = form

    @property
    def form_notes(self) -> tuple[str, ...]:
        """What is asked of a candidate beyond the outputs of a call."""
        if not self.form.backward:
            return ()
        count = len(self.form.parameters)
        what = [f"input {number}" for number in self.form.inputs]
        what += [f"{count} parameter{'s' if count > 1 else ''}"] if count else []
        return (
            "each call is forward and backward, timed together: ModelNew must give gradients of "
            f"{', '.join(what)} through autograd (a torch.autograd.Function around its kernels), "
            "and has the same parameter names",
        )

    def _output_gradients(self, seed: int) -> list[object]:
        """Draw the gradients of the outputs: the task's own, or normal ones."""
        wanted = list(tensor_leaves(self._gradients)) if self._gradients is not None else []
        own = getattr(self._task, GRADIENT_FUNCTION, None)
        if own is None:
            return [torch.randn(leaf.shape, dtype=getattr(torch, leaf.dtype)) for leaf in wanted]
        given = list(tensors_in(self._list(GRADIENT_FUNCTION, own)))
        shapes = [tuple(each.shape) for each in given]
        if shapes != [leaf.shape for leaf in wanted]:
            raise UnsuitableTaskError(
                f"{GRADIENT_FUNCTION}() returns {shapes}, expected a gradient for each "
                f"differentiable output: {[leaf.shape for leaf in wanted]}"
            )
        pairs = zip(given, wanted, strict=True)
        return [each.to(getattr(torch, leaf.dtype)) for each, leaf in pairs]

    def call(self, model: torch.nn.Module, inputs: Sequence[object]) -> object:
        """Call `model` on inputs as this task's calls are."""
        return call_of(model, model, self.form)(*inputs)

    def _layout_draws(self, seed: int) -> list[object]:
        """Draw what a call is given, to see its layout."""
        drawn = self._drawn_inputs(seed)
        return [*drawn, self._output_gradients(seed)] if self.form.backward else drawn

    def inputs(self, seed: int, kind: InputKind = "plain") -> list[object]:
        """Draw inputs."""
        seed_all(seed)
        with self._drawing_device():
            inputs = self._drawn_inputs(seed)
            if self.form.backward:
                inputs = [*map_tensors(inputs, torch.Tensor.detach), self._output_gradients(seed)]  # type: ignore[misc]
        require_transferable("get_inputs()", layout_of(inputs))
        here = to_device(inputs, self.device)
        return here if kind == "plain" else input_variants.vary(here, kind, seed)  # type: ignore[return-value]

    def arguments_in(self, inputs: list[object]) -> list[object]:
        """Return inputs without the gradients of outputs, which are the last of them."""
        return inputs[:-1] if self.form.backward else inputs

    def _drawn_inputs(self, seed: int) -> list[object]:
        with task_errors_as("get_inputs()"), mixed_seeds(seed, vars(self._task)):
            made = self._task.get_inputs()
        try:
            drawn = positional_inputs(made, getattr(self._task.Model, "forward", self._task.Model))
        except CallArgumentsError as error:
            raise UnsuitableTaskError(str(error)) from error
        with task_errors_as(f"case {self._case.name}"):
            return in_case(drawn, self._case, seed)

    def _drawing_device(self) -> AbstractContextManager[object]:
        return torch.device(self.device) if self._draws_on_device else nullcontext()

    def _list(self, name: str, make: Callable[[], object]) -> list[object]:
        with task_errors_as(f"{name}()"):
            made = make()
        if not isinstance(made, list | tuple):
            raise UnsuitableTaskError(f"{name}() returns a {type(made).__name__}, expected a list")
        return list(made)

    # --- parameters --------------------------------------------------------------------------

    def perturb(self, inputs: list[object], seed: int) -> None:
        """Give parameters other values, where the task works with them on these inputs."""
        for count in range(len(input_variants.CHANGES) + 1):
            without = dict.fromkeys(input_variants.CHANGES[:count], False)
            self._load(input_variants.perturb(self.model, seed, **without))
            # Tied parameters are read back as one.
            self.state = clone(dict(self.model.state_dict()))
            if self.runs_on(inputs, seed):
                return
            self._load(self.first)
        self.state = self.first

    def restore(self, names: tuple[str, ...]) -> None:
        """Give these parameters the values they were constructed with, the rest the perturbed ones.

        Constant parameters (zeros, ones) stay perturbed: a candidate without such a parameter
        relies on its value.  Where attributes of the module decide outputs, it is constructed anew:
        a candidate's module has made no call either.
        """
        if self.is_made_anew:
            self._construct()
        back = {name for name in names if not value_kinds.is_constant(self.first[name])}
        self._load({**self.state, **{name: self.first[name] for name in back}})

    def _load(self, state: dict[str, torch.Tensor]) -> None:
        own = self.model.state_dict()
        with torch.no_grad():
            for name, value in state.items():
                own[name].copy_(value)

    # --- outputs -----------------------------------------------------------------------------

    def eager_outputs(
        self, inputs: list[object], start: RandomStart, model: torch.nn.Module | None = None
    ) -> object:
        """Return the outputs of the module, or of a copy; the call may change the inputs."""
        start_from(start)
        with task_errors_as("Model.forward"), torch.no_grad():
            # Cloned: a reference that returns its own buffer must not change it later.
            return clone(self.call(self.model if model is None else model, inputs))

    def own_error_floors(self, inputs: list[object], start: RandomStart) -> tuple[float, ...]:
        """Return for each output the relative error that passes beside the module's own on a card.

        Without float64 those are what candidates are compared with, and may come from products or
        convolutions in TF32: 5e-4 off, where 1e-4 passes.  Both calls begin at the same state.
        """
        if self.has_double or self.device == "cpu":
            return ()
        try:
            eager = self.eager_outputs(clone(inputs), start, module_copy(self.model))
            with without_tf32():
                exact = self.eager_outputs(clone(inputs), start, module_copy(self.model))
            pairs = zip(tensors_in(eager), tensors_in(exact), strict=True)
            return tuple(correctness.floor_beside_eager(*pair) for pair in pairs)
        # Shapes may depend on values, and memory may not do: then the usual error passes.
        except Exception:  # noqa: BLE001
            return ()

    def double_outputs(self, inputs: list[object], start: RandomStart) -> object:
        """Return the outputs in float64, None where there is no such version."""
        return self._double(inputs, start) if self.has_double else None

    def _double(self, inputs: list[object], start: RandomStart) -> object:
        model = module_copy(self.model).double()
        start_from(start)
        with torch.no_grad(), WideCasts() if self.widens_casts else nullcontext():  # type: ignore[no-untyped-call]
            return clone(self.call(model, as_double(inputs)))

    def find_precision(self, inputs: list[object], *, is_random: bool = False) -> None:
        """Find out whether the module works in float64.

        `is_random`: it draws random numbers.  Those of float64 may be others than the task's own:
        then its outputs in float64 say nothing, and an error against them would allow any error.
        """
        held = [*tensors_in(inputs), *self.model.parameters()]
        sizes = TaskBytes(
            inputs=sum(each.nbytes for each in tensors_in(inputs)),
            outputs=self._output_bytes,
            parameters=sum(each.nbytes for each in self.model.parameters()),
            working=self.working_bytes,
        )
        if self.device == "cpu" and sizes.inputs + sizes.parameters > MAX_HOST_DOUBLE_BYTES:
            return
        if self.device == "cuda" and not sizes.fits_double(memory_estimate.free_card_bytes()):
            return
        if all(each.dtype == torch.float64 for each in held if each.is_floating_point()):
            return
        for self.widens_casts in (False, True):
            # A module may fail in any way in another precision; then it has no float64 version.
            with suppress(Exception):
                self.has_double = self._is_double(list(tensors_in(self._double(inputs, 0))), inputs)
            if self.has_double:
                break
        if is_random:
            self.has_double = self.has_double and self.runs_on(inputs, 0)

    def _is_double(self, exact: list[torch.Tensor], inputs: list[object]) -> bool:
        if not self.widens_casts:
            wide = (torch.float64, torch.complex128)
            return all(each.dtype in wide or not each.is_floating_point() for each in exact)
        eager = self.eager_outputs(clone(inputs), 0, module_copy(self.model))
        return casts_only_round(list(tensors_in(eager)), exact)

    def is_deterministic(
        self, inputs: list[object], seed: int | None, between: int | None = None
    ) -> bool:
        """Whether the same inputs give the same outputs, seeded alike or (None) not at all.

        `between`: the seed of other inputs, on which the module is called in between; then it is
        called once more, for a state that takes turns is the same two calls later.
        """
        model = module_copy(self.model)
        results = []
        for number in range(2 if between is None else 3):
            if number == 1 and between is not None:
                with task_errors_as("Model.forward"), torch.no_grad():
                    self.call(model, self.inputs(between))
            if seed is not None:
                model = module_copy(self.model)
                seed_all(seed)
            given = clone(inputs)
            with task_errors_as("Model.forward"), torch.no_grad():
                peak = memory_estimate.PeakMemory(self.device)
                returned = self.call(model, given)
            require_transferable("Model.forward", layout_of(returned))
            self._output_bytes = sum(each.nbytes for each in tensors_in(returned))
            self.working_bytes = max(0, peak.bytes() - self._output_bytes)
            results.append(clone(returned))
            del given, returned  # before the next call
        return all(are_equal(results[0], each) for each in results[1:])

    def runs_on(self, inputs: list[object], seed: int) -> bool:
        """Whether outputs are finite and eager's own error is small enough to compare with."""
        try:
            eager = self.eager_outputs(clone(inputs), seed)
            exact = self.double_outputs(inputs, seed)
        # A task may refuse what its own get_inputs never gives it.
        except Exception:  # noqa: BLE001
            return False
        ours = list(tensors_in(eager))
        if not all(bool(each.isfinite().all()) for each in ours if each.is_floating_point()):
            return False
        if exact is None:
            return True
        truths = list(tensors_in(exact))
        return (self.widens_casts and casts_only_round(ours, truths)) or all(
            correctness.relative_loss(own, true) <= MAX_EAGER_ERROR * correctness.floor_of(own)
            for own, true in zip(ours, truths, strict=True)
        )


def are_equal(first: object, second: object) -> bool:
    """Whether a task's outputs differ by no more than is tolerated."""
    return all(
        a.shape == b.shape and not correctness.compare(b, a, None, "").reason
        for a, b in zip(tensors_in(first), tensors_in(second), strict=True)
    )


def require_transferable(where: str, layout: Layout) -> None:
    """Raise `UnsuitableTaskError` when a part of a value can't cross to another process."""
    found = next(untransferable_types(layout), None)
    if found is not None:
        raise UnsuitableTaskError(
            f"{where} has a value of type {found}: only tensors and plain values can be judged"
        )


def require_comparable(state: Layout, outputs: Layout) -> None:
    """Raise `UnsuitableTaskError` when a part can't cross, or no output is a tensor."""
    require_transferable("Model's state", state)
    require_transferable("Model.forward", outputs)
    if not list(tensor_leaves(outputs)):
        raise UnsuitableTaskError("Model.forward returns no tensor: there is nothing to compare")
