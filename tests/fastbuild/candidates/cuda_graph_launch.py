"""A CUDA graph that C++ captures and launches."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>
__global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
torch::Tensor run(torch::Tensor x, int64_t steps) {
  auto y = torch::zeros_like(x);
  int n = x.numel();
  auto side = c10::cuda::getStreamFromPool();
  c10::cuda::getCurrentCUDAStream().synchronize();
  cudaGraph_t graph; cudaGraphExec_t exec;
  {
    c10::cuda::CUDAStreamGuard guard(side);
    C10_CUDA_CHECK(cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal));
    axpy<<<(n + 255) / 256, 256, 0, side>>>(y.data_ptr<float>(), x.data_ptr<float>(), 2.0f, n);
    C10_CUDA_CHECK(cudaStreamEndCapture(side, &graph));
    C10_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int64_t s = 0; s < steps; ++s) C10_CUDA_CHECK(cudaGraphLaunch(exec, side));
    side.synchronize();
    cudaGraphExecDestroy(exec); cudaGraphDestroy(graph);
  }
  return y;
}
"""
module = load_inline(
    name="cuda_graph_launch",
    cpp_sources="torch::Tensor run(torch::Tensor x, int64_t steps);",
    cuda_sources=SOURCE,
    functions=["run"],
    extra_cuda_cflags=["-O3"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(1000, device="cuda")
    y = module.run(x, 3)
    torch.testing.assert_close(y, 6 * x)
    return [y]
