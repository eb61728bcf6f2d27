"""Laws of the release checks with real CUDA and Triton candidates, by the judge, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.evaluator.judge import Judge
from actors.evaluator.release_stage import essential_failure
from protocol.release import Release
from protocol.settings import Limits
from protocol.values import Reference, Task

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
        self.slope = slope

    def forward(self, x, y):
        return torch.relu(x + self.bias) * self.slope + y

def get_inputs():
    return [torch.randn(512, 1024), torch.randn(512, 1024)]

def get_init_inputs():
    return [1024, 0.5]
"""

CUDA = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void fused(const float* x, const float* b, const float* y, float* o,
                      float s, int n, int f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = x[i] + b[i % f]; o[i] = (v > 0 ? v : 0) * s + y[i]; }
}
torch::Tensor run(torch::Tensor x, torch::Tensor b, torch::Tensor y, double s) {
  auto o = torch::empty_like(x);
  int n = x.numel();
  fused<<<(n + 255) / 256, 256STREAM>>>(x.data_ptr<float>(), b.data_ptr<float>(),
      y.data_ptr<float>(), o.data_ptr<float>(), (float)s, n, b.numel());
  return o;
}
"""
native = load_inline(
    name="fused_bias_relu",
    cpp_sources="torch::Tensor run(torch::Tensor, torch::Tensor, torch::Tensor, double);",
    cuda_sources=SOURCE,
    functions=["run"],
)
cache = {}

class ModelNew(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
        self.slope = slope

    def forward(self, x, y):
        return native.run(x, BIAS, y, self.slope)
'''
ON_THE_CURRENT_STREAM = CUDA.replace("256STREAM", "256, 0, at::cuda::getCurrentCUDAStream()")
CORRECT = ON_THE_CURRENT_STREAM.replace("BIAS", "self.bias")
ON_THE_DEFAULT_STREAM = CUDA.replace("256STREAM", "256").replace("BIAS", "self.bias")
FIRST_WEIGHTS = ON_THE_CURRENT_STREAM.replace(
    "BIAS", 'cache.setdefault((self.bias._version, "bias"), self.bias.detach().clone())'
)
TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, b, y, o, s, n, f, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) + tl.load(b + i % f, mask=i < n)
    tl.store(o + i, tl.maximum(v, 0.0) * s + tl.load(y + i, mask=i < n), mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
        self.slope = slope

    def forward(self, x, y):
        o = torch.empty_like(x)
        n = x.numel()
        fused[(triton.cdiv(n, 1024),)](x, self.bias, y, o, self.slope, n, 1024, BLOCK=1024)
        return o
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    judge = Judge("cuda", Limits(), tmp_path_factory.mktemp("judge") / "scratch", log_line=print)
    yield judge
    judge.close()


def released(judge: Judge, source: str) -> Release:
    task = Task(name="fused", source=TASK, device="cuda", backend="cuda")
    assert isinstance(judge.measure(task), Reference)
    release = judge.release(task, source)
    assert isinstance(release, Release)
    return release


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        (CORRECT, ()),
        (TRITON, ()),
        (ON_THE_DEFAULT_STREAM, ("side stream", "CUDA graph")),
    ],
    ids=["correct", "triton", "default_stream"],
)
def test_a_use_that_is_wrong_on_a_gpu_becomes_a_limit(
    judge: Judge, source: str, limits: tuple[str, ...]
) -> None:
    """Checks find wrong kernels on streams and in graphs; with the limits the file is right."""
    release = released(judge, source)
    assert not release.failed
    assert limits == release.limits


def test_a_large_module_passes_the_checks_of_a_small_one(judge: Judge) -> None:
    """First values and inputs that the card draws: each check that can be made passes."""
    wide = TASK.replace("torch.randn(features)", "torch.randn(features, 65536)")
    wide = wide.replace("x + self.bias)", "x + self.bias[:, 7])")
    source = CORRECT.replace("torch.randn(features)", "torch.randn(features, 65536)")
    source = source.replace("run(x, self.bias,", "run(x, self.bias[:, 7].contiguous(),")
    task = Task(name="wide", source=wide, device="cuda", backend="cuda")
    assert isinstance(judge.measure(task), Reference)
    release = judge.release(task, source)
    assert isinstance(release, Release)
    assert not release.failed
    assert {"fresh process", "second instance", "compile", "CUDA graph"} <= set(release.passed)


def test_a_winner_with_the_first_instances_weights_is_not_a_drop_in(judge: Judge) -> None:
    """It ignores a later state dict; the judge loads weights only once and can't see that."""
    assert "state dict" in essential_failure(released(judge, FIRST_WEIGHTS))
