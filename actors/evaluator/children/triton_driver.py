"""Triton's module that calls the CUDA driver: compiled once a zygote, for all candidates.

Triton compiles it with the C compiler where its cache does not have it, and each candidate has a
cache of its own: the first call of each would take 0.3 s longer.  A process of its own compiles it,
since loading it loads the driver.  Children get the bytes with their fork, and write them into
their own cache with their own rights.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CACHE = "TRITON_CACHE_DIR"
_files: dict[Path, bytes] = {}  # by the path inside a cache


def start() -> int | None:
    """Import Triton, and begin to compile; return the process, None where there is no Triton."""
    try:
        from triton.backends.nvidia.driver import CudaUtils
    except Exception:  # noqa: BLE001  # of another version, or broken: candidates see that
        return None
    process = os.fork()
    if not process:
        with suppress(BaseException):
            CudaUtils()
        os._exit(0)
    return process


def keep(process: int | None) -> None:
    """Wait for the process, and keep what it has compiled."""
    if process is None:
        return
    os.waitpid(process, 0)
    cache = Path(os.environ[CACHE])
    _files.update(
        (path.relative_to(cache), path.read_bytes()) for path in cache.glob("*/cuda_utils*")
    )


def install() -> None:
    """In a child: write it into the child's own cache, unless there is something already."""
    cache = Path(os.environ[CACHE])
    with suppress(OSError):  # the candidate compiles it itself
        for inside, content in _files.items():
            (cache / inside).parent.mkdir(parents=True, exist_ok=True)
            with (cache / inside).open("xb") as file:
                file.write(content)
