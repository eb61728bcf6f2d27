"""Winners for tests: a candidate's source in a real winner's file, without a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from actors.adopt.model.call_layouts import layout_of, tensor_layouts
from actors.adopt.take.taken_tasks import TakenTask
from actors.adopt.tasks.task_proof import load_task
from actors.release.composition import drop_in_source
from protocol.layouts import Nest
from protocol.release import Judged, Limit, Release

ONCE = "torch.tanh(x * self.weight) + {shift}"
MANY = "sum(torch.tanh(x * self.weight) for _ in range({repeats})) / {repeats} + {shift}"


def candidate(expression: str) -> str:
    """Return a candidate whose forward returns `expression`."""
    return (
        "import torch\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(64))\n"
        "    def forward(self, x):\n"
        f"        return {expression}\n"
    )


def bare_winner(source: str, body: str, task: TakenTask) -> str:
    """Return a winner without a guard, judged for all layouts of a task.

    `body`: the statements of a forward whose arguments are `x` and `rest`.
    """
    cases = []
    for case in task.cases:
        leaves = [leaf for _, leaf in tensor_layouts(case.kind.layout)]
        inputs = [
            ("tensor", leaves[n].dtype, leaves[n].shape, leaves[n].stride) for n in task.inputs
        ]
        cases.append({"inputs": tuple(inputs)})
    return (
        f"{source}\n\nclass ModelNew(Model):\n"
        f"    def forward(self, x, *rest):\n        {body}\n\n\n"
        f"_JUDGED = {{'cases': {tuple(cases)!r}}}\n"
    )


def winner_file(
    task: str,
    source: str,
    gradients: tuple[int, ...] | None = None,
    shapes: Sequence[tuple[int, ...]] = (),
    limits: Sequence[Limit] = (),
) -> str:
    """Return the file of a winner of `task` as a run would write it.

    `gradients`: judged with backward.  `shapes`: of the first input in further judged cases.
    `limits`: all of them, where the run was stopped before it tried the winner's uses.
    """
    names = load_task(task, "planted")
    model, inputs = names["Model"](), names["get_inputs"]()
    first = _judged(model, inputs, gradients)
    more = [_judged(model, [torch.randn(shape), *inputs[1:]], gradients) for shape in shapes]
    release = Release(judged=first, more_judged=tuple(more), limits=tuple(limits))
    return drop_in_source(task, source, release)


def _judged(
    model: Any, inputs: Sequence[torch.Tensor], gradients: tuple[int, ...] | None
) -> Judged:
    with torch.no_grad():
        outputs = model(*inputs)
    state = model.state_dict()
    return Judged(
        device="cpu",
        init=Nest(kind="list", items=()),
        inputs=Nest(kind="list", items=tuple(layout_of(value) for value in inputs)),
        outputs=layout_of(outputs),
        state=Nest(
            kind="dict", keys=tuple(state), items=tuple(layout_of(t) for t in state.values())
        ),
        gradients=gradients,
    )
