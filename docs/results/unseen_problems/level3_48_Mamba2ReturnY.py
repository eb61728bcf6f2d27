# level3_48_Mamba2ReturnY: the candidate of attempt 2, as its model wrote it (claude-by-mailbox).
# 357 µs a call; eager PyTorch: 8.85 ms, 24.81× (24.62–25.03) (first look), on NVIDIA H200.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'MINB': 3, 'STAGES': 2, 'UNR': 4}

_cuda = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <optional>

constexpr int NS = SCAN_STAGES, UN = SCAN_UNR;
constexpr int NW = 4, CL = 8;
constexpr int OB = 4096, OC = 5120, OA = 6144, STB = 6208;
constexpr unsigned FULL = 0xffffffffu;

__device__ __forceinline__ void cp16(unsigned d, const float* s) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(d), "l"(s) : "memory");
}
__device__ __forceinline__ void cp4(unsigned d, const float* s) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(d), "l"(s) : "memory");
}
__device__ __forceinline__ void cpcommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// no memory clobber: shared loads of later steps may move above it
__device__ __forceinline__ void store4(float* p, float a, float b, float c, float d) {
    asm volatile("st.global.cs.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(p), "f"(a), "f"(b), "f"(c), "f"(d));
}

// one warp: two neighbouring heads of a batch; a lane: 4 of 64 columns p, all 16 of n
__global__ void __launch_bounds__(NW * 32, SCAN_MINB)
scan_kernel(const float* __restrict__ Xg, const float* __restrict__ Ag, const float* __restrict__ Bg,
            const float* __restrict__ Cg, const float* __restrict__ S0, float* __restrict__ Yg) {
    extern __shared__ __align__(128) unsigned char smem_raw[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, half = lane >> 4;
    const int w = blockIdx.x * NW + warp;
    const size_t row0 = (size_t)(w >> 2) * 1024 + 2 * (w & 3);
    unsigned char* base = smem_raw + warp * NS * STB;
    const unsigned sbase = (unsigned)__cvta_generic_to_shared(base);

    const float* xsrc = Xg + row0 * 64 + lane * 4;
    const size_t bc = row0 * 16 + (lane >> 3) * 128 + (lane & 7) * 4;
    const float* bsrc = Bg + bc;
    const float* csrc = Cg + bc;
    const float* asrc = Ag + row0 + ((lane >> 1) & 7) * 8 + (lane & 1);
    float* yp = Yg + row0 * 64 + lane * 4;

    auto load = [&](int i, int st) {
        const unsigned d = sbase + st * STB;
        #pragma unroll
        for (int k = 0; k < CL; k++) cp16(d + k * 512 + lane * 16, xsrc + i * 4096 + k * 512);
        #pragma unroll
        for (int k = 0; k < 2; k++) {
            cp16(d + OB + k * 512 + lane * 16, bsrc + i * 1024 + k * 512);
            cp16(d + OC + k * 512 + lane * 16, csrc + i * 1024 + k * 512);
        }
        if (lane < 16) cp4(d + OA + lane * 4, asrc + i * 64);
    };

    #pragma unroll
    for (int i = 0; i < NS - 1; i++) { load(i, i); cpcommit(); }

    float h[16][4];
    #pragma unroll
    for (int n = 0; n < 16; n++)
        #pragma unroll
        for (int k = 0; k < 4; k++)
            h[n][k] = S0 ? S0[((size_t)(2 * w + half) * 64 + 4 * (lane & 15) + k) * 16 + n] : 0.f;

    float carry = 0.f;
    int st = 0;
    #pragma unroll 1
    for (int i = 0; i < 128 / CL; i++) {
        asm volatile("cp.async.wait_group %0;" :: "n"(NS - 2) : "memory");
        __syncwarp();
        if (i + NS - 1 < 128 / CL) load(i + NS - 1, st == 0 ? NS - 1 : st - 1);
        cpcommit();
        const unsigned char* s = base + st * STB;
        st = (st + 1 == NS) ? 0 : st + 1;

        if ((i & 1) == 0) {
            const float et = exp2f(carry);
            carry = 0.f;
            #pragma unroll
            for (int n = 0; n < 16; n++)
                #pragma unroll
                for (int k = 0; k < 4; k++) h[n][k] *= et;
        }
        // log2 decays; lane r (and r + 8) of each half holds step r
        float cum = *(const float*)(s + OA + ((lane & 7) * 2 + half) * 4) * 1.4426950408889634f;
        #pragma unroll
        for (int o = 1; o < CL; o <<= 1) {
            const float v = __shfl_up_sync(FULL, cum, o, CL);
            if ((lane & 7) >= o) cum += v;
        }
        cum += carry;
        carry = __shfl_sync(FULL, cum, CL - 1, CL);
        const float ep = exp2f(cum), en = exp2f(-cum);

        const unsigned char* sx = s + lane * 16;
        const unsigned char* sbc = s + OB + half * 64;
        float* yo = yp + i * 4096;
        #pragma unroll UN
        for (int j = 0; j < CL; j++) {
            const float fn = __shfl_sync(FULL, en, j, CL), fp = __shfl_sync(FULL, ep, j, CL);
            const float4 xv = *(const float4*)(sx + j * 512);
            const float x[4] = {xv.x * fn, xv.y * fn, xv.z * fn, xv.w * fn};
            float y[4] = {0.f, 0.f, 0.f, 0.f};
            #pragma unroll
            for (int m = 0; m < 4; m++) {
                const float4 bv = *(const float4*)(sbc + j * 128 + m * 16);
                const float4 cv = *(const float4*)(sbc + (OC - OB) + j * 128 + m * 16);
                const float bb[4] = {bv.x, bv.y, bv.z, bv.w}, cc[4] = {cv.x, cv.y, cv.z, cv.w};
                #pragma unroll
                for (int c = 0; c < 4; c++) {
                    #pragma unroll
                    for (int k = 0; k < 4; k++) h[4 * m + c][k] = fmaf(bb[c], x[k], h[4 * m + c][k]);
                    #pragma unroll
                    for (int k = 0; k < 4; k++) y[k] = fmaf(cc[c], h[4 * m + c][k], y[k]);
                }
            }
            store4(yo + j * 512, y[0] * fp, y[1] * fp, y[2] * fp, y[3] * fp);
        }
    }
}

torch::Tensor scan_forward(torch::Tensor X, torch::Tensor A, torch::Tensor B, torch::Tensor C,
                           std::optional<torch::Tensor> S0) {
    auto x = X.contiguous(), a = A.contiguous(), b = B.contiguous(), c = C.contiguous();
    torch::Tensor s0;
    const float* sp = nullptr;
    if (S0.has_value()) { s0 = S0.value().contiguous(); sp = s0.data_ptr<float>(); }
    TORCH_CHECK(x.size(1) == 128 && x.size(2) == 8 && x.size(3) == 64 && b.size(3) == 16, "shape");
    auto y = torch::empty(x.sizes(), x.options());
    const int smem = NW * NS * STB;
    cudaFuncSetAttribute(scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    scan_kernel<<<(int)x.size(0), NW * 32, smem, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), sp, y.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

_cpp = """
#include <optional>
torch::Tensor scan_forward(torch::Tensor X, torch::Tensor A, torch::Tensor B, torch::Tensor C, std::optional<torch::Tensor> S0);
"""

_ext = load_inline(
    name="mamba2_scan_y",
    cpp_sources=_cpp,
    cuda_sources=_cuda,
    functions=["scan_forward"],
    extra_cuda_cflags=["-O3", f"-DSCAN_MINB={TUNE['MINB']}", f"-DSCAN_STAGES={TUNE['STAGES']}",
                       f"-DSCAN_UNR={TUNE['UNR']}"],
)

class ModelNew(nn.Module):
    def __init__(self, batch_size, seq_length, n_heads, d_head, d_state, block_len=64):
        """
        Mamba Structured State Space model implementation for benchmarking.
        
        :param batch_size: Size of the batch
        :param seq_length: Length of the input sequence
        :param n_heads: Number of attention heads
        :param d_head: Dimension of each head
        :param d_state: Dimension of the state space
        :param block_len: Length of each block for chunked computation
        """
        super(ModelNew, self).__init__()
        
        assert seq_length % block_len == 0, "Sequence length must be divisible by block length"
        
        self.batch_size = batch_size
        self.seq_length = seq_length
        self.n_heads = n_heads
        self.d_head = d_head
        self.d_state = d_state
        self.block_len = block_len
        
        # Initialize parameters
        self.A = nn.Parameter(torch.randn(batch_size, seq_length, n_heads))
        self.B = nn.Parameter(torch.randn(batch_size, seq_length, n_heads, d_state))
        self.C = nn.Parameter(torch.randn(batch_size, seq_length, n_heads, d_state))
        
    def forward(self, X, initial_states=None):
        return _ext.scan_forward(X, self.A, self.B, self.C, initial_states)

# Test parameters
batch_size = 2048
seq_length = 128
n_heads = 8
d_head = 64
d_state = 16
block_len = 64
