"""From a task and knobs to a candidate's source: read, fuse, write, assemble."""

from __future__ import annotations

import msgspec

from actors.agents.recipes.candidate import Assembly
from actors.agents.recipes.cuda import TEAMS
from actors.agents.recipes.flow import Kernel
from actors.agents.recipes.fusion import Region, Schedule, fuse
from actors.agents.recipes.graph import Unknown
from actors.agents.recipes.knobs import Knobs
from actors.agents.recipes.layout import Layout, lay_out
from actors.agents.recipes.maths import prelude
from actors.agents.recipes.names import undefined
from actors.agents.recipes.objects import Unreadable
from actors.agents.recipes.program import read
from actors.agents.recipes.reading import Program
from actors.agents.recipes.writing import write

MOST_NAMED = 6  # operations or tensors in one sentence


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what it was made from: the planner chooses knobs by the loops."""

    source: str
    program: Program
    schedule: Schedule
    layouts: tuple[Layout, ...]


def compose(task: str, inputs: str, backend: str, knobs: Knobs, outputs: str = "") -> Made:
    """The candidate for these knobs.  Raises Unreadable with a sentence for a person."""
    program = read(task, inputs, outputs=outputs, fold_bias=knobs.bias == "kernel")
    try:
        schedule = fuse(program.graph, program.results, knobs.fusion)
        kernels: dict[Region, Kernel] = {}
        layouts = []
        for number, region in enumerate(schedule.regions):
            layouts.append(lay_out(program.graph, region))
            kernels[region] = write(program.graph, region, backend, knobs, f"k{number}")
    except Unknown as problem:
        raise Unreadable(f"the forward needs {problem}, which no rule covers") from problem
    if any(not kernel.reads for kernel in kernels.values()):
        raise Unreadable("the forward computes something of constants alone")
    if not kernels:
        raise Unreadable(why_nothing(program))
    body = "\n\n".join(kernel.text for kernel in kernels.values())
    if backend == "cuda":
        before = f"{prelude(body + TEAMS, None)}\n{TEAMS}"
    else:
        before = prelude(body, knobs.vector, quick=knobs.maths == "quick")
    assembly = Assembly(program, schedule, kernels, knobs, backend)
    source = assembly.text(before)
    missing = undefined(source) - undefined(task)
    if missing:
        raise Unreadable(
            f"the candidate would need the name {min(missing)}, which it could not define"
        )
    return Made(
        source=source,
        program=program,
        schedule=schedule,
        layouts=tuple(layouts),
    )


def why_nothing(program: Program) -> str:
    """Why no kernel can be written: the tensors' types, or operations that are PyTorch's."""
    if program.misfits:
        which = "; ".join(program.misfits[:MOST_NAMED])
        return f"{which}: the rule book writes kernels for float32 alone"
    lines = {name: f" (line {line})" for name, line in program.kept_at.items()}
    kept = ", ".join(f"{name}{lines.get(name, '')}" for name in program.kept[:MOST_NAMED])
    if not kept:
        return "the forward only moves data about: there is nothing to compute in a kernel"
    return (
        f"{kept} stay{'s' * (len(program.kept) == 1)} in PyTorch, and beside"
        f" {'it' if len(program.kept) == 1 else 'them'} the forward has nothing for a kernel"
    )
