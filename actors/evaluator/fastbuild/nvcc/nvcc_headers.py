"""The headers that a CUDA source gets before torch's, and nvcc's command with them."""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild.headers.cuda_header_tree import LIBRARIES_FILE
from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import PREAMBLE_FILE, write_file
from actors.evaluator.fastbuild.headers.include_order import includes_torch_first, uses_torch
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.request.added_headers import (
    CUB_UMBRELLA,
    PYBIND,
    cub_parts,
    cub_umbrella,
    device_headers_for,
    has_module,
    launch_no_kernels,
    with_parts,
    without_parallel,
)
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand, with_folders_first
from protocol.values import Value

# The kernels of thrust and cub's devices are optimised and assembled on all processors.  Each has
# the same code as without; an nvcc before 12.1 rejects the option, and torch builds.
SPLIT = "--split-compile=0"
# CUDA's libraries, whose handles torch's header of the CUDA context declares.
_LIBRARIES = re.compile(r"blas|sparse|cusolver", re.IGNORECASE)


class CudaHeaders(Value, frozen=True, kw_only=True):
    """The folders that are searched before torch's headers, and what else the source gets."""

    folders: tuple[Path, ...]
    added: tuple[str, ...]  # beyond the common part of torch's headers
    is_narrowed: bool = False  # an umbrella header of cub is replaced by a part of it


def cuda_headers(
    toolkit: Toolkit, source: CandidateSource, own_folder: Path, *, table: bool, narrow: bool
) -> CudaHeaders:
    """Write the source's own headers to `own_folder`; return where the compiler finds all."""
    code = source.whole_code
    named = device_headers_for(source.text, code, table=table)
    parts = cub_parts(code, named) if narrow else ()
    if parts:
        write_file(own_folder / CUB_UMBRELLA, cub_umbrella(parts))
    else:
        (own_folder / CUB_UMBRELLA).unlink(missing_ok=True)
    added = with_parts(named, parts)
    defines = "#define STARK_TABLE\n" if table and has_module(code) else ""
    folders = write_cuda_headers(toolkit, source, own_folder, added, defines)
    return CudaHeaders(folders=folders, added=added, is_narrowed=bool(parts))


def write_cuda_headers(
    toolkit: Toolkit,
    source: CandidateSource,
    own_folder: Path,
    added: tuple[str, ...],
    defines: str = "",
) -> tuple[Path, ...]:
    """Write the source's own part of torch's headers; return the folders to search first.

    The preamble with the `added` headers is used if trusted code has made one.
    """
    if not uses_torch(source):
        return (own_folder, toolkit.folder / "bare")
    defines += "#define STARK_PYBIND\n" if PYBIND in added else ""
    header = candidate_header(source, toolkit.index, without_parallel(added), defines)
    write_file(own_folder / "stark/candidate.h", header)
    libraries = own_folder / LIBRARIES_FILE
    if _LIBRARIES.search(" ".join(source.identifiers)):
        write_file(libraries, "")
    else:
        libraries.unlink(missing_ok=True)
    preamble = toolkit.preamble_folder(added)
    folders = [own_folder, *([preamble] if (preamble / PREAMBLE_FILE).exists() else [])]
    return tuple(dict.fromkeys([*folders, *toolkit.include_folders(source, added)]))


def nvcc_command(
    compilation: CompileCommand, source: CandidateSource, headers: CudaHeaders, folder: Path
) -> list[str]:
    """Return nvcc's command with `headers` first, for an output in `folder`.

    A source that begins with torch's headers gets their preamble before its first line, so that the
    preprocessed text begins in the same way for all such sources.
    """
    argv = [compilation.compiler, *with_folders_first(compilation.flags, list(headers.folders))]
    if uses_torch(source) and includes_torch_first(source):
        argv += ["-include", PREAMBLE_FILE]
    if not launch_no_kernels(headers.added):
        argv.append(SPLIT)
    return [*argv, "-c", source.path, "-o", str(folder / compilation.output)]
