"""No such header."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cutlass/gemm/device/gemm_universal_not_here.h>
__global__ void k(float* x) { x[0] = 1; }
torch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }
"""
module = load_inline(
    name="cuda_broken_include",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
