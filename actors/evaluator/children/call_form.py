"""Makes a module callable as `module(*inputs)`, whatever its dtype is and whether it is trained.

The referee and the runners of both sides use it, so both sides are called alike and the code that
times calls knows one form only.  A call of a task that is judged with its backward pass takes the
gradients of the outputs as its last input, and returns outputs and gradients together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from actors.evaluator.children.task_errors import task_errors_as
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import map_tensors
from actors.evaluator.ipc.orders import CallForm

OUTPUT, OF_INPUT, OF_PARAMETER = "output", "gradient of input", "gradient of parameter"


def module_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of the task's module, whose calls change nothing of the module's."""
    with task_errors_as("copy.deepcopy of Model"):
        return copy.deepcopy(module)


def placed(module: object, form: CallForm, device: str) -> object:
    """Return a constructed module on its device and in its dtype."""
    if isinstance(module, torch.nn.Module):
        module = module.to(device)
        if form.dtype:
            module = module.to(getattr(torch, form.dtype))
    return module


def call_of(call: object, module: object, form: CallForm) -> Callable[..., Any]:
    """Return what is called with a task's inputs: `call` itself where only its outputs count.

    `call` is `module`, or `module` compiled.
    """
    return ForwardAndBackward(call, module, form) if form.backward else call  # type: ignore[return-value]


class ForwardAndBackward:
    """Calls a module and differentiates it, through autograd, with given output gradients.

    Gradients come from `torch.autograd.grad`, so what a module leaves in `.grad` counts for
    nothing.  An output that is detached has no gradients: they are None.
    """

    def __init__(self, call: object, module: object, form: CallForm) -> None:
        self._call: Any = call
        self._module = module
        self._form = form
        self._parameters: dict[str, torch.Tensor] | None = None

    def __call__(self, *inputs: object) -> dict[str, object]:
        *given, gradients = inputs
        form = self._form
        leaves: list[torch.Tensor] = []
        # On the calling thread: its allocations are followed, and a freeze stops it.
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            arguments = _with_leaves(given, form.inputs, leaves)
            returned = self._call(*arguments)
            if self._parameters is None:  # a module may make some in its first call
                self._parameters = _parameters_of(self._module, form.parameters)
            targets = [*leaves, *self._parameters.values()]
            found = iter(_gradients(returned, gradients, targets, form.outputs))
        of_inputs = [next(found) for _leaf in leaves]
        of_parameters = dict(zip(self._parameters, found, strict=True))
        return {
            OUTPUT: map_tensors(returned, torch.Tensor.detach),
            OF_INPUT: of_inputs,
            OF_PARAMETER: {name: of_parameters.get(name) for name in form.parameters},
        }


def _with_leaves(
    given: Sequence[object], wanted: Sequence[int], leaves: list[torch.Tensor]
) -> list[object]:
    """Return the inputs, of which the wanted tensors are leaves of a new graph."""
    numbers = iter(range(len(list(tensors_in(given)))))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if next(numbers) not in wanted:
            return tensor
        leaf = tensor.detach().requires_grad_()
        leaves.append(leaf)
        return leaf

    return map_tensors(list(given), change)  # type: ignore[return-value]  # a list in, a list out


def _parameters_of(module: object, names: Sequence[str]) -> dict[str, torch.Tensor]:
    known = dict(module.named_parameters()) if isinstance(module, torch.nn.Module) else {}
    return {name: known[name] for name in names if name in known}


def _gradients(
    returned: object, gradients: object, targets: list[torch.Tensor], numbers: Sequence[int]
) -> Sequence[torch.Tensor | None]:
    """Return the gradient of each target; None where the outputs do not depend on it."""
    outputs = list(tensors_in(returned))
    pairs = [
        (outputs[number], gradient)
        for number, gradient in zip(numbers, tensors_in(gradients), strict=True)
        if number < len(outputs)
    ]
    if any(output.shape != gradient.shape for output, gradient in pairs):
        return [None] * len(targets)  # the comparison of outputs says what is wrong
    pairs = [pair for pair in pairs if pair[0].requires_grad]
    targets_with_graph = [target for target in targets if target.requires_grad]
    if not pairs or not targets_with_graph:
        return [None] * len(targets)
    found = iter(
        torch.autograd.grad(
            [output for output, _gradient in pairs],
            targets_with_graph,
            [gradient for _output, gradient in pairs],
            allow_unused=True,
        )
    )
    return [next(found) if target.requires_grad else None for target in targets]


# --- what a task asks for -------------------------------------------------------------------------


def backward_form(
    form: CallForm, module: torch.nn.Module, inputs: Sequence[object], returned: object
) -> CallForm:
    """Return the form of a task's differentiated call.

    `inputs` are as `get_inputs()` returns them: those that require a gradient get one; if none
    does, all floating-point inputs.  `returned`: the outputs of a call with gradients.
    """
    tensors = list(tensors_in(inputs))
    marked = [number for number, each in enumerate(tensors) if each.requires_grad]
    floating = [number for number, each in enumerate(tensors) if each.is_floating_point()]
    outputs = tensors_in(returned)
    return CallForm(
        dtype=form.dtype,
        backward=True,
        inputs=tuple(marked or floating),
        outputs=tuple(number for number, each in enumerate(outputs) if each.requires_grad),
        parameters=tuple(name for name, each in module.named_parameters() if each.requires_grad),
    )


def result_names(value: object, form: CallForm) -> list[str]:
    """Return what each tensor of a call's result is, for people, in their order."""
    if not form.backward or not isinstance(value, dict):
        count = len(list(tensors_in(value)))
        return ["output"] if count == 1 else [f"output {number}" for number in range(count)]
    names = result_names(value[OUTPUT], CallForm())
    names += [
        f"the gradient of input {number}"
        for number, each in zip(form.inputs, value[OF_INPUT], strict=True)
        if each is not None
    ]
    return names + [
        f"the gradient of parameter {name}"
        for name, each in value[OF_PARAMETER].items()
        if each is not None
    ]
