"""Headers that a source needs in addition to the common part, read off its text.

They follow the common part in its precompiled header and in nvcc's preamble, so that they are
parsed in advance, too.  A name too few costs a slower build, one too many a larger header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from actors.evaluator.fastbuild.request.bound_types import has_unknown_types, names_in_module

LIBRARY = "torch/library.h"
AUTOGRAD = "stark/graphs.h"  # torch's header of autograd::Function, with what that needs
PYBIND = "stark/pybind.h"
_LIBRARY_NAMES = re.compile(r"\bTORCH_LIBRARY\w*|\btorch\s*::\s*(?:Library|CppFunction|dispatch)\b")
_AUTOGRAD_NAMES = re.compile(r"\bautograd\s*::\s*(?!Variable\b)\w+|\bAutogradContext\b")
_PYBIND_NAMES = re.compile(r"\bpy\s*::|\bpybind11\s*::")
_MODULE = re.compile(r"\bPYBIND11_MODULE\b")
_PARALLEL = re.compile(r"(?:cub|thrust)/\w+(?:/\w+)*\.(?:h|cuh)")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>\n]+)>", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:define|undef|if|elif|else|endif)", re.MULTILINE)
# The parts of cub that launch no kernels.
_IN_KERNELS = re.compile(r"cub/(?:(?:block|warp|thread)/\w+|util_type)\.cuh")
_OF_TORCH = (PYBIND, LIBRARY, AUTOGRAD)
CUB_UMBRELLA = "cub/cub.cuh"
_CUB_NAME = re.compile(r"\bcub\s*::\s*(\w+)")
_CUB_ENTRY = re.compile(r"(Block|Warp|Device)[A-Z][a-z]\w*?(?=Algorithm$|$)")
_CUB_ENUMERATOR = re.compile(r"BLOCK_(REDUCE|SCAN|LOAD|STORE)_\w+")
_CUB_TYPES = {"KeyValuePair": "cub/util_type.cuh", "DoubleBuffer": "cub/util_type.cuh"}
# With these the names of cub and of the CUDA library can't be told from others.
_CUB_UNCLEAR = re.compile(r"\bnamespace\s+cub\b|(?<!at::)(?<!c10::)\bcuda\s*::")


def are_plain(headers: Iterable[str]) -> bool:
    """Whether trusted code may compile these headers of torch, of ours, of cub and of thrust."""
    return all(header in _OF_TORCH or _PARALLEL.fullmatch(header) for header in headers)


def launch_no_kernels(headers: Iterable[str]) -> bool:
    """Whether no function in these headers launches a kernel of its own."""
    return all(header in _OF_TORCH or _IN_KERNELS.fullmatch(header) for header in headers)


def are_long(headers: Iterable[str]) -> bool:
    """Whether nvcc's parsers take seconds for these headers, though their bodies are left out."""
    return not all(_IN_KERNELS.fullmatch(header) for header in headers)


def has_module(code: str) -> bool:
    """Whether `code` writes out a module."""
    return _MODULE.search(code) is not None


def torch_headers_for(code: str) -> tuple[str, ...]:
    """Return the parts of torch beyond its tensors that `code` names."""
    found = []
    if _LIBRARY_NAMES.search(code):
        found.append(LIBRARY)
    if _AUTOGRAD_NAMES.search(code):
        found.append(AUTOGRAD)
    return tuple(found)


def device_headers_for(text: str, code: str, *, table: bool) -> tuple[str, ...]:
    """Return what a CUDA source needs: its `text`, and its `code` with that of its own headers.

    `table`: its module needs no pybind11.
    """
    found = [PYBIND] if has_module(code) and not table else []
    return (*found, *torch_headers_for(code), *_parallel_headers(text))


def needs_pybind(code: str, names: frozenset[str]) -> bool:
    """Whether pybind11 must bind the functions `names` of `code`: the binding lacks their types."""
    return _PYBIND_NAMES.search(code) is not None or has_unknown_types(code, names)


def headers_for_texts(texts: Iterable[str], *, device: bool) -> tuple[str, ...]:
    """Return what C++ texts, or CUDA texts with `device`, seem to need, judged by each alone."""
    found: dict[str, None] = {}
    for text in texts:
        table = not needs_pybind(text, names_in_module(text))
        if device:
            named = device_headers_for(text, text, table=table)
            found |= dict.fromkeys(with_parts(named, cub_parts(text, named)))
        else:
            pybind = [] if table else [PYBIND]
            found |= dict.fromkeys([*pybind, *torch_headers_for(text)])
    return tuple(found)


def without_parallel(headers: tuple[str, ...]) -> tuple[str, ...]:
    """Return `headers` without those of cub and thrust, which the source includes itself."""
    return tuple(header for header in headers if not _PARALLEL.fullmatch(header))


def _parallel_headers(text: str) -> list[str]:
    """Return the headers of cub and thrust in `text`; none if macros come before them."""
    found = [match for match in _INCLUDE.finditer(text) if _PARALLEL.fullmatch(match[1])]
    if not found or _CONDITION.search(text, 0, found[-1].start()):
        return []
    return sorted({match[1] for match in found})


def cub_parts(code: str, headers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of cub that stand for its umbrella header in `headers`.

    Empty if the umbrella is not among them, or if `code` names something in cub whose part is not
    plain from the name.
    """
    if CUB_UMBRELLA not in headers or _CUB_UNCLEAR.search(code):
        return ()
    parts = {_part_of(name) for name in _CUB_NAME.findall(code)}
    return () if "" in parts else tuple(sorted(parts))


def with_parts(headers: tuple[str, ...], parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return `headers` with `parts` for cub's umbrella header, if there are any."""
    if not parts:
        return headers
    first = [header for header in headers if header in _OF_TORCH]
    rest = {*headers, *parts} - {*first, CUB_UMBRELLA}
    return (*first, *sorted(rest))


def cub_umbrella(parts: tuple[str, ...]) -> str:
    """Return the text of an umbrella header of cub with `parts` alone."""
    return "#pragma once\n" + "".join(f"#include <{part}>\n" for part in parts)


def _part_of(name: str) -> str:
    """Return the header of cub that declares `name`; "" if the name does not show it."""
    enumerator = _CUB_ENUMERATOR.fullmatch(name)
    if enumerator:
        return f"cub/block/block_{enumerator[1].lower()}.cuh"
    entry = _CUB_ENTRY.match(name)
    if entry:
        stem = re.sub(r"(?<!^)(?=[A-Z])", "_", entry[0]).lower()
        return f"cub/{entry[1].lower()}/{stem}.cuh"
    return _CUB_TYPES.get(name, "")
