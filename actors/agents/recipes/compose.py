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
from actors.agents.recipes.objects import Unreadable
from actors.agents.recipes.program import read
from actors.agents.recipes.reading import Program
from actors.agents.recipes.writing import write


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what it was made from: the planner chooses knobs by the loops."""

    source: str
    program: Program
    schedule: Schedule
    layouts: tuple[Layout, ...]


def compose(task: str, inputs: str, backend: str, knobs: Knobs) -> Made:
    """The candidate for these knobs.  Raises Unreadable with a sentence for a person."""
    program = read(task, inputs, fold_bias=knobs.bias == "kernel")
    try:
        schedule = fuse(program.graph, program.results, knobs.fusion)
        kernels: dict[Region, Kernel] = {}
        layouts = []
        for number, region in enumerate(schedule.regions):
            layouts.append(lay_out(program.graph, region))
            kernels[region] = write(program.graph, region, backend, knobs, f"k{number}")
    except Unknown as problem:
        raise Unreadable(f"the forward needs {problem}, which no rule of mine covers") from problem
    if not kernels:
        kept = ", ".join(program.kept) or "moving data about"
        raise Unreadable(
            f"the forward does nothing that I have a rule for: all of it ({kept}) stays in PyTorch"
        )
    body = "\n\n".join(kernel.text for kernel in kernels.values())
    if backend == "cuda":
        before = f"{prelude(body + TEAMS, None)}\n{TEAMS}"
    else:
        before = prelude(body, knobs.vector, quick=knobs.maths == "quick")
    assembly = Assembly(program, schedule, kernels, knobs, backend)
    return Made(
        source=assembly.text(before),
        program=program,
        schedule=schedule,
        layouts=tuple(layouts),
    )
