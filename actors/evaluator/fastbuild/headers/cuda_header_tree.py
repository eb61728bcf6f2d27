"""The light headers for CUDA sources: complex numbers, the CUDA context, and headers without torch.

The stand-in for complex numbers is in a folder apart from the common tree: a candidate that names
these, or thrust, does not get it.  The headers of the CUDA context stand for themselves unless the
candidate names cuBLAS, cuSPARSE or cuSOLVER: then its own folder has the file `LIBRARIES_FILE`, and
they include torch's headers.  So both kinds of candidates are compiled with the same folders.
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

LIBRARIES_FILE = "stark/cuda_libraries.h"


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
        "#include <cstdint>\n#include <map>\n#include <shared_mutex>\n"
        "#include <cuda_runtime_api.h>\n#include <c10/core/Allocator.h>\n"
        "#include <c10/cuda/CUDAFunctions.h>\n"
    )
    write_file(context / "CUDAContextLight.h", _unless_libraries("CUDAContextLight.h", lead + body))
    exceptions = (
        "#include <c10/macros/Export.h>\n#include <c10/util/Exception.h>\n"
        "#include <c10/cuda/CUDAException.h>\n#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)\n"
    )
    write_file(context / "Exceptions.h", _unless_libraries("Exceptions.h", exceptions))
    whole = (
        "#include <ATen/cuda/CUDAContextLight.h>\n#include <c10/cuda/CUDAStream.h>\n"
        "#include <ATen/cuda/Exceptions.h>\n"
    )
    write_file(context / "CUDAContext.h", _unless_libraries("CUDAContext.h", whole))


def _unless_libraries(name: str, text: str) -> str:
    """Return a header with `text`, or with torch's own for a candidate with CUDA's libraries."""
    return (
        f"#pragma once\n#if __has_include(<{LIBRARIES_FILE}>)\n"
        f"#include_next <ATen/cuda/{name}>\n#else\n{text}#endif\n"
    )


def write_minimal_header(folder: Path) -> None:
    """Write umbrella headers with the standard library alone, for sources that do not use torch."""
    names = re.findall(
        r"^#include <[\w.]+>\n", (NATIVE / "light.h").read_text(encoding="utf-8"), re.MULTILINE
    )
    for name in (*UMBRELLAS, *BINDING_UMBRELLAS):
        write_file(folder / "bare" / name, "#pragma once\n" + "".join(names))
