"""The debugger's rules: a step towards the simplest candidate that can still be fast.

Each answer is simpler than the one that failed and was not tried among the siblings shown; when
nothing simpler is left, ModelNew is the task's own forward in plain PyTorch.
"""

from __future__ import annotations

import ast
import copy

import msgspec

from actors.agents.recipes.knobs import Knobs, difference, read_knobs, start
from actors.agents.recipes.objects import Exhausted, Unreadable
from actors.agents.recipes.planning import scene_of, seen_by
from actors.agents.recipes.source import Source
from actors.agents.recipes.template import Renamed, future, kept_module
from protocol.messages import Reflect, Repair, Solve
from protocol.values import Word, source_key

SAFE: dict[str, object] = {
    "maths": "tight", "passes": "recompute", "store": "cached", "memory": "fresh", "bias": "torch",
    "unroll": 1, "schedule": "static",
}  # fmt: skip
TOOLS = ("ninja is required", "No such file or directory: 'c++'", "command not found", "CUDA_HOME")


def repair(work: Repair | Solve | Reflect) -> str:
    """The debugger's reply; raises Exhausted where the plain module was tried, too."""
    verdict = work.node.verdict
    said = f"The verdict was {verdict.verdict}{f' ({verdict.reason})' if verdict.reason else ''}."
    seen = seen_by(work)
    broken = [tool for tool in TOOLS if tool in verdict.log or tool in verdict.reason]
    if not broken:
        base = read_knobs(work.node.source) or start(work.task.backend)
        for knobs, why in ladder(base, work.task.backend, verdict.verdict):
            try:
                made = scene_of(work).made(knobs)
            except Unreadable:
                continue
            if source_key(made.source) not in seen:
                return reply(f"{said} {why}", made.source)
    why = f"The tools are missing ({broken[0]})" if broken else "No simpler kernel is left"
    source = plain(work.task.source)
    if source_key(source) in seen:
        raise Exhausted("node")
    return reply(f"{said} {why}: ModelNew is the reference again.", source)


def ladder(failed: Knobs, backend: str, word: Word) -> list[tuple[Knobs, str]]:
    """Ever simpler knobs, and why each may help."""
    steps: list[tuple[Knobs, str]] = []

    def step(knobs: Knobs, why: str) -> None:
        names = ", ".join(f"{k} = {v}" for k, v in difference(failed, knobs).items())
        steps.append((knobs, f"{why}: {names}." if names else f"{why}."))

    if word is Word.WRONG and failed.maths != "tight":
        step(replaced(failed, {"maths": "tight"}), "Quick maths is the first suspect")
    if word in (Word.CRASHED, Word.WRONG) and failed.memory != "fresh":
        step(replaced(failed, {"memory": "fresh"}), "Memory that is written over is a suspect")
    step(replaced(failed, SAFE), "Back to the simple scheme with the same loops")
    first = start(backend)
    step(first, "Back to the plain fusion that every search starts from")
    step(replaced(first, {"threads": 1}), "Plain fusion on one thread")
    step(replaced(first, {"fusion": "layers"}), "Fewer operations in one kernel")
    step(replaced(first, {"fusion": "single"}), "Reductions on their own")
    step(replaced(first, {"fusion": "single", "vector": 4}), "The smallest kernels, short vectors")
    return steps


def replaced(knobs: Knobs, change: dict[str, object]) -> Knobs:
    return msgspec.convert({**msgspec.to_builtins(knobs), **change}, type=Knobs)


def reply(diagnosis: str, source: str) -> str:
    return f"## Diagnosis\n\n{diagnosis}\n\n## Candidate\n\n```python\n{source.rstrip()}\n```\n"


def plain(text: str) -> str:
    """ModelNew as the task's own Model: always right, never faster."""
    source = Source(text)
    if source.plain:
        model = copy.deepcopy(source.model)
        model.name = "ModelNew"
        Renamed().visit(model)
        made = ast.unparse(model)
    else:
        made = "class ModelNew(Model):\n    pass"
    return "\n".join(
        [
            '"""ModelNew in plain PyTorch, where the rule book `recipes` (no LLM) fell back to."""',
            *future(source),
            "import torch",
            "from torch import nn",
            kept_module(source),
            "",
            "",
            made,
            "",
        ]
    )
