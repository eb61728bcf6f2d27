"""The light headers for CUDA sources: complex numbers, the CUDA context, and headers without torch.

They are in folders apart from the common tree, so that a candidate that names complex numbers,
thrust or cuBLAS gets the real headers.
"""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild.headers.header_tree import (
    BINDING_UMBRELLAS,
    NATIVE,
    UMBRELLAS,
    find_between,
    write_file,
)


def generate_cuda_headers(include: Path, folder: Path) -> None:
    """Write these headers into `folder`, for the torch headers in `include`."""
    write_minimal_header(folder)
    write_file(
        folder / "complex/thrust/complex.h", (NATIVE / "complex.h").read_text(encoding="utf-8")
    )
    name = "ATen/cuda/CUDAContextLight.h"
    if not (include / name).exists():
        return
    text = (include / name).read_text(encoding="utf-8")
    first, last = find_between(text, "\nnamespace at::cuda {", "\n} // namespace at::cuda", name)
    body = text[first:last] + "\n} // namespace at::cuda\n"
    body = re.sub(r"^TORCH_CUDA_CPP_API cu\w+Handle_t [^\n]*\n", "", body, flags=re.MULTILINE)
    body = re.sub(r"^TORCH_CUDA_CPP_API WorkspaceMapWithMutex&[^\n]*\n", "", body, flags=re.M)
    body = re.sub(r"^struct WorkspaceMapWithMutex \{.*?\n\};\n", "", body, flags=re.M | re.S)
    context = folder / "context/ATen/cuda"
    lead = (
        "#pragma once\n#include <cstdint>\n#include <map>\n#include <shared_mutex>\n"
        "#include <cuda_runtime_api.h>\n#include <c10/core/Allocator.h>\n"
        "#include <c10/cuda/CUDAFunctions.h>\n"
    )
    write_file(context / "CUDAContextLight.h", lead + body)
    write_file(
        context / "Exceptions.h",
        "#pragma once\n#include <c10/macros/Export.h>\n#include <c10/util/Exception.h>\n"
        "#include <c10/cuda/CUDAException.h>\n#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)\n",
    )
    write_file(
        context / "CUDAContext.h",
        "#pragma once\n#include <ATen/cuda/CUDAContextLight.h>\n#include <c10/cuda/CUDAStream.h>\n"
        "#include <ATen/cuda/Exceptions.h>\n",
    )


def write_minimal_header(folder: Path) -> None:
    """Write umbrella headers with the standard library alone, for sources that do not use torch."""
    names = re.findall(
        r"^#include <[\w.]+>\n", (NATIVE / "light.h").read_text(encoding="utf-8"), re.MULTILINE
    )
    for name in (*UMBRELLAS, *BINDING_UMBRELLAS):
        write_file(folder / "bare" / name, "#pragma once\n" + "".join(names))
