"""Laws of the headers that CUDA sources get instead of torch's, and of the folders they are in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.headers.cuda_header_tree import generate_cuda_headers
from actors.evaluator.fastbuild.headers.toolkit import Toolkit, headers_of_torch
from actors.evaluator.fastbuild.nvcc.nvcc_headers import write_cuda_headers
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource

CONTEXT = "#include <ATen/cuda/CUDAContext.h>\n"
BLAS = "auto f() { return at::cuda::getCurrentCUDABlasHandle(); } // cublas\n"


def cuda(text: str) -> CandidateSource:
    return CandidateSource(path="/x/k.cu", text=f"#include <torch/types.h>\n{text}")


@pytest.mark.parametrize(
    "text",
    [
        "#include <cublas_v2.h>\n" + BLAS,
        "#include <cuda/barrier>\n#include <cuda/ptx>\n",
        "#include <nv/target>\n#include <cuda_fp16.h>\n",
    ],
)
def test_headers_are_prepared_once_for_these_sources_and_plain_ones(
    text: str, tmp_path: Path
) -> None:
    """Other folders would need a preamble and a precompiled header of their own."""
    toolkit = Toolkit(tmp_path)

    assert toolkit.include_folders(cuda("at::Tensor x;")) == toolkit.include_folders(cuda(text))


@pytest.mark.parametrize("text", ["#include <thrust/sort.h>\n", "c10::complex<float> z;"])
def test_complex_numbers_are_the_real_ones_where_they_are_used(text: str, tmp_path: Path) -> None:
    """The stand-in has members without bodies."""
    toolkit = Toolkit(tmp_path)

    assert tmp_path / "complex" in toolkit.include_folders(cuda("at::Tensor x;"))
    assert tmp_path / "complex" not in toolkit.include_folders(cuda(text))


def test_only_a_source_with_a_library_of_cuda_gets_torchs_context(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    """torch's header of the context includes those of four libraries, which take seconds."""
    generate_cuda_headers(headers_of_torch(), tmp_path)
    read = {}
    for text in (CONTEXT + BLAS, CONTEXT + "// no cublas\n"):
        own = tmp_path / "own"
        write_cuda_headers(toolkit, cuda("at::Tensor x;" + text), own, ())
        folders = [own, tmp_path / "context", headers_of_torch()]
        argv = ["g++", "-E", "-M", "-MG", "-x", "c++", "-"]
        argv += [part for folder in folders for part in ("-isystem", str(folder))]
        ran = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
        read[text] = ran.stdout.replace("\\\n", " ").split()

    with_library, without = read.values()
    assert "cublas_v2.h" in with_library
    assert "cublas_v2.h" not in without
