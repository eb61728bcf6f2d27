"""From a task and knobs to a candidate's source: read, fuse, write kernels, assemble the file."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from actors.agents.recipes.codegen.cpp import CppMaps, CppRows
from actors.agents.recipes.codegen.cpp_columns import CppColumns
from actors.agents.recipes.codegen.cpp_pool import CppPools
from actors.agents.recipes.codegen.cuda import TEAM_FUNCTIONS, CudaMaps, CudaPools
from actors.agents.recipes.codegen.cuda_columns import CudaColumns
from actors.agents.recipes.codegen.cuda_rows import CudaRows
from actors.agents.recipes.codegen.elements import (
    HALVES,
    Element,
    element_of,
    element_text,
    read_as_float32,
)
from actors.agents.recipes.codegen.forward_method import CaseKernels
from actors.agents.recipes.codegen.gradient_program import gradient_nodes
from actors.agents.recipes.codegen.kernel_writer import KernelWriter
from actors.agents.recipes.codegen.math_functions import prelude
from actors.agents.recipes.codegen.passes import Kernel
from actors.agents.recipes.codegen.python_module import ModuleAssembler
from actors.agents.recipes.frontend.program import read_task
from actors.agents.recipes.frontend.statements import ForwardProgram
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.frontend.undefined_names import undefined_names
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.schedule.fusion import Region, Schedule, fuse_graph
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import LoopKind, LoopNest, plan_loops
from actors.agents.recipes.schedule.region_orders import assign_orders

SMALL_CASE = 16384  # numbers that the kernels of a case go through
MAX_NAMED = 6  # operations or tensors in one sentence
WRITERS: dict[str, dict[LoopKind, type[KernelWriter]]] = {
    "cpp": {"map": CppMaps, "rows": CppRows, "columns": CppColumns, "pool": CppPools},
    "cuda": {"map": CudaMaps, "rows": CudaRows, "columns": CudaColumns, "pool": CudaPools},
}


class CaseText(msgspec.Struct, frozen=True, kw_only=True):
    """A task's source in one of its cases, and its tensors, as far as they are known."""

    source: str
    inputs: str = ""
    outputs: str = ""


class CompiledCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what it was made from: the planner weighs knobs by the loop nests.

    Of a task with cases they are those of the heaviest one.
    """

    source: str
    program: ForwardProgram
    schedule: Schedule
    loop_nests: tuple[LoopNest, ...]


def compile_candidate(
    task: str,
    inputs: str,
    backend: str,
    knobs: Knobs,
    outputs: str = "",
    more_cases: Sequence[CaseText] = (),
    gradients: tuple[int, ...] | None = None,
) -> CompiledCandidate:
    """The candidate for these knobs.

    `inputs` and `outputs` describe the reference's tensors, as in "float32[64, 8], int64[64]".
    `more_cases`: the others of the task's cases, which get kernels of their own.
    `gradients`: the numbers of the inputs that get one, of a task with a backward pass.
    Raises `UnsupportedSourceError` with a sentence for the user.
    """
    element = element_of(inputs)
    case = CaseText(source=task, inputs=inputs, outputs=outputs)
    cases = [_case_kernels(case, element, backend, knobs, 0, gradients)]
    for more in more_cases:
        with contextlib.suppress(UnsupportedSourceError):  # such a case runs the task's forward
            if element_of(more.inputs) == element:
                first = sum(len(each.kernels) + len(each.backward_kernels) for each in cases)
                made = _case_kernels(more, element, backend, knobs, first, gradients)
                cases += [] if _is_small(made) else [made]
    before = _shared_functions(cases, element, backend, knobs)
    source = ModuleAssembler(cases, knobs, backend, element).module_text(before)
    missing = undefined_names(source) - undefined_names(task)
    if missing:
        raise UnsupportedSourceError(
            f"the candidate would need the name {min(missing)}, which it could not define"
        )
    return CompiledCandidate(
        source=source,
        program=cases[0].program,
        schedule=cases[0].schedule,
        loop_nests=tuple(
            plan_loops(cases[0].program.graph, region) for region in cases[0].schedule.regions
        ),
    )


def _shared_functions(
    cases: Sequence[CaseKernels], element: Element, backend: str, knobs: Knobs
) -> str:
    """Return the text before the kernels: the functions that they call."""
    kernels = "\n\n".join(
        kernel.text
        for each in cases
        for kernel in (*each.kernels.values(), *each.backward_kernels.values())
    )
    if backend == "cuda":
        before = f"{prelude(kernels + TEAM_FUNCTIONS, None)}\n{TEAM_FUNCTIONS}"
    else:
        before = prelude(kernels, knobs.vector, quick=knobs.maths == "quick")
    return "\n".join(part for part in (before, element_text(element, backend)) if part)


def _case_kernels(
    case: CaseText,
    element: Element,
    backend: str,
    knobs: Knobs,
    first: int,
    gradients: tuple[int, ...] | None = None,
) -> CaseKernels:
    """Read and fuse one case and write its kernels, which are numbered from `first`."""
    program = read_task(
        case.source,
        read_as_float32(case.inputs, element, "some inputs"),
        outputs=read_as_float32(case.outputs, element, "outputs"),
        fold_bias=knobs.bias == "kernel",
        half=element if element in HALVES else "",
    )
    if gradients is not None:
        program.graph.orders.clear()  # gradients are contiguous
    write = _KernelMaker(program, backend, knobs, element, gradients is None)
    schedule, kernels = write.all(program.results, first)
    if any(not kernel.reads for kernel in kernels.values()):
        raise UnsupportedSourceError("the forward computes something of constants alone")
    if not kernels:
        raise UnsupportedSourceError(reason_for_no_kernel(program))
    made = CaseKernels(program=program, schedule=schedule, kernels=kernels)
    if gradients is None:
        return made
    nodes = gradient_nodes(program, gradients)
    backward, more = write.all(nodes.program.results, first + len(kernels))
    if any(not kernel.reads for kernel in more.values()):
        raise UnsupportedSourceError("the backward computes something of constants alone")
    return msgspec.structs.replace(made, gradients=nodes, backward=backward, backward_kernels=more)


class _KernelMaker(msgspec.Struct, frozen=True):
    """Makes the kernels of one program."""

    program: ForwardProgram
    backend: str
    knobs: Knobs
    element: Element
    keeps_orders: bool  # tensors keep their order in memory

    def all(self, results: tuple[int, ...], first: int) -> tuple[Schedule, dict[Region, Kernel]]:
        """Return the steps to these nodes, and their kernels, numbered from `first`."""
        graph = self.program.graph
        try:
            schedule = fuse_graph(graph, results, self.knobs.fusion)
            if self.keeps_orders:
                assign_orders(graph, schedule, results)
            return schedule, {
                region: write_kernel(
                    graph, region, self.backend, self.knobs, f"k{number}", self.element
                )
                for number, region in enumerate(schedule.regions, first)
            }
        except UnsupportedOperationError as problem:
            raise UnsupportedSourceError(
                f"the forward needs {problem}, which no rule covers"
            ) from problem


def _is_small(case: CaseKernels) -> bool:
    """Whether a launch costs about what its kernel saves, beside operations that stay in PyTorch.

    Such a case is often one of a decoder's single tokens.
    """
    graph = case.program.graph
    numbers = sum(plan_loops(graph, region).volume for region in case.schedule.regions)
    return bool(case.program.left_to_torch) and numbers < SMALL_CASE


def write_kernel(
    graph: OperationGraph,
    region: Region,
    backend: str,
    knobs: Knobs,
    name: str,
    element: Element,
) -> Kernel:
    """The kernel of a region, in C++ or CUDA."""
    writer = WRITERS[backend][plan_loops(graph, region).kind](graph, region, knobs, name)
    writer.memory_type = "E" if element in HALVES else "float"
    return writer.write()


def reason_for_no_kernel(program: ForwardProgram) -> str:
    """Why no kernel can be written: the tensors' types, or operations that only PyTorch has."""
    if program.unsupported_tensors:
        which = "; ".join(program.unsupported_tensors[:MAX_NAMED])
        return f"{which}: the rule book writes kernels for float32 alone"
    lines = {name: f" (line {line})" for name, line in program.torch_lines.items()}
    names = ", ".join(f"{name}{lines.get(name, '')}" for name in program.left_to_torch[:MAX_NAMED])
    if not names:
        return "the forward only moves data about: there is nothing to compute in a kernel"
    is_one = len(program.left_to_torch) == 1
    return (
        f"{names} stay{'s' * is_one} in PyTorch, and beside {'it' if is_one else 'them'}"
        " the forward has nothing for a kernel"
    )
