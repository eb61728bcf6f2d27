"""Laws of what cudafe++ writes into a preamble for the extended lambdas of a source."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.nvcc.nvcc_preamble import LAMBDAS, lambda_wrappers

NONE = f"""int runtime;
{LAMBDAS}template <typename Tag,typename...Captured>
struct __nv_dl_wrapper_t {{
static_assert(sizeof...(Captured) == 0, "unexpected number of captures!");
}};
template <typename Tag>
struct __nv_dl_wrapper_t<Tag> {{
__nv_dl_wrapper_t(Tag) {{ }}
}};
template <typename U, U func>
struct __nv_dl_wrapper_t<tag<U, func> > {{
}};\x20

template <typename Tag>
typedef int last;
# 124 "/x/cuda_runtime.h"
int after;
"""
ONE_CAPTURE = """template <typename Tag, typename F1>
struct __nv_dl_wrapper_t<Tag, F1> {
int operator()() { return 0; }
};
"""
HOST_TOO = """template <bool NeverThrows, typename F1>
struct __nv_hdl_wrapper_t<false, NeverThrows, F1>
{
 template <typename Lambda>
 struct manager {
  };
};
"""


def with_wrappers(*wrappers: str) -> str:
    """Return cudafe++'s output for a source whose lambdas need `wrappers`."""
    added = "\n\n" + "\n".join(wrappers)
    return NONE.replace("};\x20\n", f"}};\x20\n{added}").replace("int after;", "int other;")


def test_wrappers_of_a_source_follow_the_preamble_of_another_one() -> None:
    """g++ said "unexpected number of captures", and both halves were parsed again, twice."""
    expected = f"{LAMBDAS}{ONE_CAPTURE}{HOST_TOO}"
    assert expected == lambda_wrappers(NONE, with_wrappers(ONE_CAPTURE, HOST_TOO))
    given = with_wrappers(ONE_CAPTURE)
    assert f"{LAMBDAS}{HOST_TOO}" == lambda_wrappers(given, with_wrappers(ONE_CAPTURE, HOST_TOO))


def test_nothing_is_added_where_the_preamble_has_it() -> None:
    """The same captures, fewer ones, or a flag set without extended lambdas."""
    both = with_wrappers(ONE_CAPTURE, HOST_TOO)
    assert lambda_wrappers(both, both) == ""
    assert lambda_wrappers(both, NONE) == ""
    assert lambda_wrappers("int runtime;\n", "int runtime;\n") == ""


def test_another_difference_is_not_understood() -> None:
    """An nvcc that writes something else there: the whole text is parsed."""
    assert lambda_wrappers(NONE, NONE.replace("typedef int last", "typedef long last")) is None
    assert lambda_wrappers("int runtime;\n", NONE) is None


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="cudafe++ is nvcc's")
def test_this_nvcc_writes_wrappers_in_the_form_that_is_understood(tmp_path: Path) -> None:
    """For no lambda, and for lambdas of the device and of both with 0 to 3 variables."""
    source = """template <class F> __global__ void k(F f) { f(0); }
    void g(float* x, float a, int b) {
      %s
    }"""
    lambdas = """k<<<1, 1>>>([=] __device__(int i) { x[i] = 1; });
      k<<<1, 1>>>([=] __device__(int i) -> float { return x[i] = a; });
      k<<<1, 1>>>([=] __host__ __device__(int i) { x[i] = a + b; });"""
    written = []
    for name, text in (("none", ""), ("some", lambdas)):
        (tmp_path / f"{name}.cu").write_text(source % text)
        command = ["nvcc", "--extended-lambda", "-c", f"{name}.cu", "--keep", "-o", f"{name}.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        written.append((tmp_path / f"{name}.cudafe1.cpp").read_text())
    added = lambda_wrappers(*written)
    assert added is not None
    # Each number of captures, here 1 and 2, has two specialisations; with a host part, four.
    assert (4, 4) == (added.count("struct __nv_dl_wrapper_t<"), added.count("__nv_hdl_wrapper_t<"))
