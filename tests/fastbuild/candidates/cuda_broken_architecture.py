"""An instruction of sm_100a: ptxas refuses it for others."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void k(float* x) {
  asm volatile("tcgen05.wait::ld.sync.aligned;\n" ::: "memory");
  x[0] = 1;
}
torch::Tensor f(torch::Tensor x) { k<<<1, 128>>>(x.data_ptr<float>()); return x; }
"""
module = load_inline(
    name="cuda_broken_architecture",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
