"""cuBLASLt with an epilogue."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublasLt.h>
#include <vector>
#define LT(x) do { auto s = (x); TORCH_CHECK(s == CUBLAS_STATUS_SUCCESS, #x, " failed ", (int)s); } while (0)
torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  int64_t m = x.size(0), k = x.size(1), n = w.size(0);
  auto y = torch::empty({m, n}, x.options());
  auto workspace = torch::empty({1 << 22}, x.options().dtype(torch::kUInt8));
  cublasLtHandle_t lt; LT(cublasLtCreate(&lt));
  cublasLtMatmulDesc_t op; LT(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasOperation_t ta = CUBLAS_OP_T, tb = CUBLAS_OP_N;
  LT(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)));
  LT(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)));
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
  const void* bias = b.data_ptr();
  LT(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
  LT(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
  cublasLtMatrixLayout_t A, B, C;
  LT(cublasLtMatrixLayoutCreate(&A, CUDA_R_16BF, k, n, k));
  LT(cublasLtMatrixLayoutCreate(&B, CUDA_R_16BF, k, m, k));
  LT(cublasLtMatrixLayoutCreate(&C, CUDA_R_16BF, n, m, n));
  cublasLtMatmulPreference_t pref; LT(cublasLtMatmulPreferenceCreate(&pref));
  size_t bytes = 1 << 22;
  LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
  cublasLtMatmulHeuristicResult_t found; int count = 0;
  LT(cublasLtMatmulAlgoGetHeuristic(lt, op, A, B, C, C, pref, 1, &found, &count));
  TORCH_CHECK(count > 0, "no algorithm");
  float one = 1, zero = 0;
  LT(cublasLtMatmul(lt, op, &one, w.data_ptr(), A, x.data_ptr(), B, &zero, y.data_ptr(), C, y.data_ptr(), C, &found.algo, workspace.data_ptr(), bytes, at::cuda::getCurrentCUDAStream()));
  return y;
}
"""
module = load_inline(
    name="cuda_cublaslt",
    cpp_sources="torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor w, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["linear_gelu"],
    extra_ldflags=["-lcublasLt"],
)


def results():
    torch.manual_seed(0)
    x, w, b = (
        t.cuda().bfloat16() for t in (torch.randn(64, 32), torch.randn(48, 32), torch.randn(48))
    )
    y = module.linear_gelu(x, w, b)
    torch.testing.assert_close(y, torch.relu(x @ w.T + b), rtol=5e-2, atol=5e-2)
    return [y]
