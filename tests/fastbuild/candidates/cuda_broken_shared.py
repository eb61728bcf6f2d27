"""More shared memory than a block may have."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void k(float* x, int n) {
  __shared__ float big[100000];
  big[threadIdx.x] = 1.f;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = big[i];
}
torch::Tensor f(torch::Tensor x) {
  k<<<1, 32>>>(x.data_ptr<float>(), 32);
  return x;
}
"""
module = load_inline(
    name="cuda_broken_shared",
    cpp_sources="torch::Tensor f(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["f"],
)
