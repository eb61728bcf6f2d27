"""Laws of error attribution, with the texts of g++ 12, GNU ld and nvcc 13."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.fastbuild.error_attribution import CompilerFailure, reason_to_doubt
from actors.evaluator.fastbuild.headers.toolkit import NAMES_FILE, Toolkit, headers_of_torch
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compiler_process import Deadline

SOURCE = """#include <torch/extension.h>
struct Less { __host__ __device__ bool operator()(const float& a) const { return a < 0; } };
int shared_name(int v) { return v; }
void f(at::Tensor x) {
  thrust::sort(thrust::device, p, p + 4, Less());
  auto w = copied(v);
}
"""
COPIED = """In file included from /usr/include/c++/12/vector:63,
                 from /x/main.cu:1:
/usr/include/c++/12/bits/stl_uninitialized.h: In instantiation of ‘constexpr bool std::__check()’:
/usr/include/c++/12/bits/stl_vector.h:601:31:   required from ‘std::vector<_Tp, _Alloc>::vector()’
/x/main.cu:6:12:   required from here
{file}:90:56: error: static assertion failed: result type must be constructible{rest}
   90 |       static_assert(is_constructible<_ValueType, _Tp>::value,
"""
SORTED = """/cuda/include/cccl/cub/block/merge_sort.cuh(384): error: function "Less::operator()" \
cannot be called with the given argument list
            argument types are: ({type}, {type})
            max_key = compare_op(max_key, keys[item]) ? keys[item] : max_key;
                      ^
/x/main.cu(2): note #3322-D: number of parameters of function "Less::operator()" does not match
          detected during:
            instantiation of "void cub::Sort(KeyT (&)[ITEMS])" at line 321
            instantiation of "void cub::Sort(KeyT (&)[ITEMS])" at line 222 of /cuda/agent.cuh
            instantiation of "void thrust::sort()" at line {line} of {file}

1 error detected in the compilation of "/x/main.cu".
"""
TWICE = """/usr/bin/ld: /x/b.o: in function `shared_name(int)':
b.cpp:(.text+0x0): multiple definition of `{name}'; /x/a.o:a.cpp:(.text+0x0): first defined here
collect2: error: ld returned 1 exit status
"""
UNKNOWN_LIBRARY = """/usr/bin/ld: cannot find -lnotthere: No such file or directory
collect2: error: ld returned 1 exit status
"""


COUNTED = """{file}: In instantiation of ‘void pybind11::cpp_function::initialize(Func&&) \
[with Return = at::Tensor]’:
/x/main.cu:6:31:   required from here
{file}:396:40: error: static assertion failed: The number of argument annotations does not match
  396 |             expected_num_args<Extra...>(
"""
COUNTED_EDG = """{file}(395): error: static assertion failed with "The number of argument \
annotations does not match the number of function arguments"
          static_assert(
          ^
          detected during:
            instantiation of "void pybind11::cpp_function::initialize(Func &&) \
[with Return=at::Tensor]" at line 266
            instantiation of "pybind11::module_ &pybind11::module_::def(at::Tensor)" at line 6 of \
/x/main.cu

1 error detected in the compilation of "/x/main.cu".
"""


@pytest.fixture
def toolkit(tmp_path: Path) -> Toolkit:
    (tmp_path / NAMES_FILE).write_text(
        "Tensor sort copied only_in_torch scalar_t AT_DISPATCH_FLOATING_TYPES"
    )
    return Toolkit(tmp_path)


def doubt(
    toolkit: Toolkit, phase: str, output: str, *declared: str, text: str = SOURCE
) -> str | None:
    failure = CompilerFailure(
        phase=phase,
        output=output,
        source=CandidateSource(path=str(toolkit.folder / "main.cu"), text=text),
        argv=("false",),  # lists no names
        declared=frozenset(declared),
    )
    return reason_to_doubt(failure, toolkit, Deadline(20.0))


@pytest.mark.parametrize(
    ("phase", "output"),
    [
        ("g++", "c++: error: unrecognized command-line option ‘-fno-such’; did you mean ‘-f’?\n"),
        ("g++", "cc1plus: error: bad value ‘zen9’ for ‘-march=’ switch\n"),
        ("nvcc", "nvcc fatal   : Unsupported gpu architecture 'sm_42'\n"),
        ("nvcc", "nvcc fatal   : Unknown option '--no-such'\n"),
        ("nvcc", "nvcc fatal   : Value 'c++99' is not defined for option 'std'\n"),
        ("nvcc", "nvcc fatal   : argument expected after '-maxrregcount'\n"),
        ("nvcc", "nvcc fatal   : no argument expected after '--use_fast_math'\n"),
        ("nvcc", "nvcc fatal   : 'x': expected a number\n"),
        ("nvcc", "nvcc fatal   : 'maybe': expected true or false\n"),
        ("nvcc", "nvcc fatal   : 'sm_90' is not in 'keyword=value' format\n"),
        ("nvcc", "nvcc fatal   : Option '--generate-code code=sm_90', missing architecture\n"),
        ("link", UNKNOWN_LIBRARY),
        ("link", TWICE.format(name="shared_name(int)")),
        ("link", TWICE.format(name="PyInit_extension")),
        ("link", TWICE.format(name="mine::S<int>::shared_name(int)")),
        ("ptxas", "ptxas error   : Entry function 'k' uses too much shared data (0x445c0 bytes)\n"),
        ("ptxas 2", "ptxas /x/cuda.ptx, line 33; error   : Not a name of any known instruction\n"),
        ("ptxas", "ptxas fatal   : Unresolved extern function '_Z9elsewheref'\n"),
    ],
)
def test_what_has_nothing_to_do_with_headers_is_the_candidates(
    phase: str, output: str, toolkit: Toolkit
) -> None:
    """torch's own build would say the same, after half a minute."""
    assert doubt(toolkit, phase, output) is None


@pytest.mark.parametrize(
    ("phase", "output"),
    [
        ("nvcc", "nvcc fatal   : Unknown option '--split-compile=0'\n"),
        ("nvcc", "nvcc fatal   : Memory allocation failure\n"),
        ("nvcc", "nvcc fatal   : Could not open output file '/tmp/x.ii'\n"),
        ("nvcc", "nvcc fatal   : Failed to preprocess host compiler properties.\n"),
        ("link", TWICE.format(name="only_in_torch(int)")),
        ("link", "/usr/bin/ld: a.o: in function `f':\na.cpp: undefined reference to `g()'\n"),
        ("link", "collect2: fatal error: ld terminated with signal 9 [Killed]\n"),
        ("ptxas", ""),
        ("ptxas", "ptxas fatal   : Memory allocation failure\n"),
        ("g++", "c++: fatal error: Killed signal terminated program cc1plus\n"),
    ],
)
def test_torch_builds_where_the_failure_may_be_of_this_build(
    phase: str, output: str, toolkit: Toolkit
) -> None:
    """An option of ours, a missing definition, a compiler that was killed or found no room."""
    assert doubt(toolkit, phase, output) is not None


def test_an_error_in_a_library_is_of_the_line_that_uses_it(toolkit: Toolkit) -> None:
    """The standard library and CUDA's are the same in both builds."""
    copied = COPIED.format(file="/usr/include/c++/12/bits/stl_uninitialized.h", rest="")
    sorted_ = SORTED.format(type="float", line=5, file="/x/main.cu")
    quoted = SORTED.format(type="float", line=5, file='"/x/main.cu"')

    assert doubt(toolkit, "g++", copied, "Tensor", "sort", "copied") is None
    assert doubt(toolkit, "cudafe++", sorted_, "Tensor", "sort") is None
    assert doubt(toolkit, "cudafe++", quoted, "Tensor", "sort") is None


def test_torch_builds_where_its_own_types_meet_a_library(toolkit: Toolkit) -> None:
    """The light headers may lack an operator, a specialisation or a name."""
    library = "/usr/include/c++/12/bits/stl_uninitialized.h"
    copied = COPIED.format(file=library, rest=" from ‘at::Tensor’")
    of_torch = COPIED.format(file=headers_of_torch() / "c10/util/Optional.h", rest="")
    light = COPIED.format(file=toolkit.folder / "light/stark/common.h", rest="")
    names = ("Tensor", "sort", "copied")

    assert doubt(toolkit, "g++", copied, *names) is not None
    assert doubt(toolkit, "g++", of_torch, *names) is not None
    assert doubt(toolkit, "g++", light, *names) is not None
    assert doubt(toolkit, "g++", COPIED.format(file=library, rest=""), "Tensor") is not None
    half = SORTED.format(type="c10::Half", line=5, file="/x/main.cu")
    assert doubt(toolkit, "cudafe++", half, *names) is not None
    elsewhere = SORTED.format(type="float", line=5, file="/x/other.cu")
    assert doubt(toolkit, "cudafe++", elsewhere, *names) is not None


def test_a_dispatch_declares_the_type_of_elements(toolkit: Toolkit) -> None:
    """The macro itself must have been there: without it, no type was declared."""
    text = (
        "void f(int x) {\n"
        '  AT_DISPATCH_FLOATING_TYPES(x, "f", [&] {\n'
        "    auto p = g<scalar_t>(x);\n\n\n\n"
        "    scalar_t q = undefined_thing;\n"
        "  });\n"
        "}\n"
    )
    output = "/x/main.cu:7:18: error: ‘undefined_thing’ was not declared in this scope\n"
    macro = "AT_DISPATCH_FLOATING_TYPES"

    assert doubt(toolkit, "g++", output, macro, text=text) is None
    assert doubt(toolkit, "g++", output, text=text) is not None


@pytest.mark.parametrize("text", [COUNTED, COUNTED_EDG])
def test_wrong_arguments_of_a_module_are_the_candidates(toolkit: Toolkit, text: str) -> None:
    """pybind11 counts them; torch's own build would parse all headers for the same answer."""
    include = headers_of_torch() / "pybind11"
    names = ("Tensor", "sort", "copied")

    assert doubt(toolkit, "cudafe++", text.format(file=include / "pybind11.h"), *names) is None
    assert doubt(toolkit, "cudafe++", text.format(file=include / "cast.h"), *names) is not None
    assert doubt(toolkit, "cudafe++", text.format(file=include / "pybind11.h")) is not None


@pytest.mark.parametrize("text", [COUNTED, COUNTED_EDG])
def test_a_type_that_no_operator_may_have_is_the_candidates_error(
    toolkit: Toolkit, text: str
) -> None:
    """An `int` or `float` parameter of an operator: torch built for a minute to say the same."""
    core = headers_of_torch() / "ATen/core"
    conditions = ("op_registration/infer_schema.h", "boxing/impl/make_boxed_from_unboxed_functor.h")
    for name in conditions:
        said = text.format(file=core / name)
        assert doubt(toolkit, "cicc", said, "Tensor", "sort", "copied") is None
        assert doubt(toolkit, "cicc", said) is not None
    said = text.format(file=core / "ivalue.h")
    assert doubt(toolkit, "cicc", said, "Tensor", "sort", "copied") is not None


@pytest.mark.parametrize(
    "said",
    [
        ':2:8: error: static assertion failed: only_in_torch is one of "Tensor"',
        '(2): error: static assertion failed with "Tensor or only_in_torch"',
        ':2:8: error: #error "only_in_torch"',
        '(2): error: #error directive: "only_in_torch"',
    ],
)
def test_words_of_an_author_are_no_names(toolkit: Toolkit, said: str) -> None:
    """A message that has one of torch's names does not depend on torch's headers."""
    assert doubt(toolkit, "cudafe++", f"/x/main.cu{said}\n", text="int a;\nint b;\n") is None


def test_strings_in_the_line_that_a_front_end_repeats_are_no_names(toolkit: Toolkit) -> None:
    """`TORCH_CHECK(n > 0, "sort …")` beside a misspelled name: torch built for a minute."""
    text = 'int n;\n  __global__ void k() { check(nn > 0, "only_in_torch"); }\n'
    output = (
        '/x/main.cu(2): error: identifier "nn" is undefined\n'
        '    __attribute__((global)) void k() { check(nn > 0, "only_in_torch"); }\n'
        "                                             ^\n"
        '          detected during instantiation of "void k()" at line 3\n\n'
    )

    assert doubt(toolkit, "cudafe++", output, text=text) is None
    assert doubt(toolkit, "cudafe++", output, text="int n;\nonly_in_torch(nn);\n") is not None
    unquoted = output.replace('"nn"', '"only_in_torch"')
    assert doubt(toolkit, "cudafe++", unquoted, text=text) is not None


@pytest.mark.parametrize(
    "error",
    [
        '(4): error: identifier "{}" is undefined',
        '(4): error: class "at::Tensor" has no member "{}"',
        ":4:3: error: ‘{}’ was not declared in this scope",
        ":4:3: error: ‘class at::Tensor’ has no member named ‘{}’",
    ],
)
@pytest.mark.parametrize(
    ("line", "unknown", "is_in_doubt"),
    [
        ("int copied[2] = {1, 2}; sort = x.nothing;", "nothing", False),
        ("int own = only_in_torch;", "only_in_torch", True),
        ("sort(nothing, int)", "nothing", True),
        ("AT_DISPATCH_FLOATING_TYPES nothing", "nothing", True),
    ],
)
def test_of_an_unknown_name_only_itself_and_macros_decide(
    toolkit: Toolkit, error: str, line: str, unknown: str, *, is_in_doubt: bool
) -> None:
    """A candidate's variable that torch has, too, in the same lines: torch built for a minute."""
    text = f"#include <torch/extension.h>\n\n\n{line}\n"
    output = f"{toolkit.folder}/main.cu{error.format(unknown)}\n"
    declared = ("at", "class", "Tensor")
    is_doubted = doubt(toolkit, "cudafe++", output, *declared, text=text) is not None
    assert is_in_doubt == is_doubted


def test_all_names_of_a_declaration_are_the_candidates(toolkit: Toolkit) -> None:
    """`rows` is in torch's headers, and the first name of the declaration was another one."""
    text = "#include <torch/extension.h>\nint cols = 4, copied = 8;\nauto y = copied + ;\n"
    output = f"{toolkit.folder}/main.cu(3): error: expected an expression\n"
    assert doubt(toolkit, "cudafe++", output, text=text) is None
