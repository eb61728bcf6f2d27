"""Tasks whose outputs follow from a state that calls change: both sides are given that state."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import special_corpora
from corpus.scene import is_credited

from actors.evaluator.ipc.referee_orders import ImportTask, MakeModel, PrepareTask
from actors.evaluator.judge import Judge
from actors.evaluator.reference.referee_client import RefereeClient
from actors.evaluator.timing.timing_policy import POLICY
from protocol.values import Outcome, Task, Verdict


@pytest.mark.parametrize(
    "name",
    [
        "honest/in_place",
        "hostile/outputs_left_out_late",
        "hostile/state_when_asked",
        "hostile/state_set_to_nan",
        "hostile/state_set_too_large",
        "hostile/state_at_the_limit",
    ],
)
def test_outputs_that_follow_from_a_running_state_are_compared_when_timed(
    patient_judge: Judge, name: str
) -> None:
    """One that left them out was 50 times as fast; one that left the state for later, 6.7 times.

    One that set its state to NaN, and returned NaN, was 54 times as fast: both sides are given it.
    """
    verdict = special_corpora.judged(patient_judge, "running_state", f"{name}.py")
    if name.startswith("honest"):
        assert verdict.is_correct, verdict
    elif name.endswith("asked"):
        assert not is_credited(verdict), verdict
    else:
        assert verdict.verdict is Outcome.WRONG, verdict
        assert "timed call" in verdict.reason


@pytest.mark.parametrize("name", ["honest/plain", "hostile/state_when_asked"])
@pytest.mark.long
def test_a_state_that_no_output_reads_is_computed_on_the_clock(
    patient_judge: Judge, name: str
) -> None:
    """A candidate that computes it when it is asked for gains nothing."""
    verdict = special_corpora.judged(patient_judge, "deferred_state", f"{name}.py")
    if name.startswith("honest"):
        assert verdict.is_correct, verdict
    else:
        assert not is_credited(verdict), verdict


ATTRIBUTES = special_corpora.candidates("attribute_state", ("two_products", "last_output_again"))


@pytest.mark.parametrize("path", ATTRIBUTES)
def test_outputs_that_follow_from_attributes_are_compared_when_timed(
    patient_judge: Judge, path: Path
) -> None:
    """One that left them out was 32 times as fast.  An attribute that decides nothing may lack."""
    reason = special_corpora.rightly_judged(patient_judge, "attribute_state", path)
    if path.stem == "state_of_its_own":
        assert "ModelNew has no buffer or attribute" in reason
    else:
        assert not reason or "timed call" in reason


@pytest.mark.parametrize(
    "path", special_corpora.candidates("tuple_state", ("gates_apart", "left_out_late"))
)
def test_outputs_that_follow_from_a_tuple_are_compared_when_timed(
    patient_judge: Judge, path: Path
) -> None:
    """An LSTM's state is often one: memory as it is was 36 to 47 times as fast."""
    special_corpora.rightly_judged(patient_judge, "tuple_state", path)


@pytest.mark.parametrize("name", ["honest/plain", "hostile/computed_in_last_call"])
def test_a_block_of_a_running_state_is_not_computed_together(
    patient_judge: Judge, name: str
) -> None:
    """Inputs are replaced in the middle of such blocks, too: it was 5.1 times as fast."""
    corpus = "stateful_recurrence"
    verdict = special_corpora.judged(patient_judge, corpus, f"{name}.py")
    if name.startswith("honest"):
        assert verdict.is_correct, verdict
    else:
        assert not is_credited(verdict), verdict


@pytest.mark.parametrize("path", special_corpora.candidates("autonomous_state", ("rows_first",)))
def test_blocks_begin_at_other_values_of_a_state(patient_judge: Judge, path: Path) -> None:
    """What one candidate kept of a state that follows from no input was 8.7 times as fast."""
    verdict = special_corpora.judged(patient_judge, "autonomous_state", path)
    if path.parent.name == "honest":
        assert verdict.is_correct, verdict
    else:
        assert not is_credited(verdict), verdict


def test_a_state_that_counts_stays_as_it_is(torch: ModuleType) -> None:
    """It may be an index; a tensor of floating values has others."""
    from actors.evaluator.children import slot_scaling

    for counts in (torch.tensor(3), torch.tensor([0.0, 3.0, 4.0]), torch.zeros(3)):
        assert not slot_scaling.can_scale_state(counts)
    assert slot_scaling.can_scale_state(torch.tensor(0.37))
    assert slot_scaling.can_scale_state(torch.tensor([0.0, 0.5], dtype=torch.bfloat16))


SLOW = """
import time
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(64))

    def forward(self, x):
        time.sleep(0.004)
        self.total = self.total * 0.5 + x
        return self.total + x

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""


@pytest.mark.long
def test_a_slow_task_with_a_state_is_repeated_for_a_short_time(
    patient_judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that was 500 times as fast had blocks that took the referee ten seconds each."""
    repeated = []
    compare_changes = RefereeClient.compare_changes

    def counted(client: Any, names: Any, after: int, calls: int, seed: Any) -> Any:
        repeated.append(calls)
        return compare_changes(client, names, after, calls, seed)

    monkeypatch.setattr(RefereeClient, "compare_changes", counted)
    fast = SLOW.replace("Model(", "ModelNew(").replace("time.sleep(0.004)", "pass")
    verdict = patient_judge.judge(Task(name="slow", source=SLOW), fast)
    assert isinstance(verdict, Verdict)
    assert verdict.is_correct, verdict
    assert repeated
    assert 4e-3 * max(repeated) <= POLICY.max_repeated_s


KEPT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.{begin})
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    {decorator}
    def forward(self, x):
        {step}
        self.calls += 1
        return {output}

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""
KEPT_STATES = {
    "an_input": ("zeros(64)", "", "y = x + self.kept; self.kept = x.clone()", "y"),
    "an_output": ("zeros(64)", "", "self.kept = torch.tanh(x + self.kept)", "self.kept"),
    "inference": (
        "zeros(64)",
        "@torch.inference_mode()",
        "self.kept = self.kept * 0.9 + x",
        "self.kept * 2",
    ),
    "broadcast": (
        "zeros(64)",
        "",
        "self.kept = (self.kept * 0.5 + x.mean()).mean().expand(64).clone()",
        "self.kept + x",
    ),
    "a_sum": ("zeros(64)", "", "self.kept += x", "self.kept / (1 + self.calls)"),
    "a_ring": (
        "zeros(16, 64)",
        "",
        "self.kept[self.calls % 16] = x",
        "torch.softmax(self.kept @ x / 8, 0) @ self.kept",
    ),
    "a_maximum": (
        "full((64,), float('-inf'))",
        "",
        "self.kept = torch.maximum(self.kept, x)",
        "x - self.kept",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", KEPT_STATES)
def test_a_state_of_any_kind_is_given_to_both_sides(patient_judge: Judge, name: str) -> None:
    """Some can't be written to where they lie: a broadcast, one that inference mode has made."""
    begin, decorator, step, output = KEPT_STATES[name]
    source = KEPT.format(begin=begin, decorator=decorator, step=step, output=output)
    candidate = source.replace("class Model", "class ModelNew")
    if name == "broadcast":
        candidate = candidate.replace(".clone()", "")
    verdict = patient_judge.judge(Task(name="kept", source=source), candidate)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.is_correct, verdict.reason


KEPT_INPUT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(64, 64)
        self.last = {begin}

    def forward(self, x):
        last, self.last = self.last, {kept}
        return torch.relu(self.lin(x if last is None else x - last{read}))

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return []
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("begin", "kept", "read"), [("None", "x", ""), ("None", "x[:1]", ""), ("None", "[x]", "[0]")]
)
def test_a_module_may_keep_its_input(
    patient_judge: Judge, begin: str, kept: str, read: str
) -> None:
    """The next inputs were written over it in checks, and its own text was wrong."""
    source = KEPT_INPUT.format(begin=begin, kept=kept, read=read)
    candidate = source.replace("class Model", "class ModelNew")
    verdict = patient_judge.judge(Task(name="kept", source=source), candidate)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.is_correct, verdict.reason


SPARSE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.adjacency = torch.eye(64).to_sparse()

    def forward(self, x):
        return torch.relu(torch.sparse.mm(self.adjacency, x))

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""


def test_a_module_may_have_a_sparse_constant(patient_judge: Judge) -> None:
    """It has no storage that could be an input's; the task could not be judged."""
    candidate = SPARSE.replace("class Model", "class ModelNew")
    verdict = patient_judge.judge(Task(name="sparse", source=SPARSE), candidate)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.is_correct, verdict.reason


CHAOTIC = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("noise", torch.rand(64))
        self.register_buffer("mean", torch.rand(64))

    def forward(self, x):
        self.noise.copy_(torch.frac(self.noise * 1000))
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        {late}
        return self.mean * x

def get_inputs():
    return [torch.rand(32, 64)]

def get_init_inputs():
    return []
"""
LATE = """
import sys

def is_late():
    frame = sys._getframe(1)
    while frame is not None and "turns" not in frame.f_locals:
        frame = frame.f_back
    return frame is not None and (frame.f_locals["slot"] or 0) > 0
"""


def test_a_buffer_that_no_output_reads_excuses_nothing(patient_judge: Judge) -> None:
    """Its last digits decide what it is after a call, and outputs were left out from there on."""
    task = Task(name="chaotic", source=CHAOTIC.format(late=""))
    candidate = LATE + CHAOTIC.format(late="if is_late(): return torch.zeros_like(x)")
    verdict = patient_judge.judge(task, candidate.replace("class Model", "class ModelNew"))
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG, verdict
    assert "timed call" in verdict.reason


JUMPING = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.rand(256))

    def forward(self, x):
        jumps = torch.remainder(torch.floor(self.mean * 1e4), 2)
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return jumps + x[0]

def get_inputs():
    return [torch.rand(4, 256)]

def get_init_inputs():
    return []
"""


class DirectChild:
    """A referee in this process."""

    def __init__(self) -> None:
        from actors.evaluator.children.referee import Referee

        self.referee = Referee("cpu")

    def ask(self, order: Any, _limit_s: float, carried: list[int]) -> tuple[Any, list[int]]:
        """Carry out an order."""
        return self.referee.answer(order, carried)


@pytest.mark.parametrize(("changed", "is_right"), [(1, True), (100, False)])
def test_jumps_are_excused_as_far_as_other_last_digits_cause_them(
    torch: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    changed: int,
    is_right: bool,
) -> None:
    """A state is right to some digits, and an element of the output is on the other side of a jump.

    It was asked whether last digits change the state, so an honest candidate was wrong there.
    """
    monkeypatch.chdir(tmp_path)
    child: Any = DirectChild()
    client = RefereeClient(child, AssertionError, check_s=9.0, uses_device_memory=False)
    for order in (
        ImportTask(source=JUMPING, modules={}),
        MakeModel(seed=1),
        PrepareTask(seed=2, use_device_memory=False),
    ):
        child.ask(order, 9.0, [])
    client.prepare_slots(8, b"")
    client.fill_slots(8)
    draw = client.draw_from_slot(5, 3, ("mean",)).draw
    layout = client.expected_layout(draw)
    output = child.referee._rounds[draw].eager.clone()
    output[:changed] += torch.where(output[:changed] >= 1, -1, 1)
    memory = client.lend_memory(output.nbytes)
    with mmap.mmap(memory, output.nbytes) as buffer:
        buffer.write(bytes(output.view(torch.uint8).tolist()))
    client.stash_outputs(memory, output.nbytes, [(0, output.nbytes)])
    reason = client.compare_stashed(0, layout, draw)
    assert is_right is (reason == ""), reason


TURNS = """
import torch

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(64, 64)
        {begin}
        self.number = 0

    def forward(self, x):
        self.number += 1
        if self.number > {most}:
            return torch.empty_like(x)
        {step}
        return torch.tanh(self.lin(x)) * (1.5 + {turn})

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return []
"""
ALTERNATIONS = {
    "flag": ("self.odd = False", "self.odd = not self.odd", "self.odd"),
    "number": ("self.turn = 0", "self.turn ^= 1", "self.turn"),
    "buffer": (
        "self.register_buffer('odd', torch.zeros((), dtype=torch.bool))",
        "self.odd.logical_not_()",
        "self.odd",
    ),
}


@pytest.mark.parametrize("is_honest", [True, False])
@pytest.mark.parametrize(
    "name", ["number", *(pytest.param(name, marks=pytest.mark.long) for name in ("flag", "buffer"))]
)
def test_a_state_that_takes_turns_is_one(
    patient_judge: Judge, name: str, *, is_honest: bool
) -> None:
    """Two calls later it is the same, so it was taken for none: the module's own text was wrong."""
    begin, step, turn = ALTERNATIONS[name]
    sources = [
        TURNS.format(name=kind, begin=begin, step=step, turn=turn, most=most)
        for kind, most in (("Model", 1e12), ("ModelNew", 1e12 if is_honest else 20))
    ]
    verdict = patient_judge.judge(Task(name="turns", source=sources[0]), sources[1])
    assert isinstance(verdict, Verdict), verdict
    assert verdict.is_correct is is_honest, verdict.reason
