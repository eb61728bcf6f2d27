"""Each outcome is given to a real candidate that deserves it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from evaluator_samples import candidate

from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.sandbox.child_failures import VERDICT_KEYS, verdict_json
from protocol.fact_lines import verdict_fact_lines
from protocol.values import Outcome, Task, Verdict

Judged = Callable[[str], Verdict]

PLAIN_CPP = '''
import ctypes
import pathlib
from torch.utils.cpp_extension import load
import torch
import torch.nn as nn

source = pathlib.Path("kernel.cpp")
source.write_text("""
extern "C" void fused(const float* x, const float* y, const float* b, float* o, long n, float s) {
    for (long i = 0; i < n; i++) {
        float v = x[i] * s + y[i];
        o[i] = (v > 0 ? v : 0) + b[i % 64]%SEMICOLON%
    }
}
""")
path = load(name="fused", sources=[str(source)], is_python_module=False)
fused = ctypes.CDLL(path).fused

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, x, y):
        out = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, y, self.bias, out)]
        fused(*pointers, ctypes.c_long(x.numel()), ctypes.c_float(self.scale))
        return out
'''


def test_an_equal_module_is_correct_and_timed(judged: Judged) -> None:
    """A candidate that computes what the reference computes is correct, with all its figures."""
    verdict = judged(candidate())
    # Limits are short here: a busy machine may leave too few groups for an interval.
    for _try in range(2):
        if verdict.speedup_ci95 is None:
            verdict = judged(candidate())
    assert verdict.verdict is Outcome.CORRECT
    assert verdict.stage == ""
    assert verdict.median_us is not None
    assert verdict.median_us > 0
    assert verdict.speedup_ci95 is not None
    assert verdict.speedup is not None
    assert verdict.speedup_ci95[0] <= verdict.speedup <= verdict.speedup_ci95[1]
    assert verdict.max_error is not None
    assert verdict.max_error < 1
    assert verdict.sandbox_level in (1, 2, 3)
    assert verdict.facts is not None
    assert verdict.facts.median_us == verdict.median_us
    assert verdict.facts.kernels
    assert {"as given", "shifted"} <= {error.inputs for error in verdict.facts.errors}
    assert max(error.share for error in verdict.facts.errors) == verdict.max_error


def test_compiled_code_is_built_and_run(judged: Judged) -> None:
    """A candidate that compiles C++ on import is built, and its library runs."""
    verdict = judged(PLAIN_CPP.replace("%SEMICOLON%", ";"))
    assert verdict.verdict is Outcome.CORRECT, verdict
    assert verdict.seconds.build > 0


def test_a_compiler_error_is_shown_with_its_line(judged: Judged) -> None:
    """A compiler's refusal is compile_failed, with the error and without our paths."""
    verdict = judged(PLAIN_CPP.replace("%SEMICOLON%", ""))
    assert (verdict.verdict, verdict.stage) == (Outcome.COMPILE_FAILED, "build")
    assert "kernel.cpp:5" in verdict.reason
    assert "expected" in verdict.log
    assert "/candidate-" not in verdict.log + verdict.reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("this file has no code", "SyntaxError"),
        ("import a_module_that_is_not_there", "a_module_that_is_not_there"),
        ("x = undefined_name", "undefined_name"),
        ("x = 1", "no class ModelNew"),
        ("import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_a_failed_import_is_compile_failed(judged: Judged, source: str, reason: str) -> None:
    """A file that can't be imported is compile_failed at the import stage, with the reason."""
    verdict = judged(source)
    assert (verdict.verdict, verdict.stage) == (Outcome.COMPILE_FAILED, "import")
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return torch.relu(x * self.scale + y)", "expected"),
        ("return (torch.relu(x * self.scale + y) + self.bias).double()", "dtype float64"),
        ("return torch.relu(x * self.scale + y)[:16]", "shape [16, 64]"),
        ("return (torch.relu(x * self.scale + y) + self.bias,)", "a tuple of 1"),
        ("return None", "is None"),
        ("x.add_(1); return torch.relu((x - 1) * self.scale + y) + self.bias", "input 0"),
        ("return torch.full_like(x, float('nan'))", "got nan"),
    ],
)
def test_a_wrong_result_is_wrong_and_says_where(judged: Judged, forward: str, reason: str) -> None:
    """Wrong values, types, shapes, nesting and side effects are `wrong`, with the difference."""
    verdict = judged(candidate(forward=forward))
    assert (verdict.verdict, verdict.stage) == (Outcome.WRONG, "check")
    assert reason in verdict.reason
    lines = verdict_fact_lines(verdict.facts, None)
    assert bool(lines) == (reason in ("expected", "got nan"))  # what can be compared is described
    assert not lines or lines[0].startswith("Wrong in round 1 of the check, on the task's own draw")


def test_results_that_were_kept_from_an_earlier_call_are_wrong(judged: Judged) -> None:
    """A cache that is keyed by address fails: contents change in the same storage."""
    cache = "key = (x.data_ptr(), y.data_ptr())\nif key in self.kept: return self.kept[key]"
    remember = "self.kept[key] = torch.relu(x * self.scale + y) + self.bias"
    source = candidate(init="self.kept = {}", forward=f"{cache}\n{remember}\nreturn self.kept[key]")
    assert judged(source).verdict is Outcome.WRONG


@pytest.mark.parametrize("buffers", [1, 4])
def test_an_output_buffer_that_is_used_again_is_wrong(judged: Judged, buffers: int) -> None:
    """Later calls must not change what the first one returned: not the next, nor the fifth."""
    forward = (
        "out = self.ring.pop(0); self.ring.append(out)\n"
        "torch.add(torch.relu(x * self.scale + y), self.bias, out=out); return out"
    )
    init = f"self.ring = [torch.empty(32, 64) for _ in range({buffers})]"
    verdict = judged(candidate(init=init, forward=forward))
    assert verdict.verdict is Outcome.WRONG
    assert "later call" in verdict.reason


def test_a_parameter_under_another_name_still_gets_the_same_values(judged: Judged) -> None:
    """Both are constructed with one seed, so a renamed parameter is not a fault."""
    assert judged(candidate().replace("self.bias", "self.offset")).is_correct


def test_a_missing_parameter_is_named(judged: Judged) -> None:
    """When results are wrong and a parameter could not be copied, the reason says which."""
    source = candidate().replace("self.bias", "self.offset").replace("randn(64)", "ones(1)")
    verdict = judged(source)
    assert verdict.verdict is Outcome.WRONG
    assert "bias" in verdict.reason


def test_an_exception_is_a_crash_with_its_text(judged: Judged) -> None:
    """An exception of forward or of the constructor is `crashed`, with its line and the last ones.

    The line needs no tool, so it is told of every candidate.
    """
    verdict = judged(candidate(forward="raise ValueError('not today')"))
    assert verdict.facts is not None
    assert "ValueError in forward at candidate.py:" in verdict.facts.fault_location
    assert "`raise ValueError('not today')`" in verdict.facts.fault_location
    assert (verdict.verdict, verdict.stage) == (Outcome.CRASHED, "check")
    assert "not today" in verdict.reason
    assert "candidate.py" in verdict.log
    verdict = judged(candidate(init="raise ValueError('nor here')"))
    assert verdict.verdict is Outcome.CRASHED
    assert "nor here" in verdict.reason


def test_memory_is_limited(judged: Judged) -> None:
    """Taking more memory than the limit is out_of_memory."""
    verdict = judged(candidate(forward="z = torch.ones(1 << 32)"))
    assert verdict.verdict is Outcome.OUT_OF_MEMORY
    verdict = judged(candidate(forward="z = bytearray(1 << 33)"))
    assert verdict.verdict is Outcome.OUT_OF_MEMORY


def test_a_tuple_of_types_is_compared_part_by_part(judge: Judge) -> None:
    """Integers, booleans and floats among a task's outputs are each compared."""
    task = Task(
        name="tuple",
        source="""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(1), (x.argmax(1), x > 0), {"mean": x.mean()}
def get_inputs(): return [torch.randn(7, 33)]
def get_init_inputs(): return []
""",
    )
    same = task.source.replace("class Model(", "class ModelNew(")
    verdict = judge.judge(task, same)
    assert isinstance(verdict, Verdict)
    assert verdict.is_correct, verdict
    verdict = judge.judge(task, same.replace("x.argmax(1)", "x.argmax(1) + 1"))
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG
    assert "output 1" in verdict.reason


def test_tiny_results_are_not_passed_by_zeros(judge: Judge) -> None:
    """The tolerance follows the reference's magnitude: zeros for 1e-6 are wrong."""
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 1e-6
def get_inputs(): return [torch.randn(64, 64)]
def get_init_inputs(): return []
"""
    lazy = source.replace("class Model(", "class ModelNew(").replace("x * 1e-6", "x * 0")
    verdict = judge.judge(Task(name="tiny", source=source), lazy)
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("class Model(", "class Other("), "defines no Model"),
        (("def get_inputs", "def other"), "get_inputs"),
        (("torch.randn(32, 64), torch", "torch.randn(31, 64), torch"), "line"),
        (("return [2.0]", "return 2.0"), "expected a list"),
        (("return [2.0]", "raise KeyError('gone')"), "gone"),
        (
            (
                "super().__init__()",
                "super().__init__(); self.lock = __import__('threading').Lock()",
            ),
            "copy.deepcopy of Model raised TypeError",
        ),
    ],
)
def test_a_task_that_does_not_work_is_a_problem_in_one_line(
    judge: Judge, task: Task, change: tuple[str, str], reason: str
) -> None:
    """A task's own fault is reported to its user, and is not a verdict."""
    problem = judge.measure(Task(name="bad", source=task.source.replace(*change)))
    assert isinstance(problem, TaskProblem)
    assert reason in problem.reason
    assert "\n" not in problem.reason


def test_a_task_is_measured(judge: Judge, task: Task) -> None:
    """The reference's own time and shapes are known; a time that was not measured is None."""
    reference = judge.measure(task)
    assert not isinstance(reference, TaskProblem)
    assert reference.eager_us > 0
    assert reference.compile_us is None
    assert reference.inputs == "float32[32, 64], float32[32, 64]"
    assert reference.outputs == "float32[32, 64]"
    assert reference.facts is not None
    assert reference.facts.cost is not None
    assert reference.facts.cost.input_bytes == reference.facts.cost.output_bytes * 2 == 16384
    assert reference.facts.operations
    assert any("0.0001 x (|element|" in line for line in reference.facts.rule_lines)


def test_a_process_lost_under_the_profiler_is_no_fault_but_the_device_is_checked(
    judged: Judged, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidate was right and timed without it; what its end left on the device is unknown."""
    checks: list[str] = []
    health = judge.session._health
    monkeypatch.setattr(health, "after_abnormal_end", lambda: checks.append("checked"))
    dies = "import os\nif torch.autograd._profiler_enabled(): os._exit(3)"
    verdict = judged(candidate(forward=dies))
    assert verdict.verdict is Outcome.CORRECT, verdict.reason
    assert checks == ["checked"]


def test_a_verdict_is_printed_with_the_agreed_keys(judged: Judged) -> None:
    """The line of JSON has the fixed keys in order, null for what was not measured."""

    line = json.loads(verdict_json(judged(candidate(forward="return None"))))
    assert tuple(line) == VERDICT_KEYS
    assert line["median_us"] is None
    assert set(line["seconds"]) == {"build", "check", "time"}
