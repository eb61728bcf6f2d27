"""Laws of the types that the prebuilt binding converts, and of errors in a module that uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.fastbuild.binding_errors import is_of_binding, without_binding
from actors.evaluator.fastbuild.cxx_compile import compile_cxx
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.request.added_headers import AUTOGRAD, PYBIND
from actors.evaluator.fastbuild.request.bound_types import has_unknown_types
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand
from actors.evaluator.fastbuild.request.compiler_process import Deadline
from actors.evaluator.fastbuild.request.source_requirements import flag_sets_of
from actors.evaluator.fastbuild.unsupported import can_bind_by_table

MODULE = (
    '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\nm.def("f", torch::wrap_pybind_function(f));\n}'
)
KNOWN = [
    "at::Tensor f(const at::Tensor& x, int64_t n, double eps = 1e-5);",
    "std::vector<torch::Tensor> f(torch::Tensor, torch::Tensor) {",
    "std::tuple<torch::Tensor, torch::Tensor> f(const c10::optional<at::Tensor>& b) {",
    "void f(unsigned long n, unsigned k, long long j, size_t z);",
    "torch::Tensor f(\n  torch::Tensor &x, // the first\n  at::IntArrayRef sizes)\n{",
    "my_tensor f(my_tensor x);",  # an alias may be of any type
    "auto y = f(x); return f(std::map<int, int>(x));",  # calls
    "torch::Tensor g(const std::map<int, int>& x); void k(float* f);",
    "template <typename T>\n__global__ void f(const T* x, T* y) {",  # a dispatch names its kernel
    'extern "C" __global__ void f(const float* x) {',
]
UNKNOWN = [
    "torch::Tensor f(torch::Tensor x, const std::map<std::string, double>& p);",
    "std::tuple<at::Tensor, int64_t> f(at::Tensor x) {",
    "at::Tensor f(const char* s);",
    "at::Tensor f(at::Tensor x, std::vector<std::vector<int64_t>> shapes) {",
    "int64_t f(uint8_t x);",
    "at::Tensor f(at::Scalar alpha);",
    "at::Tensor f(const std::vector<std::string>& a = {});",
]
NOT_DECLARED = """/x/main.cpp: In function ‘void stark_fill_x(stark::Table&)’:
/x/main.cpp:5:46: error: ‘forward’ was not declared in this scope; did you mean ‘std::forward’?
    5 | m.def("forward", torch::wrap_pybind_function(forward), "forward");
"""
NO_KIND = """/t/light/stark/table.h: In instantiation of ‘struct stark::Caller<at::Tensor, Odd>’:
/t/light/stark/table.h:54:56: error: incomplete type ‘stark::KindOf<Odd>’ used in nested name
"""
OVERLOADED = """/x/main.cpp:6:39: error: no matching function for call to \
‘wrap_pybind_function(<unresolved overloaded function type>)’
"""
UNDEFINED = """/x/cuda.cu(7): error: identifier "forward" is undefined
  m.def("forward", &forward, "the forward pass");
                    ^

"""
FOLLOWING = """/x/cuda.cu(7): error: no instance of overloaded function "stark::Table::def" matches
            object type is: stark::Table

"""


@pytest.mark.parametrize("text", KNOWN)
def test_the_table_is_tried_where_no_type_is_known_to_be_missing(text: str) -> None:
    """The binding converts these, or the text does not show that it does not."""
    code = CandidateSource(path="/x/main.cpp", text=text).code

    assert not has_unknown_types(code, frozenset(["f"]))


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_type_that_the_table_lacks_is_seen_before_a_compiler_runs(text: str) -> None:
    """pybind11 binds the module at once, and its header is prepared for such a candidate."""
    source = CandidateSource(path="/x/main.cpp", text=text + "{}" * text.endswith("{") + MODULE)
    python = f"load_inline(cpp_sources={text!r}, functions=['f'])"

    assert not can_bind_by_table(source)
    assert [(PYBIND,)] == [each.cpp_headers for each in flag_sets_of(python, cuda=False)]


def test_one_precompiled_header_serves_all_sources_of_an_extension(
    toolkit: Toolkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without graphs beside one with them had a header that nothing had prepared."""
    asked: list[tuple[list[str], str]] = []
    monkeypatch.setattr(
        toolkit.precompiled, "find", lambda _, flags, text: asked.append((flags, text))
    )
    command = CompileCommand(source="", output="x.o", command="", compiler="true", flags=())
    for text in ("at::Tensor x;", "struct F : torch::autograd::Function<F> {};"):
        path = str(tmp_path / "x.cpp")
        source = CandidateSource(path=path, text=f"#include <torch/extension.h>\n{text}")
        compile_cxx(toolkit, command, source, "table", (AUTOGRAD,), tmp_path, Deadline(60.0))

    assert asked[0] == asked[1]


def test_texts_in_plain_quotes_may_be_of_the_host_or_of_the_device() -> None:
    """A file that is written line by line is as good as one in three quotes."""
    code = "'__global__ void k(); struct F : torch::autograd::Function<F> {};'"
    (found,) = flag_sets_of(f"(f / 'a.cpp').write_text({code})\nload(sources=s)", cuda=False)

    assert (AUTOGRAD,) == found.cpp_headers


def test_functions_that_no_module_lists_may_have_any_type() -> None:
    """A launcher takes pointers; only what Python calls needs a conversion."""
    text = "void launch(const float* x); torch::Tensor f(torch::Tensor x);"

    assert can_bind_by_table(CandidateSource(path="/x/main.cpp", text=text + MODULE))


@pytest.mark.parametrize("output", [NO_KIND, OVERLOADED, NO_KIND + NOT_DECLARED, FOLLOWING])
def test_pybind11_binds_what_the_binding_refuses(output: str) -> None:
    """A type without a kind, and a function with overloads, are errors of the binding first."""
    assert is_of_binding(output)


@pytest.mark.parametrize("output", [NOT_DECLARED, UNDEFINED + FOLLOWING, "", "ld: no such file\n"])
def test_a_missing_function_is_the_candidates_error(output: str) -> None:
    """It is not compiled once more with pybind11, though the compiler names the table."""
    assert not is_of_binding(output)


def test_an_error_text_does_not_name_the_binding() -> None:
    """The text is the one of torch's own build; what follows from the first error is left out."""
    assert "In function ‘void pybind11_init_x(pybind11::module_&)’" in without_binding(NOT_DECLARED)

    end = '2 errors detected in the compilation of "/x/cuda.cu".\n'
    shown = without_binding(UNDEFINED + FOLLOWING + end)

    assert shown == UNDEFINED + end.replace("2 errors", "1 error")
