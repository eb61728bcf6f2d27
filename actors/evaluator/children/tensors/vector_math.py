"""The first call of each of torch's vector functions on a host, made once and by one thread.

Torch hands `cos`, `exp` and the like to MKL, which chooses kernels at the first call.  Where that
call is made by several threads at once, one of them may compute its part in low precision (half of
the bits; MKL 2024.2, https://github.com/pytorch/pytorch/issues/188792).  An honest candidate would
be wrong, and the tolerance of a reference that was hit too wide.
"""

from __future__ import annotations

import torch

# Torch's unary functions that MKL computes (`aten/src/ATen/cpu/vml.h`), and the ones beside them.
FUNCTIONS = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma"),
    *("erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "lgamma", "log", "log10", "log1p"),
    *("log2", "reciprocal", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
    "trunc",
)
DTYPES = (torch.float32, torch.float64)  # half precision is computed by the first


def choose_kernels() -> None:
    """Call each function on one element, which no second thread shares."""
    for dtype in DTYPES:
        half = torch.full((1,), 0.5, dtype=dtype)
        for name in FUNCTIONS:
            getattr(torch, name)(half)
