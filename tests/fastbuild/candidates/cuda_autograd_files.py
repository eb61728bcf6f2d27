"""torch::autograd::Function in C++, its kernels in CUDA."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void fwd(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] / (1.f + expf(-x[i])); }
__global__ void bwd(const float* x, const float* g, float* d, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { float s = 1.f / (1.f + expf(-x[i])); d[i] = g[i] * s * (1.f + x[i] * (1.f - s)); } }
torch::Tensor silu_fwd(torch::Tensor x) { auto y = torch::empty_like(x); int n = x.numel(); fwd<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); return y; }
torch::Tensor silu_bwd(torch::Tensor x, torch::Tensor g) { auto d = torch::empty_like(x); int n = x.numel(); bwd<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), g.data_ptr<float>(), d.data_ptr<float>(), n); return d; }
"""
CPP = r"""
#include <torch/extension.h>
torch::Tensor silu_fwd(torch::Tensor x);
torch::Tensor silu_bwd(torch::Tensor x, torch::Tensor g);
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
struct Silu : public torch::autograd::Function<Silu> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x) { ctx->save_for_backward({x}); return silu_fwd(x.contiguous()); }
  static variable_list backward(AutogradContext* ctx, variable_list grads) { auto x = ctx->get_saved_variables()[0]; return {silu_bwd(x.contiguous(), grads[0].contiguous())}; }
};
torch::Tensor silu(torch::Tensor x) { return Silu::apply(x); }
"""
module = load_inline(
    name="cuda_autograd_files", cpp_sources=CPP, cuda_sources=SOURCE, functions=["silu"]
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33, device="cuda", requires_grad=True)
    y = module.silu(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    z = torch.nn.functional.silu(x)
    torch.testing.assert_close([y, g], [z, torch.autograd.grad(z.sum(), x)[0]])
    return [y, g]
