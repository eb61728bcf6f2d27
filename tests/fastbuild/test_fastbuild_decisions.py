"""Laws of the decisions before a build: what torch builds from the start, which flags are plain."""

from __future__ import annotations

import pytest

from actors.evaluator.fastbuild.headers.declared_names import names_declared_by
from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import OperatorIndex
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.flag_set import FlagSet, canonical
from actors.evaluator.fastbuild.request.source_requirements import flag_sets_of, needs_headers
from actors.evaluator.fastbuild.store.build_slots import slots_for
from actors.evaluator.fastbuild.unsupported import can_bind_by_table, unsupported_reason

LEAD = "#include <torch/extension.h>\n"
MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{}\n}}\n"


def reason_for(text: str, hidden: frozenset[str] = frozenset()) -> str | None:
    return unsupported_reason([CandidateSource(path="/x/main.cpp", text=LEAD + text)], hidden)


@pytest.mark.parametrize(
    "text",
    [
        "auto y = torch::nn::functional::gelu(x);",
        "torch :: optim :: SGD o;",
        "auto g = torch::autograd::grad({y}, {x});",
        '#include "kernel.h"\n',
        '#include "../secret.h"\n',
        "#include <torch/csrc/jit/api/module.h>\n",
    ],
)
def test_torch_builds_what_needs_more_than_tensors(text: str) -> None:
    """torch itself builds modules, optimisers, gradients of graphs and files that are missing."""
    assert reason_for(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "auto y = x.softmax(1); // torch::nn would do too",
        'TORCH_CHECK(x.dim() == 2, "torch::nn needs two");',
        "#include <ATen/cuda/CUDAContext.h>\n#include <cub/cub.cuh>\n",
        "torch::NoGradGuard guard; using torch::indexing::Slice;",
        "struct F : torch::autograd::Function<F> {};",
        'TORCH_LIBRARY(mine, m) { m.def("f", f); }',
        "#include <torch/csrc/utils/pybind.h>\n",
        "#include <torch/all.h>\n#include <torch/python.h>\n",
        "#include <torch/cuda.h>\nvoid f() { torch::cuda::synchronize(); }",
    ],
)
def test_kernels_and_their_launchers_have_light_builds(text: str) -> None:
    """Comments, strings and plain headers are not a reason for torch's own build."""
    assert reason_for(text) is None


@pytest.mark.parametrize(
    "text",
    ["struct F : torch::autograd::Function<F> {};", "void f() { torch::cuda::synchronize(); }"],
)
def test_what_torchs_types_do_not_declare_needs_another_header(text: str) -> None:
    """torch/types.h declares neither graphs nor torch::cuda, and torch's own build says so."""
    source = CandidateSource(path="/x/cuda.cu", text=f"#include <torch/types.h>\n{text}")

    assert unsupported_reason([source], frozenset()) is not None


def test_torch_builds_what_tests_a_macro_of_its_full_headers() -> None:
    """`#ifdef X` must not have another result because the light headers lack X."""
    assert reason_for("#ifdef AT_SOMETHING\n#endif\n", frozenset(["AT_SOMETHING"])) is not None
    assert reason_for("#ifdef MINE\n#endif\n", frozenset(["AT_SOMETHING"])) is None


@pytest.mark.parametrize(
    ("body", "table"),
    [
        ('m.def("f", torch::wrap_pybind_function(f), "f");', True),
        ('m.def("f", &f);\n  m.def("g", g, "with \\"words\\"");', True),
        ('m.def("f", &f, py::arg("x"));', False),
        ("m.doc() = 1;", False),
        ('m.def("f", [](int x) { return x; });', False),
    ],
)
def test_only_plain_lists_of_functions_go_through_the_table(body: str, table: bool) -> None:
    """pybind11 binds a module that does anything else."""
    text = LEAD + MODULE.format(body)

    assert table == can_bind_by_table(CandidateSource(path="/x/main.cpp", text=text))


@pytest.mark.parametrize(
    "flag",
    [
        "-fplugin=/tmp/x.so",
        "-wrapper=/bin/sh",
        "-B/tmp",
        "@/tmp/flags",
        "-I/etc",
        "-include/etc/passwd",
        "-specs=/tmp/s",
        "-O3 -fplugin=x",
        "-march=native;id",
        "-o/tmp/x",
    ],
)
def test_flags_with_side_effects_are_not_plain(flag: str) -> None:
    """Trusted code compiles only with flags that neither run, read nor write anything."""
    assert not FlagSet(cflags=(flag,)).is_plain()
    assert not FlagSet(cuda_cflags=(flag,)).is_plain()


def test_the_order_of_flags_matters_only_between_optimisation_levels() -> None:
    """A precompiled header serves every order of its flags, but no other optimisation level."""
    assert canonical(["-O3", "-Wall", "-march=native"]) == canonical(["-march=native", "-O3"])
    assert canonical(["-O3", "-O0"]) != canonical(["-O0", "-O3"])


def test_memory_limits_the_builds_at_once_to_one_or_more() -> None:
    """With many cores and little memory few builds run; one always may."""
    assert slots_for(cpus=64, free_gib=5.0) == 2
    assert slots_for(cpus=1, free_gib=0.1) == 1


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ('load_inline(name="a", extra_cflags=["-O3", "-fopenmp"])', ("-O3", "-fopenmp")),
        ("FLAGS = (\n    '-O2',\n)\nload(extra_cflags=FLAGS)", ("-O2",)),
        ("load_inline(name='a')", ()),
    ],
)
def test_flag_sets_are_read_off_a_text(text: str, flags: tuple[str, ...]) -> None:
    """The flags may be literals or in a variable; the text is not run to find them."""
    assert {FlagSet(cflags=flags)} == flag_sets_of(text, cuda=True)


def test_only_plain_literal_flags_are_read_off_a_text() -> None:
    """Flags with side effects and flags from a call are left out."""
    assert not flag_sets_of('load(extra_cflags=["-fplugin=x.so"])', cuda=True)
    assert {FlagSet()} == flag_sets_of("load(extra_cflags=flags())", cuda=True)


def test_cuda_headers_are_prepared_only_for_a_gpu() -> None:
    """A text with CUDA sources that is judged on a CPU needs no headers for nvcc."""
    text = 'load_inline(cuda_sources=SOURCE, extra_cuda_cflags=["-O3"])'

    assert {FlagSet(cuda_cflags=("-O3",), with_cuda=True)} == flag_sets_of(text, cuda=True)
    assert {FlagSet()} == flag_sets_of(text, cuda=False)


def test_thrust_alone_is_a_cuda_source_by_its_place() -> None:
    """A source that launches only thrust's kernels has none of its own."""
    text = 'load_inline("m", "at::Tensor f(at::Tensor x);", """#include <thrust/sort.h>\n""")'
    (found,) = flag_sets_of(text, cuda=True)

    assert found.with_cuda
    assert ("thrust/sort.h",) == found.cuda_headers


def test_own_macros_need_no_headers_of_their_own() -> None:
    """g++ itself rejects a precompiled header in which the macro's name occurs."""
    flags = ["-DSCALE=2", "-DNDEBUG", "-DTORCH_EXTENSION_NAME=m", "-O2"]

    assert ["-DNDEBUG", "-DTORCH_EXTENSION_NAME=m", "-O2"] == sorted(canonical(flags))
    text = 'load_inline(cpp_sources=S, extra_cflags=["-O2", "-DREAL=double"])'
    assert {FlagSet(cflags=("-O2",))} == flag_sets_of(text, cuda=False)


@pytest.mark.parametrize(
    ("code", "header"),
    [
        ("at::parallel_for(0, n, at::internal::GRAIN_SIZE, f);", "ATen/TensorIterator.h"),
        ("dim = at::maybe_wrap_dim(dim, x.dim());", "ATen/WrapDimUtils.h"),
        ('RECORD_FUNCTION("mine", {});', "ATen/record_function.h"),
        ("TORCH_CHECK_EQ(x.dim(), 2);", "c10/util/Logging.h"),
    ],
)
def test_names_of_torchs_umbrella_bring_their_headers(code: str, header: str) -> None:
    """The full umbrella header declares them, and candidates count on that."""
    index = OperatorIndex(
        methods={},
        operators={},
        functions=[],
        factories={},
        always_methods=[],
        always_functions=[],
        named_by_added={},
    )
    source = CandidateSource(path="/x/main.cpp", text=LEAD + code)

    assert f"#include <{header}>\n" in candidate_header(source, index)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("load_inline(cpp_sources=S, no_implicit_headers=True)", False),
        ('S = "#include <torch/extension.h>"\nload_inline(S, no_implicit_headers=True)', True),
        ("load_inline(cpp_sources=S)", True),
    ],
)
def test_a_build_without_torchs_headers_needs_no_toolkit(text: str, needs: bool) -> None:
    """Such a build takes two seconds with or without a toolkit; a toolkit takes half a minute."""
    assert needs == needs_headers(text)


@pytest.mark.parametrize(
    "code",
    [
        "template <int N> __device__ float of() { return N; }",
        "__global__ void of(const float* x) {}",
        "__global__ __launch_bounds__(256) void of(float* x) {}",
        "static __device__ __forceinline__ float of(float x) { return x; }",
        "__global__ void k(const float* __restrict__ of, int n) {}",
        "__shared__ float of[32];",
        "std::vector<int64_t> of(torch::Tensor x);",
    ],
)
def test_a_candidates_own_names_are_its_own_in_device_code_too(code: str) -> None:
    """torch has a name `of`, too: an error beside a kernel was left to torch for two minutes."""
    assert "of" in names_declared_by(code)


@pytest.mark.parametrize("code", ["return of(x);", "auto y = x.of(1);", "y = a > b ? of(c) : d;"])
def test_a_name_that_is_only_used_is_not_the_candidates_own(code: str) -> None:
    """It may be declared by torch's full headers alone."""
    assert "of" not in names_declared_by(code)
