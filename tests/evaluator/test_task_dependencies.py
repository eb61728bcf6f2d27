"""A task that imports files next to it, and a task whose own code does not return."""

from __future__ import annotations

from pathlib import Path

import msgspec
from evaluator_samples import TASK, ContextRecorder, candidate

from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.timing.baseline_cache import BaselineCache
from protocol.values import Device, Outcome, Task, Verdict

MODULES = {
    "lib.py": "from pkg.core import SCALE\n",
    "pkg/__init__.py": "",
    "pkg/core.py": "from . import other\nSCALE = other.ONE + 1.0\n",
    "pkg/other.py": "ONE = 1.0\n",
}
SOURCE = f"import lib\n{TASK}".replace("[2.0]", "[lib.SCALE]")
ENDLESS = "__import__('time').sleep(1000)"
STEPS = (
    (("import torch\n", f"{ENDLESS}\n"), "import", "2.5 s"),
    (("return [2.0]", ENDLESS), "Model(...)", "2.5 s"),
    (("return [torch", f"{ENDLESS} #"), "Model(...) and get_inputs()", "2.5 s"),
    (("return torch", f"{ENDLESS} #"), "get_inputs() and forward", "2.5 s"),
)


def test_a_task_and_its_candidates_import_files_next_to_the_task(judge: Judge) -> None:
    """Both sides find it by the names that the task uses, wherever the task is judged."""
    task = Task(name="small", source=SOURCE, modules=MODULES)
    assert not isinstance(judge.measure(task), TaskProblem)
    verdict = judge.judge(task, candidate(before="from pkg.core import SCALE"))
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.CORRECT, verdict
    changed = {**MODULES, "pkg/other.py": "raise KeyError('x')\n"}
    problem = judge.measure(msgspec.structs.replace(task, modules=changed))
    assert isinstance(problem, TaskProblem)
    assert problem.reason == "the task raised KeyError: 'x' (pkg/other.py, line 1)"


def test_what_is_missing_beside_a_task_is_one_line_that_says_why(judge: Judge) -> None:
    """A module that no statement names, a file of data: neither is where the task is judged."""
    for line, said in (
        ("import nowhere", "no import statement finds it beside the task's file"),
        ("open('weights.pt')", "away from its folder"),
    ):
        problem = judge.measure(Task(name="bad", source=f"{line}\n{TASK}"))
        assert isinstance(problem, TaskProblem)
        assert said in problem.reason


def test_a_task_that_does_not_return_is_reported_while_it_is_waited_for(judge: Judge) -> None:
    """Each step of the task's own code has a limit, which is reported before and after."""
    for change, step, limit in STEPS:
        context = ContextRecorder()
        source = TASK.replace(*change, 1)
        problem = judge.measure(Task(name="endless", source=source), context)
        assert isinstance(problem, TaskProblem)
        assert problem.reason.startswith(f"the task's {step}"), problem
        assert f"took more than {limit}" in problem.reason
        assert context.reports[-1].startswith(f"waiting for the task's {step}")
        assert context.reports[-1].endswith(f"(limit {limit})")


def test_baselines_of_a_task_with_other_modules_are_not_reused(tmp_path: Path) -> None:
    """The files next to a task are part of what was measured."""
    store = BaselineCache(tmp_path)
    task = Task(name="small", source=SOURCE, modules=MODULES)
    other = msgspec.structs.replace(task, modules={**MODULES, "lib.py": ""})
    device = Device(fingerprint="cpu/1")
    assert store._path(task, device) != store._path(other, device)
