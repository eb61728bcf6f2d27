"""Flags that many candidates share, so that headers can be precompiled for them.

A family is data that may come from a candidate: only plain flags are ever prepared for, those that
neither run, read nor write anything.
"""

from __future__ import annotations

import re

from protocol.values import Value

# Of the environment, what torch's command lines depend on besides what is written in them.
BUILD_VARIABLES = ("TORCH_CUDA_ARCH_LIST", "CXX", "CC", "PYTORCH_NVCC", "CUDA_HOME", "CPATH")

_PLAIN = re.compile(
    r"-O[0-3s]?|-Ofast|-g[0-3]?|-pthread|-DNDEBUG|-std=(c|gnu)\+\+(17|20|23)"
    r"|-m(arch|tune)=[a-z0-9-]+|-m(avx|avx2|fma|f16c|sse4\.[12]|bmi2?|avx512[a-z]+)"
    r"|-f(no-)?(fast-math|openmp|unroll-loops|tree-vectorize|math-errno|finite-math-only"
    r"|strict-aliasing|associative-math|trapping-math|signed-zeros|omit-frame-pointer|lto|PIC)"
)
_PLAIN_DEVICE = re.compile(
    r"-O[0-3]|--?use_fast_math|-?-extra-device-vectorization|--?expt-relaxed-constexpr"
    r"|--?expt-extended-lambda|--?extended-lambda|-lineinfo|--generate-line-info"
    r"|-std=c\+\+(17|20)|-U__CUDA_NO_[A-Z0-9_]+__|--?ftz=(true|false)|--?fmad=(true|false)"
    r"|--?prec-(div|sqrt)=(true|false)|--?maxrregcount=\d+|-DNDEBUG"
)
# Each of these means the same wherever it stands among the others, so one order does for all.
_FREE = re.compile(
    r"-O[0-3]|-march=native|-mtune=native|-f(fast-math|openmp|unroll-loops|PIC)|-DNDEBUG|-g|-pthread"
)
_WARNING = re.compile(r"-w|-W(?!p,|l,|a,)[a-z0-9=+-]*|-pedantic|-fdiagnostics-[a-z=-]+")
_LEVEL = re.compile(r"-O[0-3]")


class FlagSet(Value, frozen=True, kw_only=True):
    """What a candidate added to torch's flags."""

    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    with_cuda: bool = False

    def is_plain(self) -> bool:
        """Whether trusted code may compile with these flags."""
        return all(_PLAIN.fullmatch(flag) for flag in self.cflags) and all(
            _PLAIN_DEVICE.fullmatch(flag) for flag in self.cuda_cflags
        )


def cleaned(flags: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return `flags` as torch hands them on: stripped; empty ones mean nothing."""
    return tuple(flag.strip() for flag in flags if flag.strip())


def canonical(flags: list[str]) -> list[str]:
    """Return `flags` without warnings and with the freely placed ones last, in one order.

    With two optimisation levels the last counts, so then nothing is moved.
    """
    kept = [flag for flag in flags if not _WARNING.fullmatch(flag)]
    if sum(1 for flag in kept if _LEVEL.fullmatch(flag)) > 1:
        return kept
    free = {flag for flag in kept if _FREE.fullmatch(flag)}
    return [flag for flag in kept if flag not in free] + sorted(free)


COMMON_CPU_FLAG_SETS = (
    FlagSet(),
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
