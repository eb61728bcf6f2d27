"""Laws of the way that a build goes: what torch builds from the start, which flags are plain."""

from __future__ import annotations

import pytest

from actors.evaluator.fastbuild import source_requirements
from actors.evaluator.fastbuild.build_slots import slots_for
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.flag_set import FlagSet, canonical
from actors.evaluator.fastbuild.unsupported import can_bind_by_table, unsupported_reason

LEAD = "#include <torch/extension.h>\n"
MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{}\n}}\n"


def why(text: str, hidden: frozenset[str] = frozenset()) -> str | None:
    return unsupported_reason([CandidateSource(path="/x/main.cpp", text=LEAD + text)], [], hidden)


@pytest.mark.parametrize(
    "text",
    [
        "auto y = torch::nn::functional::gelu(x);",
        "torch :: optim :: SGD o;",
        "struct F : torch::autograd::Function<F> {};",
        'TORCH_LIBRARY(mine, m) { m.def("f", f); }',
        '#include "kernel.h"\n',
        '#include "../secret.h"\n',
        "#include <torch/library.h>\n",
    ],
)
def test_whatever_needs_more_than_tensors_is_torchs(text: str) -> None:
    """Modules, graphs, registered operators and local files are built by torch itself."""
    assert why(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "auto y = x.softmax(1); // torch::nn would do too",
        'TORCH_CHECK(x.dim() == 2, "torch::nn needs two");',
        "#include <ATen/cuda/CUDAContext.h>\n#include <cub/cub.cuh>\n",
        "torch::NoGradGuard guard; using torch::indexing::Slice;",
    ],
)
def test_kernels_and_their_launchers_are_ours(text: str) -> None:
    """Comments, strings and plain headers send nobody to torch's own build."""
    assert why(text) is None


def test_a_condition_on_a_macro_that_is_not_there_is_torchs() -> None:
    """`#ifdef X` must not silently mean something else with fewer headers."""
    assert why("#ifdef AT_SOMETHING\n#endif\n", frozenset(["AT_SOMETHING"])) is not None
    assert why("#ifdef MINE\n#endif\n", frozenset(["AT_SOMETHING"])) is None


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
    """Whatever else a module does is pybind11's."""
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
def test_nothing_is_prepared_for_flags_that_could_do_something(flag: str) -> None:
    """Trusted code compiles only with flags that neither run, read nor write anything."""
    assert not FlagSet(cflags=(flag,)).is_plain()
    assert not FlagSet(cuda_cflags=(flag,)).is_plain()


def test_the_order_of_free_flags_does_not_matter_and_that_of_levels_does() -> None:
    """One precompiled header serves every order, but never another optimisation level."""
    assert canonical(["-O3", "-Wall", "-march=native"]) == canonical(["-march=native", "-O3"])
    assert canonical(["-O3", "-O0"]) != canonical(["-O0", "-O3"])


def test_builds_at_once_are_bound_by_memory_and_never_none() -> None:
    """Many cores and little memory: few builds."""
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
def test_headers_are_made_for_the_flags_that_a_text_names(
    text: str, flags: tuple[str, ...]
) -> None:
    """Written out or under a name; nobody runs the text to find out."""
    assert {FlagSet(cflags=flags)} == source_requirements.flag_sets(text, cuda=True)


def test_flags_that_could_do_something_are_not_asked_for() -> None:
    """What is not plain, and what is no list of words, prepares nothing."""
    assert not source_requirements.flag_sets('load(extra_cflags=["-fplugin=x.so"])', cuda=True)
    assert {FlagSet()} == source_requirements.flag_sets("load(extra_cflags=flags())", cuda=True)


def test_cuda_is_prepared_for_only_with_a_card() -> None:
    """A text with CUDA sources, judged on a CPU, costs no headers for nvcc."""
    text = 'load_inline(cuda_sources=SOURCE, extra_cuda_cflags=["-O3"])'

    assert {FlagSet(cuda_cflags=("-O3",), with_cuda=True)} == source_requirements.flag_sets(
        text, cuda=True
    )
    assert {FlagSet()} == source_requirements.flag_sets(text, cuda=False)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("load_inline(cpp_sources=S, no_implicit_headers=True)", False),
        ('S = "#include <torch/extension.h>"\nload_inline(S, no_implicit_headers=True)', True),
        ("load_inline(cpp_sources=S)", True),
    ],
)
def test_without_torchs_headers_nothing_is_prepared(text: str, needs: bool) -> None:
    """Such a build takes two seconds either way, a toolkit half a minute."""
    assert needs == source_requirements.needs_headers(text)
