"""A candidate's backward: methods with kernels for gradients, and autograd's Function around them.

`forward` has the guards and calls the Function; `kernels_forward_N` and `kernels_backward_N` of the
N-th case launch the kernels.  The backward computes again what it needs of the forward.
"""

from __future__ import annotations

import ast
import copy
import re

import msgspec

from actors.agents.recipes.codegen.elements import Element
from actors.agents.recipes.codegen.forward_method import CaseKernels, ForwardMethod
from actors.agents.recipes.codegen.gradient_program import GRADIENT
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.schedule.knobs import Knobs

FUNCTION = "KernelsWithGradients"
FORWARD, BACKWARD = "kernels_forward_", "kernels_backward_"
FUNCTION_TEXT = f'''

class {FUNCTION}(torch.autograd.Function):
    """The kernels of one case, with their derivative."""

    @staticmethod
    def forward(ctx, module, case, given, *tensors):
        ctx.module, ctx.case, ctx.given = module, case, given
        ctx.save_for_backward(*tensors)
        return getattr(module, f"{FORWARD}{{case}}")(*tensors[:given])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        tensors = ctx.saved_tensors[: ctx.given]  # parameters are the module's own
        method = getattr(ctx.module, f"{BACKWARD}{{ctx.case}}")
        return None, None, None, *method(*tensors, *(each.contiguous() for each in gradients))
'''
NO_BACKWARD = """\
    def no_backward(self, *tensors):
        raise RuntimeError("the kernels' backward got other tensors than the forward")"""


class ApplyingMethod(ForwardMethod):
    """`forward` of a case: its guards, then the Function."""

    def __init__(
        self, case: CaseKernels, knobs: Knobs, backend: str, element: Element, number: int
    ) -> None:
        super().__init__(case, knobs, backend, element)
        self.number = number

    def steps(self) -> None:
        """No kernel is launched here."""

    def return_expression(self, output: object) -> str:
        """The call of the Function."""
        if self.gradients is None:
            raise TypeError("a case without a backward")
        names = ", ".join(self.names[index] for index in self.gradients.tensors)
        given = sum(not self.graph[i].text.startswith("self.") for i in self.gradients.tensors)
        return f"{FUNCTION}.apply(self, {self.number}, {given}, {names})"


class BackwardMethod(ForwardMethod):
    """`kernels_backward_N`: from inputs and gradients of results to gradients."""

    def return_expression(self, output: object) -> str:
        """One for each tensor that the Function got."""
        if self.gradients is None:
            raise TypeError("a case without a backward")
        texts = (
            "None" if node is None else self.variable_of(node) for node in self.gradients.found
        )
        return f"({', '.join(texts)},)"


def differentiable_methods(
    case: CaseKernels,
    number: int,
    name: str,
    spec: ast.arguments,
    otherwise: str,
    style: tuple[Knobs, str, Element],
    *,
    has_arguments: bool,
) -> list[str]:
    """The three methods of one case; `name`, `otherwise`: as of `ForwardMethod.text`."""
    if case.gradients is None or case.backward is None:
        raise TypeError("a case without a backward")
    backward = msgspec.structs.replace(
        case, program=case.gradients.program, schedule=case.backward, kernels=case.backward_kernels
    )
    for arg in spec.args:
        if re.fullmatch(GRADIENT.format(r"\d+"), arg.arg):
            raise UnsupportedSourceError(f"forward's argument {arg.arg} has a generated name")
    more = copy.deepcopy(spec)
    count = len(case.program.results)
    more.args += [ast.arg(arg=GRADIENT.format(n)) for n in range(count)]
    more.defaults = []
    plain = copy.deepcopy(spec)
    plain.defaults = []
    return [
        ApplyingMethod(case, *style, number).text(
            name, spec, otherwise, has_arguments=has_arguments
        ),
        ForwardMethod(case, *style).text(
            f"{FORWARD}{number}", plain, "no_backward", has_arguments=False
        ),
        BackwardMethod(backward, *style).text(
            f"{BACKWARD}{number}", more, "no_backward", has_arguments=False
        ),
    ]
