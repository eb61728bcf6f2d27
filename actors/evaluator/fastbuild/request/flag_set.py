"""Flags that many candidates share, so that headers can be precompiled for them.

A flag set is data that may come from a candidate.  Trusted code compiles with plain flags only:
flags that neither run, read nor write anything.
"""

from __future__ import annotations

import re

from actors.evaluator.fastbuild.request.added_headers import PYBIND, are_plain
from protocol.values import Value

# In the environment: flags that the judge adds to a candidate's own, for compiler and linker.
ADDED_FLAGS_VARIABLE = "STARK_ADDED_CXX_FLAGS"
_PLAIN = re.compile(
    r"-O[0-3s]?|-Ofast|-g[0-3]?|-pthread|-DNDEBUG|-std=(c|gnu)\+\+(17|20|23)"
    r"|-m(arch|tune)=[a-z0-9-]+|-m(avx|avx2|fma|f16c|sse4\.[12]|bmi2?|avx512[a-z]+)"
    r"|-f(no-)?(fast-math|openmp|unroll-loops|tree-vectorize|math-errno|finite-math-only"
    r"|strict-aliasing|associative-math|trapping-math|signed-zeros|omit-frame-pointer|lto|PIC)"
)
_PASSED_ON = rf"(?:{_PLAIN.pattern}|-w|-W(?:all|extra|no-[a-z-]+))"  # by nvcc to g++
_NUMBER = r"\d{2,3}[af]?"
_CODES = rf"arch=compute_{_NUMBER},code=(?:\\?\[)?(?:(?:sm|compute|lto)_{_NUMBER},?)+(?:\\?\])?"
_PLAIN_DEVICE = re.compile(
    r"-O[0-3]|--?use_fast_math|-?-extra-device-vectorization|--?expt-relaxed-constexpr"
    r"|--?expt-extended-lambda|--?extended-lambda|-lineinfo|--generate-line-info"
    r"|-std=c\+\+(17|20)|-U__CUDA_NO_[A-Z0-9_]+__|--?ftz=(true|false)|--?fmad=(true|false)"
    r"|--?prec-(div|sqrt)=(true|false)|--?maxrregcount=\d+|-DNDEBUG"
    rf"|(?:-arch|--gpu-architecture)=(?:sm|compute)_{_NUMBER}"
    rf"|--?(?:gencode|generate-code)={_CODES}"
    r"|(?:-Xptxas=?|--ptxas-options=)(?:-v|-O[0-3]|-dlcm=c[ag]|-dscm=c[agst]|-warn-spills|,)+"
    rf"|(?:-Xcompiler|--compiler-options)=?{_PASSED_ON}(?:,{_PASSED_ON})*"
    r"|--?(?:verbose-ptxas|m64)"
    r"|--?(?:diag-suppress|threads|split-compile)[= ]?=?[\d,]+|--?allow-unsupported-compiler"
    r"|-res-usage|--resource-usage|--?default-stream[= ](?:legacy|per-thread|null)"
)
# Flags of nvcc that may have their value in the next argument.
_WITH_VALUE = frozenset(
    [
        *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-Xptxas"),
        *(
            "-Xcompiler",
            "--compiler-options",
            "--ptxas-options",
            "-maxrregcount",
            "-std",
            "--default-stream",
        ),
    ]
)
# Flags that mean the same at any position, so that one order can stand for all.
_ORDER_FREE = re.compile(
    r"-O[0-3]|-march=native|-mtune=native|-f(fast-math|openmp|unroll-loops|PIC)|-DNDEBUG|-g|-pthread"
)
_WARNING = re.compile(r"-w|-W(?!p,|l,|a,)[a-z0-9=+-]*|-pedantic|-fdiagnostics-[a-z=-]+")
_LEVEL = re.compile(r"-O[0-3]")
# A macro of the candidate's own: g++ itself rejects a precompiled header in which its name occurs.
_OWN_MACRO = re.compile(
    r"-D(?!NDEBUG\b|TORCH|PYBIND11|STARK|CUDA|THRUST|CUB|AT_|C10|CAFFE2)[A-Za-z].*"
)


class FlagSet(Value, frozen=True, kw_only=True):
    """The flags that a candidate added to torch's."""

    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    with_cuda: bool = False
    # What the sources need beyond tensors (`added_headers`): the C++ ones and the CUDA ones.
    cpp_headers: tuple[str, ...] = ()
    cuda_headers: tuple[str, ...] = ()

    def is_plain(self) -> bool:
        """Whether trusted code may compile with these flags and headers."""
        return (
            all(_PLAIN.fullmatch(flag) for flag in self.cflags)
            and all(_PLAIN_DEVICE.fullmatch(flag) for flag in _joined(self.cuda_cflags))
            and are_plain((*self.cpp_headers, *self.cuda_headers))
        )


def _joined(flags: tuple[str, ...]) -> list[str]:
    """Return nvcc's `flags` with each value that is an argument of its own joined to its flag."""
    joined: list[str] = []
    for flag in flags:
        if joined and joined[-1] in _WITH_VALUE:
            joined[-1] = f"{joined[-1]}={flag}"
        else:
            joined.append(flag)
    return joined


def stripped(flags: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return `flags` as torch passes them on: without blanks around them and without empty ones."""
    return tuple(flag.strip() for flag in flags if flag.strip())


def without_own_macros(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return `flags` without those that define a macro which no header of torch names."""
    return tuple(flag for flag in flags if not _OWN_MACRO.fullmatch(flag))


def canonical(flags: list[str]) -> list[str]:
    """Return `flags` without warnings and own macros, the order-free ones last, in one order.

    The last of several optimisation levels counts, so flags with more than one level keep their
    order.
    """
    flags = [flag for flag in without_own_macros(tuple(flags)) if not _WARNING.fullmatch(flag)]
    if sum(1 for flag in flags if _LEVEL.fullmatch(flag)) > 1:
        return flags
    order_free = {flag for flag in flags if _ORDER_FREE.fullmatch(flag)}
    return [flag for flag in flags if flag not in order_free] + sorted(order_free)


COMMON_CPU_FLAG_SETS = (
    FlagSet(),
    FlagSet(cpp_headers=(PYBIND,)),
    FlagSet(cflags=("-O3",)),
    FlagSet(cflags=("-O2",)),
    FlagSet(cflags=("-O3", "-march=native")),
    FlagSet(cflags=("-O3", "-march=native", "-fopenmp")),
    FlagSet(cflags=("-O3", "-march=native", "-ffast-math")),
    FlagSet(cflags=("-O3", "-march=native", "-ffast-math", "-fopenmp")),
)
COMMON_CUDA_FLAG_SETS = (
    FlagSet(with_cuda=True),
    FlagSet(with_cuda=True, cuda_cflags=("-O3",)),
    FlagSet(with_cuda=True, cflags=("-O3",), cuda_cflags=("-O3",)),
    FlagSet(with_cuda=True, cflags=("-O2",), cuda_cflags=("-O2",)),
    FlagSet(with_cuda=True, cuda_cflags=("-O3", "--use_fast_math")),
    FlagSet(with_cuda=True, cflags=("-O3",), cuda_cflags=("-O3", "--use_fast_math")),
)
