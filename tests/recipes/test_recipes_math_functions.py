"""The functions that kernels call have errors of a few float32 units in the last place."""

from __future__ import annotations

import ctypes
import warnings

import pytest
from recipe_runner import Bench

from actors.agents.recipes.codegen.math_functions import prelude

# function -> (PyTorch's name, units in the last place allowed tight, quick)
LIMITS = {
    "exp_": ("exp", 1, 1),
    "expm1_": ("expm1", 2, 2),
    "log_": ("log", 1, 1),
    "log1p_": ("log1p", 2, 2),
    "tanh_": ("tanh", 2, 3),
    "erf_": ("erf", 1, 3),
    "sigmoid": ("sigmoid", 2, 2),
    "rsqrt_": ("rsqrt", 1, 1),
}


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("lanes", [8, 16])
def test_functions_are_within_their_units_in_the_last_place(
    bench: Bench, lanes: int, quick: bool
) -> None:
    """Compared with float64 over the whole range, special numbers included."""
    torch = bench.torch
    body = "\n".join(
        f'extern "C" void of_{name}(const float *p, float *q, long n)'
        f" {{ for (long j = 0; j < n; j += W) store(q + j, {name}(load(p + j, W)), W); }}"
        for name in LIMITS
    )
    source = f"{prelude(body, lanes, quick=quick)}\n{body}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils.cpp_extension import load_inline

        library = ctypes.CDLL(
            load_inline(
                name=f"maths_{lanes}_{quick}",
                cpp_sources=source,
                extra_cflags=["-O3", "-march=native", "-fno-math-errno", "-Wno-psabi"],
                no_implicit_headers=True,
                is_python_module=False,
            )
        )
    special = [0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 1e38, -1e38]
    x = torch.cat(
        [torch.linspace(-110, 110, 40000), torch.linspace(-2, 2, 40000),
         torch.logspace(-37, 38, 8000), torch.as_tensor(special * 2)]
    ).float()  # fmt: skip
    for name, (theirs, tight, loose) in LIMITS.items():
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, y)]
        getattr(library, f"of_{name}")(*pointers, ctypes.c_long(len(x)))
        exact = getattr(torch, theirs)(x.double())
        eager = getattr(torch, theirs)(x)
        assert torch.equal(torch.isnan(eager), torch.isnan(y)), name
        assert torch.equal(torch.isinf(eager), torch.isinf(y)), name
        normal = torch.isfinite(eager) & (exact.abs() > 1.2e-38)
        units = ((y.double() - exact).abs() / (exact.abs() * 2**-23))[normal].max().item()
        assert units <= (loose if quick else tight), name
