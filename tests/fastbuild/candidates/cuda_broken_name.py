"""An undeclared name in a kernel."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void k(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor;
}
torch::Tensor f(torch::Tensor x) {
  k<<<1, 32>>>(x.data_ptr<float>(), 32);
  return x;
}
"""
module = load_inline(
    name="cuda_broken_name",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
