"""On a card: a profile's sentences and the place of a crash, through the judge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from evaluator_samples import TASK, candidate

from actors.evaluator.judge import Judge
from actors.evaluator.profiling.ncu_metrics import DRIVER_SHARED_BYTES, RESERVED_SHARED
from protocol.settings import Limits
from protocol.values import METRIC_TABLE, Outcome, Task, Verdict

pytestmark = pytest.mark.gpu

# Compiled in the candidate's own process: needs no headers of torch.
WRITES_FAR = """
KERNEL = r'''
extern "C" __global__ void far(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i + 4000000000LL] = x[i];
}
'''
"""
CALLS_IT = """\
kernel = torch.cuda._compile_kernel(KERNEL, "far", nvcc_options=["-lineinfo"])
kernel(grid=(1, 1, 1), block=(64, 1, 1), args=[x, x, x.numel()])
torch.cuda.synchronize()
"""
ASSERTS = "z = x.flatten()[torch.tensor([1 << 40], device=x.device)]\ntorch.cuda.synchronize()"


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    judge = Judge("cuda", Limits(time_s=0.3), tmp_path_factory.mktemp("card") / "judge")
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def on_card() -> Task:
    return Task(name="small", source=TASK, device="cuda", backend="cuda")


def test_a_candidate_is_profiled(card: Judge, on_card: Task) -> None:
    """The task's own module: a few small kernels, bound by their launches."""
    found = card.judge(on_card, candidate(), inspected="yes")
    assert isinstance(found, Verdict)
    assert found.is_correct, found.reason
    if shutil.which("ncu") is None or not card.session.zygote.ready.namespaces:
        pytest.skip("ncu can't be used here")
    assert found.facts is not None
    assert found.facts.profile_sentences, (found.profile or {}).get(METRIC_TABLE)
    assert "ound by" in found.facts.profile_sentences[0]
    table = (found.profile or {})[METRIC_TABLE]
    assert "gpu__time_duration.sum" in table
    # From compute capability 8.0 on; the judge takes it off what a kernel's blocks use.
    assert f"{DRIVER_SHARED_BYTES} {RESERVED_SHARED}\n" in table


def test_a_write_out_of_bounds_is_located(card: Judge, on_card: Task) -> None:
    """Its kernel, the line of the candidate and the thread."""
    if shutil.which("compute-sanitizer") is None or not card.session.zygote.ready.namespaces:
        pytest.skip("compute-sanitizer can't be used here")
    source = candidate(before=WRITES_FAR, forward=CALLS_IT)
    found = card.judge(on_card, source, inspected="crash")
    assert isinstance(found, Verdict)
    assert found.verdict is Outcome.CRASHED, found.reason
    assert found.facts is not None
    assert "Invalid __global__ write of size 4 bytes in far" in found.facts.fault_location
    assert "thread" in found.facts.fault_location


def test_a_failed_assertion_is_located(card: Judge, on_card: Task) -> None:
    """From the candidate's own output, without a tool."""
    found = card.judge(on_card, candidate(forward=ASSERTS), inspected="crash")
    assert isinstance(found, Verdict)
    assert found.verdict is Outcome.CRASHED, found.reason
    assert found.facts is not None
    assert "assertion `" in found.facts.fault_location
