"""The candidate's whole Python file: kernels, how they are built, and ModelNew.

ModelNew keeps the task's constructor, so that parameters have the same names, and the forward under
the name `plain_forward`.  The new forward calls the kernels if inputs and parameters are
those that the kernels were written for.  Else the method of the task's next case does the same, and
`plain_forward` is for what no case has.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.agents.recipes.codegen.backward_method import (
    FUNCTION_TEXT,
    NO_BACKWARD,
    differentiable_methods,
)
from actors.agents.recipes.codegen.elements import Element
from actors.agents.recipes.codegen.forward_method import CaseKernels, ForwardMethod
from actors.agents.recipes.codegen.templates import (
    ALIGNED_FUNCTION,
    CASE_FORWARD,
    CPP_BUILD,
    CUDA_BUILD,
    FITS_FUNCTION,
    STREAM_FUNCTION,
    future_imports,
    new_model_class,
    refuse_clashes,
    task_remainder,
)
from actors.agents.recipes.schedule.knobs import Knobs, knobs_header


class ModuleAssembler:
    """Builds the file of one candidate."""

    def __init__(
        self,
        cases: Sequence[CaseKernels],
        knobs: Knobs,
        backend: str,
        element: Element = "float32",
    ) -> None:
        """`cases`: what each case of the task runs, the heaviest first; one at least."""
        self.cases, self.program = cases, cases[0].program
        self.knobs, self.backend, self.element = knobs, backend, element
        self.kernels = [
            kernel
            for case in cases
            for kernel in (*case.kernels.values(), *case.backward_kernels.values())
        ]
        self.is_differentiated = cases[0].gradients is not None
        self.device = "cuda" if backend == "cuda" else "cpu"

    def module_text(self, prelude: str) -> str:
        """The whole file."""
        source = "\n\n".join(kernel.text for kernel in self.kernels)
        parts = [
            knobs_header(self.knobs),
            '"""ModelNew, written by the rule book `recipes` (rules, not a language model).',
            "",
            self.summary() + '"""',
            *future_imports(self.program.source),
            "import ctypes",
            "import hashlib",
            "import math",
            "import platform",
            "",
            "import torch",
            "from torch import nn",
            "from torch.utils.cpp_extension import load_inline",
            task_remainder(self.program.source),
            "",
            'SOURCE = r"""',
            prelude,
            "",
            source,
            '"""',
            "",
            (CUDA_BUILD if self.backend == "cuda" else CPP_BUILD).rstrip(),
            *self.signatures(),
            FITS_FUNCTION.format(device=self.device, dtype=self.element).rstrip(),
        ]
        if self.backend == "cuda":
            parts += [ALIGNED_FUNCTION.rstrip(), STREAM_FUNCTION.rstrip()]
        if self.is_differentiated:
            parts.append(FUNCTION_TEXT.rstrip())
        parts += ["", "", self.model(), ""]
        return "\n".join(parts)

    def summary(self) -> str:
        count = len(self.cases[0].kernels)
        text = f"{count} kernel{'s' if count != 1 else ''} in place of PyTorch's operations"
        if self.program.left_to_torch:
            text += f"; left to PyTorch: {', '.join(self.program.left_to_torch)}"
        if len(self.cases) > 1:
            text += f".\nThe same for {len(self.cases) - 1} more of the task's cases"
        if self.is_differentiated:
            count = len(self.cases[0].backward_kernels)
            return text + f".\nIts backward: {count} kernel{'s' if count != 1 else ''}.\n"
        return text + ".\nForward only: no gradients flow through the kernels.\n"

    def signatures(self) -> list[str]:
        lines = []
        for kernel in self.kernels:
            count = len(kernel.reads) + len(kernel.writes)
            if self.backend == "cuda":
                count += 1 + bool(kernel.scratch)
            lines.append(f"library.{kernel.name}.argtypes = [ctypes.c_void_p] * {count}")
            kind = "ctypes.c_int" if self.backend == "cuda" else "None"
            lines.append(f"library.{kernel.name}.restype = {kind}")
        return lines

    def model(self) -> str:
        """ModelNew: the task's constructor and forward, and a method for each case."""
        forward, made = new_model_class(self.program)
        refuse_clashes(self.program, forward)
        if forward.args.posonlyargs or forward.args.args:
            (forward.args.posonlyargs or forward.args.args)[0].arg = "self"
        names = ["forward", *(f"{CASE_FORWARD}{n}" for n in range(1, len(self.cases)))]
        methods = [
            ForwardMethod(case, self.knobs, self.backend, self.element).text(
                name, forward.args, otherwise, has_arguments=made.checks_arguments
            )
            for case, name, otherwise in zip(
                self.cases, names, [*names[1:], "plain_forward"], strict=True
            )
        ]
        if self.is_differentiated:
            style = (self.knobs, self.backend, self.element)
            methods = [
                method
                for number, (case, name, otherwise) in enumerate(
                    zip(self.cases, names, [*names[1:], "plain_forward"], strict=True)
                )
                for method in differentiable_methods(
                    case, number, name, forward.args, otherwise, style,
                    has_arguments=made.checks_arguments,
                )
            ]  # fmt: skip
            methods.append(NO_BACKWARD)
        return "\n\n".join([made.text, *methods])
