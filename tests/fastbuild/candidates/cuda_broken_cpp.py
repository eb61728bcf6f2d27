"""The error is in the C++ part."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void k(float* x) { x[0] = 1; }
torch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }
"""
CPP = """
torch::Tensor f(torch::Tensor x);
torch::Tensor g(torch::Tensor x) { return f(x) + missing_thing(x); }
"""
module = load_inline(
    name="cuda_broken_cpp", cpp_sources=CPP, cuda_sources=SOURCE, functions=["f", "g"]
)
