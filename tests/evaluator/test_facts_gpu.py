"""Facts on a card: its rates, the launches of a call, what a candidate's kernels take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from actors.evaluator.children import device_rates, profiler, task_cost
from actors.evaluator.children.output_difference import difference_lines
from actors.evaluator.children.product_kernels import PRODUCTS
from actors.evaluator.devices.device_description import last_cache_bytes
from actors.evaluator.judge import Judge, TaskProblem
from protocol.fact_lines import task_fact_lines, verdict_fact_lines
from protocol.settings import Limits
from protocol.values import Task, Verdict

pytestmark = pytest.mark.gpu

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x @ x)
def get_inputs():
    return [torch.rand(1024, 1024)]
def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    judge = Judge("cuda", Limits(time_s=0.3), tmp_path_factory.mktemp("facts") / "judge")
    yield judge
    judge.close()


def test_every_rate_of_a_card_is_measured() -> None:
    """A cache is faster than memory, tensor cores than float32, a series of launches than one."""
    rates, _ = device_rates.measure_rates("cuda", last_cache_bytes("cuda"))

    assert rates.copy_gb_s is not None
    assert rates.cached_copy_gb_s is not None
    assert rates.launch_us is not None
    assert rates.next_launch_us is not None
    assert rates.read_gb_s is not None
    assert rates.cached_read_gb_s is not None
    assert rates.shared_read_gb_s is not None
    assert 100 < rates.copy_gb_s < rates.cached_copy_gb_s
    assert 0.9 * rates.copy_gb_s < rates.read_gb_s < 1.3 * rates.copy_gb_s
    assert rates.read_gb_s < rates.cached_read_gb_s < rates.shared_read_gb_s
    assert 0 < rates.next_launch_us < rates.launch_us < 200
    assert {"float32", "tf32", "bfloat16", "float16"} == set(rates.tflops)
    assert rates.tflops["float32"] < rates.tflops["bfloat16"]
    named = rates.instruction_tflops
    assert named["TF32 by mma.sync"] < named["bfloat16 by mma.sync"]
    assert 0.9 * rates.tflops["float32"] < named["float32 by fma"]
    assert 1.5 * named["float32 by fma"] < named["float16 by fma of half2"]
    if torch.cuda.get_device_capability() == (9, 0):
        assert {*PRODUCTS} == {*named}
        assert 0.9 * rates.tflops["bfloat16"] < named["bfloat16 by wgmma"]
        assert 1.5 * named["bfloat16 by wgmma"] < named["float8 by wgmma"]
        assert {2, 4, 8} <= {*rates.clusters}
        count = torch.cuda.get_device_properties(0).multi_processor_count
        assert all(count / 2 < size * most <= count for size, most in rates.clusters.items())


def test_launches_registers_and_blocks_are_read() -> None:
    """The profiler's trace of this torch has the fields that the facts are made of."""
    x = torch.rand(1 << 20, device="cuda")
    profile = profiler.profile_call(lambda: torch.relu(x) + 1.0, "cuda")

    assert profile.launches == 2
    assert profile.host_us is not None
    assert len(profile.rows) == 2
    for row in profile.rows:
        assert row.registers is not None
        assert row.registers > 0
        assert row.grid is not None
        assert row.block is not None


def test_tf32_of_convolutions_is_told_from_float32_products() -> None:
    """torch's defaults: convolutions use TF32, products do not."""
    x, image = torch.rand(64, 64, device="cuda"), torch.rand(1, 8, 16, 16, device="cuda")
    convolution = torch.nn.Conv2d(8, 8, 3).cuda()

    assert set(task_cost.count_operations(lambda: x @ x, "cuda")[0]) == {"float32"}
    assert set(task_cost.count_operations(lambda: convolution(image), "cuda")[0]) == {"tf32"}


def test_a_wrong_output_on_a_card_is_described() -> None:
    """The description runs where the outputs are."""
    truth = torch.rand(64, 128, device="cuda")
    got = truth.clone()
    got[:, 100:] += 1

    lines = difference_lines(got, truth, truth.double(), 0.5, 1e-4)

    assert any("indices 100 to 127, up to the end" in line for line in lines)


def test_a_candidate_has_facts(card: Judge) -> None:
    """The judge's own way: a task's floor and operators, a candidate's kernels and occupancy."""
    task = Task(name="facts", source=TASK, device="cuda", backend="cuda")
    reference = card.measure(task)
    assert not isinstance(reference, TaskProblem)
    verdict = card.judge(task, TASK.replace("class Model(", "class ModelNew("))
    assert isinstance(verdict, Verdict)

    assert reference.facts is not None
    assert reference.facts.operations
    assert (reference.facts.launches or 0) >= 2
    assert any("with its products in TF32" in line for line in reference.facts.rule_lines)
    assert reference.facts.floor is not None
    assert reference.facts.floor.matrix_us is not None
    assert verdict.facts is not None
    assert verdict.facts.kernels[0].occupancy is not None
    assert any("GFLOP in float32" in line for line in task_fact_lines(reference.facts))
    lines = verdict_fact_lines(verdict.facts, reference.facts)
    assert any("the reference's floor is" in line for line in lines)


def test_no_file_of_a_profile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace that torch writes is removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x = torch.rand(16, device="cuda")
    profiler.profile_call(lambda: x + 1, "cuda")
    assert list(tmp_path.iterdir()) == []
