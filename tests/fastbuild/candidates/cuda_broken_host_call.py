"""A kernel calls functions of the host."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <vector>
float helper(float v) { return v + 1; }
__global__ void k(float* x) { std::vector<float> v(3); x[0] = helper(x[0]) + v[0]; }
torch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }
"""
module = load_inline(
    name="cuda_broken_host_call",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
