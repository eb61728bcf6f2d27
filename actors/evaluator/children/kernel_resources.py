"""What a candidate's kernels take of a card: local memory, from its libraries and from Triton.

It runs in the runner's process, confined like the candidate, because the files that it reads are
the candidate's.  Registers, shared memory and launches come with the profiler's events; local
memory, where spilled registers are, does not.  What can't be read is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from protocol.values import Value

MAX_LIBRARIES = 4
MAX_LIBRARY_BYTES = 64 << 20
MAX_FUNCTIONS = 200
MAX_TEXT = 1 << 20
DUMP_S = 5.0
_FUNCTION = re.compile(r"^\s*Function (\S+?):?\s*$")
_FIGURE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")


class KernelResources(Value, frozen=True, kw_only=True):
    """What one compiled kernel takes."""

    symbol: str  # as the library names it, mangled
    registers: int  # a thread
    local_bytes: int  # a thread


def parse_resource_usage(text: str) -> list[KernelResources]:
    """Return the kernels in the output of `cuobjdump --dump-resource-usage`."""
    found: list[KernelResources] = []
    symbol = ""
    for line in text[:MAX_TEXT].splitlines():
        named = _FUNCTION.match(line)
        if named:
            symbol = named[1]
            continue
        figures = {name: int(value[:9]) for name, value in _FIGURE.findall(line)}
        if symbol and "REG" in figures and len(found) < MAX_FUNCTIONS:
            local = figures.get("STACK", 0) + figures.get("LOCAL", 0)
            found.append(
                KernelResources(symbol=symbol, registers=figures["REG"], local_bytes=local)
            )
            symbol = ""
    return found


def base_name(kernel: str) -> str:
    """Return a kernel's own name: of "void (anonymous namespace)::sum<4>(float*)" it is "sum"."""
    text = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    text = re.split(r"[<(]", text, maxsplit=1)[0]
    return text.rpartition("::")[2].strip()


def local_bytes_of(
    kernel: str, registers: int | None, resources: Iterable[KernelResources]
) -> int | None:
    """Return the local memory of a launched kernel; None where it is not known for certain.

    Instances of one template share a name.  They count if they agree, or if the registers of the
    launch tell which it was.
    """
    name = base_name(kernel)
    marked = re.compile(rf"(?<!\d){len(name)}{re.escape(name)}")
    named = [each for each in resources if each.symbol == name or marked.search(each.symbol)]
    fitting = [each for each in named if each.registers == registers] or named
    sizes = {each.local_bytes for each in fitting}
    return sizes.pop() if name and len(sizes) == 1 else None


def loaded_resources() -> list[KernelResources]:
    """Return what the kernels of this process's candidate take."""
    return [*_library_resources(), *_triton_resources()]


def _library_resources() -> Iterator[KernelResources]:
    tool = shutil.which("cuobjdump") or shutil.which(
        "cuobjdump", path=str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin")
    )
    if tool is None:
        return
    for library in _libraries():
        with suppress(OSError, subprocess.SubprocessError):
            ran = subprocess.run(
                [tool, "--dump-resource-usage", str(library)],
                capture_output=True,
                timeout=DUMP_S,
                check=False,
            )
            yield from parse_resource_usage(ran.stdout.decode("utf-8", "replace"))


def _libraries() -> list[Path]:
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR", ""))
    if not folder.is_absolute():
        return []
    found = [path for path in sorted(folder.rglob("*.so")) if path.is_file()]
    return [path for path in found if path.stat().st_size <= MAX_LIBRARY_BYTES][:MAX_LIBRARIES]


def _triton_resources() -> Iterator[KernelResources]:
    """Yield what the kernels take that Triton compiled for the candidate's functions."""
    module = sys.modules.get("candidate")
    for value in list(vars(module).values()) if module is not None else ():
        # The candidate's own object may be anything, and Triton's fields differ by version.
        with suppress(Exception):
            caches = getattr(value, "device_caches", None)
            if caches is None:  # a tuner around the function
                caches = getattr(getattr(value, "fn", None), "device_caches", None)
            for entry in dict(caches or {}).values():
                yield from _compiled_by_triton(entry)


def _compiled_by_triton(entry: Any) -> Iterator[KernelResources]:
    kernels = entry[0] if isinstance(entry, tuple) else entry
    for kernel in list(kernels.values())[:MAX_FUNCTIONS]:
        name = str(getattr(kernel, "name", "") or kernel.metadata.name)
        spills = getattr(kernel, "n_spills", None)
        if isinstance(spills, int) and isinstance(kernel.n_regs, int):
            yield KernelResources(symbol=name, registers=kernel.n_regs, local_bytes=4 * spills)
