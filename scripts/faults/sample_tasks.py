"""Tasks and scripts whose outcomes are fixed: what a run comes to depends on its seed alone.

For the cheap evaluator a candidate's source says its verdict.  For the real one the work is done
more or less often, by factors of three, so that no noise changes the ranks.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

# One thread: threads that wait for each other on a busy machine would shuffle the ranks.
TASK = '''"""Shift, scale and square roots, 27 times over: work that need be done but once."""

import torch
from torch import nn

torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        for _ in range(27):
            y = torch.sqrt(x * self.scale + 1.0)
        return y


def get_inputs():
    return [torch.rand(32, 1024)]


def get_init_inputs():
    return [1024]
'''
REFUSAL = "I would rather not."  # comes to no candidate
SPEEDUPS_DRAWN = (1, 3, 9, 80, 240)
OUTCOMES_DRAWN = ("correct", "correct", "correct", "wrong", "compile_failed", "crashed")


def write(folder: Path, *, tasks: int, budget: int, seed: int, cheap: bool) -> tuple[Path, ...]:
    """Write task files and `script.jsonl` into `folder`; return the tasks' paths."""
    names = [f"task_{letter}" for letter in "abcdefgh"[:tasks]]
    lines: list[dict[str, object]] = []
    for name in names:
        (folder / f"{name}.py").write_text(TASK, encoding="utf-8")
        for attempt in range(1, budget + 1):
            rng = Random(f"{seed}/{name}/{attempt}")
            who = {"task": name, "attempt": attempt}
            advice = f"Do the work less often ({name}, {attempt})."
            plan = {"reply": REFUSAL} if rng.random() < 0.1 else {"advice": advice}
            lines.append({"role": "planner", **plan, **who})
            for role in ("coder", "debugger"):
                lines.append({"role": role, **who, **_answer(rng, f"{name} {attempt}", cheap)})
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / "script.jsonl").write_text(text, encoding="utf-8")
    return tuple(folder / f"{name}.py" for name in names)


def _answer(rng: Random, label: str, cheap: bool) -> dict[str, object]:
    if rng.random() < 0.1:
        return {"reply": REFUSAL}
    return {"code": _cheap(rng, label) if cheap else _real(rng, label)}


def _cheap(rng: Random, label: str) -> str:
    word = rng.choice(OUTCOMES_DRAWN)
    says = f"{word} {rng.uniform(20.0, 150.0):.1f}" if word == "correct" else word
    return f"# {label}\n# cheap: {says}\n" + TASK.replace("class Model(", "class ModelNew(")


def _real(rng: Random, label: str) -> str:
    source = TASK.replace("class Model(", "class ModelNew(")
    source = source.replace("range(27)", f"range({rng.choice(SPEEDUPS_DRAWN)})")
    kind = rng.random()
    if kind < 0.35:  # wrong is judged in a second, right takes many
        source = source.replace("return y", "return y + 1.0")
    elif kind < 0.5:
        source = f"import a_module_that_is_nowhere\n{source}"
    return f"# {label}\n{source}"
