"""Tasks and scripts with fixed outcomes: the result of a run depends on its seed alone.

For the cheap evaluator a candidate's source contains its verdict.  For the real one a candidate
repeats the work more or less often, by factors of three, so that noise does not change the ranks.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from actors.agents.replies.replies import fenced

# One thread: threads that wait for each other on a busy machine would shuffle the ranks.
TASK = '''"""Shift, scale and square roots, 27 times over: work that is needed only once."""

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
REFUSAL = "I would rather not."  # a reply without a candidate
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
            key = {"task": name, "attempt": attempt}
            advice = f"Do the work less often ({name}, {attempt})."
            plan = {"reply": REFUSAL} if rng.random() < 0.1 else {"advice": advice}
            lines.append({"role": "planner", **plan, **key})
            for role in ("coder", "debugger"):
                lines.append({"role": role, **key, **_answer(rng, f"{name} {attempt}", cheap)})
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / "script.jsonl").write_text(text, encoding="utf-8")
    return tuple(folder / f"{name}.py" for name in names)


def _answer(rng: Random, label: str, cheap: bool) -> dict[str, object]:
    if rng.random() < 0.1:
        return {"reply": REFUSAL}
    if not cheap:
        return {"code": _real(rng, label)}
    mended = f"## Candidate\n\n{fenced(_cheap(rng, f'{label} mended'))}\n"
    return {"code": _cheap(rng, label), "again": mended}


def _cheap(rng: Random, label: str) -> str:
    outcome = rng.choice(OUTCOMES_DRAWN)
    verdict = f"{outcome} {rng.uniform(20.0, 150.0):.1f}" if outcome == "correct" else outcome
    return f"# {label}\n# cheap: {verdict}\n" + TASK.replace("class Model(", "class ModelNew(")


def _real(rng: Random, label: str) -> str:
    source = TASK.replace("class Model(", "class ModelNew(")
    source = source.replace("range(27)", f"range({rng.choice(SPEEDUPS_DRAWN)})")
    kind = rng.random()
    if kind < 0.35:  # a wrong candidate is judged in a second, a correct one takes many
        source = source.replace("return y", "return y + 1.0")
    elif kind < 0.5:
        source = f"import a_module_that_is_nowhere\n{source}"
    return f"# {label}\n{source}"
