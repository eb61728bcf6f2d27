"""wgmma for sm_90: ptxas refuses it."""
# ruff: noqa: E501 (the long lines are C++)

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void k(float* x) { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory"); x[0] = 1; }
torch::Tensor f(torch::Tensor x) { k<<<1, 128>>>(x.data_ptr<float>()); return x; }
"""
module = load_inline(
    name="cuda_broken_architecture",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
