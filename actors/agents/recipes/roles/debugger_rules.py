"""The debugger's rules: a step towards the simplest candidate that can still be fast.

Each answer is simpler than the candidate that failed, and different from all that was tried.  If
no simpler kernel is left, ModelNew is the task's own forward in plain PyTorch.
"""

from __future__ import annotations

import ast
import copy

import msgspec

from actors.agents.recipes.codegen.templates import ModelRenamer, future_imports, task_remainder
from actors.agents.recipes.frontend.symbolic_values import ExhaustedError, UnsupportedSourceError
from actors.agents.recipes.frontend.task_source import TaskSource
from actors.agents.recipes.roles.planner_rules import compile_inputs_of, keys_tried
from actors.agents.recipes.schedule.knobs import Knobs, default_knobs, knob_difference, read_knobs
from protocol.messages import Reflect, Repair, Solve
from protocol.values import Outcome, source_key

SAFEST_KNOBS: dict[str, object] = {
    "maths": "tight", "passes": "recompute", "store": "cached", "memory": "fresh", "bias": "torch",
    "unroll": 1, "schedule": "static",
}  # fmt: skip
BROKEN_TOOL_MESSAGES = (
    "ninja is required",
    "No such file or directory: 'c++'",
    "command not found",
    "CUDA_HOME",
)


def debugger_reply(work: Repair | Solve | Reflect) -> str:
    """The debugger's reply; raises `ExhaustedError` where the plain module was tried, too."""
    verdict = work.node.verdict
    failure = (
        f"The verdict was {verdict.verdict}{f' ({verdict.reason})' if verdict.reason else ''}."
    )
    seen = keys_tried(work)
    broken = [
        tool for tool in BROKEN_TOOL_MESSAGES if tool in verdict.log or tool in verdict.reason
    ]
    if not broken:
        base = read_knobs(work.node.source) or default_knobs(work.task.backend)
        for knobs, why in simplification_steps(base, work.task.backend, verdict.verdict):
            try:
                made = compile_inputs_of(work).compile(knobs)
            except UnsupportedSourceError:
                continue
            if source_key(made.source) not in seen:
                return format_reply(f"{failure} {why}", made.source)
    why = f"The tools are missing ({broken[0]})" if broken else "No simpler kernel is left"
    source = plain_torch_module(work.task.source)
    if source_key(source) in seen:
        raise ExhaustedError("node")
    return format_reply(f"{failure} {why}: ModelNew is the reference again.", source)


def simplification_steps(failed: Knobs, backend: str, outcome: Outcome) -> list[tuple[Knobs, str]]:
    """Knobs that get simpler step by step, and why each step may help."""
    steps: list[tuple[Knobs, str]] = []

    def step(knobs: Knobs, why: str) -> None:
        names = ", ".join(f"{k} = {v}" for k, v in knob_difference(failed, knobs).items())
        steps.append((knobs, f"{why}: {names}." if names else f"{why}."))

    if outcome is Outcome.WRONG and failed.maths != "tight":
        step(with_replacements(failed, {"maths": "tight"}), "Quick maths is the first suspect")
    if outcome in (Outcome.CRASHED, Outcome.WRONG) and failed.memory != "fresh":
        step(
            with_replacements(failed, {"memory": "fresh"}),
            "Memory that is written over is a suspect",
        )
    step(with_replacements(failed, SAFEST_KNOBS), "Back to the simple scheme with the same loops")
    first = default_knobs(backend)
    step(first, "Back to the plain fusion that every search starts from")
    step(with_replacements(first, {"threads": 1}), "Plain fusion on one thread")
    step(with_replacements(first, {"fusion": "layers"}), "Fewer operations in one kernel")
    step(with_replacements(first, {"fusion": "single"}), "Reductions on their own")
    step(
        with_replacements(first, {"fusion": "single", "vector": 4}),
        "The smallest kernels, short vectors",
    )
    return steps


def with_replacements(knobs: Knobs, change: dict[str, object]) -> Knobs:
    return msgspec.convert({**msgspec.to_builtins(knobs), **change}, type=Knobs)


def format_reply(diagnosis: str, source: str) -> str:
    return f"## Diagnosis\n\n{diagnosis}\n\n## Candidate\n\n```python\n{source.rstrip()}\n```\n"


def plain_torch_module(text: str) -> str:
    """A ModelNew that is the task's own Model: always correct, never faster."""
    source = TaskSource(text)
    if source.is_one_plain_class:
        model = copy.deepcopy(source.model)
        model.name = "ModelNew"
        ModelRenamer().visit(model)
        made = ast.unparse(model)
    else:
        made = "class ModelNew(Model):\n    pass"
    return "\n".join(
        [
            '"""ModelNew in plain PyTorch, where the rule book `recipes` (no LLM) fell back to."""',
            *future_imports(source),
            "import torch",
            "from torch import nn",
            task_remainder(source),
            "",
            "",
            made,
            "",
        ]
    )
