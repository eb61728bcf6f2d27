"""What is declared is not what is defined: the import fails."""
# ruff: noqa: E501 (the long lines are C++)

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void k(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i]; }
torch::Tensor forward_cuda(torch::Tensor x, int n) { auto y = torch::empty_like(x); k<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); return y; }
"""
module = load_inline(
    name="cuda_broken_symbol",
    cpp_sources="torch::Tensor forward_cuda(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["forward_cuda"],
)
