"""A tensor around the candidate's own memory."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor squares(int64_t n) {
  auto* memory = new float[n];
  for (int64_t i = 0; i < n; ++i) memory[i] = float(i * i);
  auto options = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCPU);
  return torch::from_blob(memory, {n}, [](void* p) { delete[] static_cast<float*>(p); }, options);
}
"""
module = load_inline(name="cpu_from_blob", cpp_sources=SOURCE, functions=["squares"])


def results():
    torch.manual_seed(0)
    return [module.squares(10)]
