"""From a task and knobs to a candidate's source: read, fuse, write, assemble."""

from __future__ import annotations

import msgspec

from actors.agents.recipes.codegen.cuda import TEAM_FUNCTIONS
from actors.agents.recipes.codegen.kernel_writer import write_kernel
from actors.agents.recipes.codegen.math_functions import prelude
from actors.agents.recipes.codegen.passes import Kernel
from actors.agents.recipes.codegen.python_module import ModuleAssembler
from actors.agents.recipes.frontend.program import read_task
from actors.agents.recipes.frontend.statements import ForwardProgram
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.frontend.undefined_names import undefined_names
from actors.agents.recipes.ir.graph import UnsupportedOperationError
from actors.agents.recipes.schedule.fusion import Region, Schedule, fuse_graph
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import LoopNest, plan_loops

MAX_NAMED = 6  # operations or tensors in one sentence


class CompiledCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what it was made from: the planner chooses knobs by the loops."""

    source: str
    program: ForwardProgram
    schedule: Schedule
    layouts: tuple[LoopNest, ...]


def compile_candidate(
    task: str, inputs: str, backend: str, knobs: Knobs, outputs: str = ""
) -> CompiledCandidate:
    """The candidate for these knobs.  Raises Unreadable with a sentence for a person."""
    program = read_task(task, inputs, outputs=outputs, fold_bias=knobs.bias == "kernel")
    try:
        schedule = fuse_graph(program.graph, program.results, knobs.fusion)
        kernels: dict[Region, Kernel] = {}
        layouts = []
        for number, region in enumerate(schedule.regions):
            layouts.append(plan_loops(program.graph, region))
            kernels[region] = write_kernel(program.graph, region, backend, knobs, f"k{number}")
    except UnsupportedOperationError as problem:
        raise UnsupportedSourceError(
            f"the forward needs {problem}, which no rule covers"
        ) from problem
    if any(not kernel.reads for kernel in kernels.values()):
        raise UnsupportedSourceError("the forward computes something of constants alone")
    if not kernels:
        raise UnsupportedSourceError(reason_for_no_kernel(program))
    body = "\n\n".join(kernel.text for kernel in kernels.values())
    if backend == "cuda":
        before = f"{prelude(body + TEAM_FUNCTIONS, None)}\n{TEAM_FUNCTIONS}"
    else:
        before = prelude(body, knobs.vector, quick=knobs.maths == "quick")
    assembly = ModuleAssembler(program, schedule, kernels, knobs, backend)
    source = assembly.module_text(before)
    missing = undefined_names(source) - undefined_names(task)
    if missing:
        raise UnsupportedSourceError(
            f"the candidate would need the name {min(missing)}, which it could not define"
        )
    return CompiledCandidate(
        source=source,
        program=program,
        schedule=schedule,
        layouts=tuple(layouts),
    )


def reason_for_no_kernel(program: ForwardProgram) -> str:
    """Why no kernel can be written: the tensors' types, or operations that are PyTorch's."""
    if program.misfits:
        which = "; ".join(program.misfits[:MAX_NAMED])
        return f"{which}: the rule book writes kernels for float32 alone"
    lines = {name: f" (line {line})" for name, line in program.kept_at.items()}
    kept = ", ".join(f"{name}{lines.get(name, '')}" for name in program.kept[:MAX_NAMED])
    if not kept:
        return "the forward only moves data about: there is nothing to compute in a kernel"
    return (
        f"{kept} stay{'s' * (len(program.kept) == 1)} in PyTorch, and beside"
        f" {'it' if len(program.kept) == 1 else 'them'} the forward has nothing for a kernel"
    )
