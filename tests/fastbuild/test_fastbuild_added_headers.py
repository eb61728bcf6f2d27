"""Laws of the headers that are added to the common part: read off a text, plain, and few."""

from __future__ import annotations

import pytest

from actors.evaluator.fastbuild.request.added_headers import (
    AUTOGRAD,
    CUB_UMBRELLA,
    LIBRARY,
    PYBIND,
    cub_parts,
    launch_no_kernels,
)
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.request.source_requirements import flag_sets_of

KERNEL = "__global__ void k() {}\n"
CALL = 'load_inline(name="a", cpp_sources=C, cuda_sources=S)'


def headers_of(text: str) -> FlagSet:
    (found,) = flag_sets_of(f'S = r"""{text}"""\n{CALL}', cuda=True)
    return found


@pytest.mark.parametrize(
    ("text", "added"),
    [
        (KERNEL, ()),
        (KERNEL + 'TORCH_LIBRARY(mine, m) { m.def("f", f); }', (LIBRARY,)),
        (KERNEL + "struct F : torch::autograd::Function<F> {};", (AUTOGRAD,)),
        (KERNEL + 'PYBIND11_MODULE(n, m) { m.def("f", &f); }', ()),
        (KERNEL + 'PYBIND11_MODULE(n, m) { m.def("f", &f, py::arg("x")); }', (PYBIND,)),
        ("#include <thrust/sort.h>\n", ("thrust/sort.h",)),
        ("#define THRUST_X 1\n#include <thrust/sort.h>\n", ()),
        (
            "#include <cub/cub.cuh>\nusing R = cub::BlockReduce<float, 128>;",
            ("cub/block/block_reduce.cuh",),
        ),
        ("#include <cub/cub.cuh>\nusing namespace cub;\ncub::Other x;", (CUB_UMBRELLA,)),
    ],
)
def test_what_a_cuda_source_needs_is_prepared_with_its_flags(
    text: str, added: tuple[str, ...]
) -> None:
    """A build finds its headers parsed; a source without them needs nothing more."""
    found = headers_of(text)

    assert added == found.cuda_headers
    assert () == found.cpp_headers


def test_a_cuda_source_without_kernels_is_one_by_its_argument() -> None:
    """It registers operators, or calls a library of CUDA: its text alone does not show it."""
    for passed in ("OPS", "[OPS]", "[KERNELS, OPS]"):
        source = f"OPS = r'''TORCH_LIBRARY(x, m) {{}}'''\nload_inline(cuda_sources={passed})"
        (found,) = flag_sets_of(source, cuda=True)
        assert ((), (LIBRARY,)) == (found.cpp_headers, found.cuda_headers)


def test_what_a_cpp_source_needs_is_prepared_with_its_flags() -> None:
    """An operator for the host needs no CUDA headers."""
    source = 'S = """TORCH_LIBRARY(mine, m) {}"""\nload_inline(name="a", cpp_sources=S)'

    assert {FlagSet(cpp_headers=(LIBRARY,))} == flag_sets_of(source, cuda=True)


@pytest.mark.parametrize("header", ["../x.h", "/etc/passwd", "cub/../../x.h", "mine/x.h", "cub/x"])
def test_only_known_headers_are_plain(header: str) -> None:
    """Trusted code includes files of torch, cub and thrust only."""
    assert not FlagSet(cuda_headers=(header,)).is_plain()
    assert not FlagSet(cpp_headers=(header,)).is_plain()


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        (
            "cub::BlockReduceAlgorithm a = cub::BLOCK_REDUCE_RAKING; cub::DeviceRadixSort::f();",
            ("cub/block/block_reduce.cuh", "cub/device/device_radix_sort.cuh"),
        ),
        (
            "cub::WarpScan<int> w; at::cuda::getCurrentCUDAStream();",
            ("cub/warp/warp_scan.cuh",),
        ),
        ("cub::WarpReduce<float> w; cub::Sum s;", ()),
        ("cub::WarpReduce<float> w; cuda::std::plus<> s;", ()),
        ("namespace cub { struct Mine; } cub::WarpReduce<float> w;", ()),
    ],
)
def test_cub_is_read_in_part_only_where_names_show_the_part(
    code: str, parts: tuple[str, ...]
) -> None:
    """With any other name the whole of cub is included, as the candidate says."""
    assert parts == cub_parts(code, (CUB_UMBRELLA,))


def test_bodies_of_templates_stay_where_a_library_launches_kernels() -> None:
    """cicc must find the kernels that thrust::sort launches."""
    assert launch_no_kernels((LIBRARY, PYBIND, "cub/block/block_reduce.cuh"))
    assert not launch_no_kernels(("thrust/sort.h",))
    assert not launch_no_kernels(("cub/device/device_reduce.cuh",))


def test_two_calls_of_one_file_have_flags_of_their_own() -> None:
    """One file may build for the GPU and for the host, each with its own flags."""
    source = (
        'a = load_inline(name="a", cuda_sources=S, extra_cuda_cflags=["-O3"])\n'
        'b = load_inline(name="b", cpp_sources=S, extra_cflags=["-O2"])\n'
    )

    assert {FlagSet(cuda_cflags=("-O3",), with_cuda=True), FlagSet(cflags=("-O2",))} == (
        flag_sets_of(source, cuda=True)
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("-std=c++20",),
        ("-arch=sm_90a",),
        ("-gencode", "arch=compute_90a,code=sm_90a"),
        ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=compute_90"),
        ("-Xptxas", "-O3,-v"),
        ("-Xcompiler", "-O3"),
        ("-Xcompiler", "-fopenmp,-march=native"),
        ("--compiler-options=-fPIC,-Wno-unused-variable",),
    ],
)
def test_flags_of_architectures_and_standards_are_plain(flags: tuple[str, ...]) -> None:
    """Headers are prepared for them, as for other flags that neither read nor write files."""
    assert FlagSet(cuda_cflags=flags, with_cuda=True).is_plain()


@pytest.mark.parametrize(
    "flags",
    [("-Xptxas", "-o/tmp/x"), ("-Xcompiler", "-fopenmp,-fplugin=x"), ("-gencode", "@/tmp/x")],
)
def test_values_with_side_effects_are_not_plain(flags: tuple[str, ...]) -> None:
    """nvcc passes such a value on to another compiler."""
    assert not FlagSet(cuda_cflags=flags, with_cuda=True).is_plain()
