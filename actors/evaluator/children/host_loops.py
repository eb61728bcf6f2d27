"""Two loops that tell what a processor does at best: vector multiply-adds, and its clock.  Trusted.

They are a page of C that the host's own compiler builds in a fraction of a second, for no function
of torch is bound by these units alone.  Without a compiler there are no such figures.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

COMPILE_S = 20.0  # at most
FLAGS = ("-O2", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-x", "c")
FMA_STEPS = 1 << 20  # of a loop: a few milliseconds
CLOCK_STEPS = 1 << 22
SOURCE = r"""
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
typedef float Vector __attribute__((vector_size(BYTES)));

/* Sixteen sums: more than a multiply-add takes cycles on two units.  Returns operations. */
double multiply_adds(long steps, float *out) {
  Vector sum[16], scale = {0}, step = {0};
  scale += 0.5f;
  step += out[0];
#pragma GCC unroll 16
  for (int k = 0; k < 16; ++k) sum[k] = step + (float)k;
  for (long n = 0; n < steps; ++n) {
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) sum[k] = sum[k] * scale + step;
  }
#pragma GCC unroll 16
  for (int k = 0; k < 16; ++k) out[0] += sum[k][0];
  return 2.0 * 16 * (BYTES / sizeof(float)) * steps;
}

/* Additions and exclusive ors of registers, each of which waits for the one before: a cycle each.
   Returns cycles. */
double cycles(long steps, unsigned long *out) {
  unsigned long x = out[0], y = out[1] | 1;
  for (long n = 0; n < steps; ++n) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      x += y;
      __asm__ volatile("" : "+r"(x));
      x ^= y;
      __asm__ volatile("" : "+r"(x));
    }
  }
  out[0] = x;
  return 16.0 * steps;
}
"""


class HostLoops:
    """The compiled loops."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for function in (library.multiply_adds, library.cycles):
            function.argtypes, function.restype = [ctypes.c_long, ctypes.c_void_p], ctypes.c_double
        self._library = library

    def gflops(self, threads: int, rounds: int) -> float:
        """Return 10^9 float32 operations a second of `threads` together, in the best round."""

        def work(_thread: int) -> float:
            return float(self._library.multiply_adds(FMA_STEPS, ctypes.byref(ctypes.c_float(1.0))))

        best = 0.0
        with ThreadPoolExecutor(threads) as pool:
            for _round in range(rounds):
                began = time.perf_counter()
                done = sum(pool.map(work, range(threads)))
                best = max(best, done / (time.perf_counter() - began) / 1e9)
        return best

    def clock_ghz(self, rounds: int) -> float:
        """Return the clock of one busy processor in the best round."""
        best, words = 0.0, (ctypes.c_ulong * 2)(1, 3)
        for _round in range(rounds):
            began = time.perf_counter()
            done = float(self._library.cycles(CLOCK_STEPS // 16, ctypes.byref(words)))
            best = max(best, done / (time.perf_counter() - began) / 1e9)
        return best


def compiled_loops() -> HostLoops | None:
    """Return the loops; None where they can't be compiled."""
    compiler = (os.environ.get("CXX", "").split() or ["c++"])[0]
    # No compiler, one that is killed or hangs, no room for a file: the figures are left out.
    with suppress(OSError, subprocess.SubprocessError), tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "loops.c", Path(folder) / "loops.so"
        source.write_text(SOURCE, encoding="ascii")
        subprocess.run(
            [compiler, *FLAGS, str(source), "-o", str(library)],
            check=True,
            capture_output=True,
            timeout=COMPILE_S,
        )
        return HostLoops(ctypes.CDLL(str(library)))
    return None
