"""A wrong operand in inline PTX."""
# ruff: noqa: E501 (the long lines are C++)

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void k(float* x) { float r; asm volatile("ld.global.f32 %0, [%1+];\n" : "=f"(r) : "l"(x)); x[0] = r; }
torch::Tensor f(torch::Tensor x) { k<<<1, 128>>>(x.data_ptr<float>()); return x; }
"""
module = load_inline(
    name="cuda_broken_ptx",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
