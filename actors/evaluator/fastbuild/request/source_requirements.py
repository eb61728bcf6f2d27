"""What a candidate's text seems to need for its builds, read without running or parsing it.

These answers decide only what is prepared early.  A build that they miss happens later, or without
a precompiled header.
"""

from __future__ import annotations

import re
from itertools import islice

from actors.evaluator.fastbuild.request.added_headers import PYBIND, has_module, headers_for_texts
from actors.evaluator.fastbuild.request.bound_types import has_unknown_types, quoted_names
from actors.evaluator.fastbuild.request.flag_set import FlagSet, stripped, without_own_macros

COMPILE_WORDS = ("cpp_extension", "load_inline")
_LITERAL = r"[\[(]([^\[\]()]{0,2000})[\])]"
_FLAGS = {
    "cflags": re.compile(rf"\bextra_cflags\s*=\s*(?:{_LITERAL}|(\w{{1,80}}))"),
    "cuda_cflags": re.compile(rf"\bextra_cuda_cflags\s*=\s*(?:{_LITERAL}|(\w{{1,80}}))"),
}
_STRING = re.compile(r"'([^'\\\n]*)'|\"([^\"\\\n]*)\"")
_CUDA = re.compile(r"\bcuda_sources\s*=|\.cu[\"']")
_CUDA_NAMES = re.compile(r"\bcuda_sources\s*=\s*[\[(]?\s*(\w{1,80}(?:\s*,\s*\w{1,80}){0,8})")
_BEFORE_TEXT = re.compile(r"\b(\w{1,80})\s*=\s*[rR]?\Z")
_CPP = re.compile(r"\bcpp_sources\s*=")
_CALL = re.compile(r"\bload(?:_inline)?\s*\(")
_TEXTS = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_DEVICE_CODE = re.compile(r"__global__|__device__|<<<|[<\"](?:cub|thrust|cuda_runtime)\b")
_NO_HEADERS = re.compile(r"no_implicit_headers\s*=\s*True")
_TORCH_HEADERS = re.compile(r"\b(?:torch|ATen|c10|pybind11)/")
MAX_FLAG_SETS = 4  # of one candidate; further ones are not read
MAX_CALLS = 16


def may_compile(source: str) -> bool:
    """Whether importing `source` seems to compile something.

    A candidate that hides its compilation is built by its runner, within the runner's time.
    """
    return any(word in source for word in COMPILE_WORDS)


def needs_headers(source: str) -> bool:
    """Whether `source` seems to build with torch's headers; a build without them is fast anyway."""
    return not _NO_HEADERS.search(source) or bool(_TORCH_HEADERS.search(source))


def flag_sets_of(source: str, *, cuda: bool) -> frozenset[FlagSet]:
    """Return the plain flag sets that `source` seems to build with."""
    cpp_headers, cuda_headers = _headers_named_in(source)
    found: list[FlagSet] = []
    for call in _calls_in(source):
        with_cuda = cuda and _is_with_cuda(call, source)
        found += [
            FlagSet(
                cflags=host,
                cuda_cflags=device,
                with_cuda=with_cuda,
                cpp_headers=cpp_headers,
                cuda_headers=cuda_headers if with_cuda else (),
            )
            for host in _flag_lists(call, source, "cflags")
            for device in (_flag_lists(call, source, "cuda_cflags") if with_cuda else [()])
        ]
    return frozenset([flag_set for flag_set in found if flag_set.is_plain()][:MAX_FLAG_SETS])


def _calls_in(source: str) -> list[str]:
    """Return the text from each call of `load` or `load_inline` to the next one."""
    starts = [match.start() for match in islice(_CALL.finditer(source), MAX_CALLS)]
    if not starts:
        return [source]
    return [source[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def _is_with_cuda(call: str, source: str) -> bool:
    if _CUDA.search(call) or "with_cuda=True" in call:
        return True
    if call.startswith("load_inline"):
        # Without a keyword the CUDA source may be the third argument.
        return not _CPP.search(call) and bool(_DEVICE_CODE.search(source))
    return bool(_CUDA.search(source))


def _headers_named_in(source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the added headers that the C++ texts and the CUDA texts in `source` seem to need."""
    passed = _passed_as_cuda(source)
    texts = {match[1] or match[2]: match.start() for match in _TEXTS.finditer(source)}
    found = [text for text in texts if text] or [source]
    device = [
        text
        for text in found
        if _DEVICE_CODE.search(text) or _name_before(source, texts.get(text, 0)) in passed
    ]
    # Texts in other quotes can't be told apart.
    host = [text for text in found if not texts or text not in device]
    of_host, of_device = (
        headers_for_texts(host, device=False),
        headers_for_texts(device, device=True),
    )
    # A module that torch writes lists functions that may be declared in any text.
    by_torch = PYBIND not in of_host and not any(has_module(text) for text in found)
    if by_torch and has_unknown_types(source, quoted_names(source)):
        of_host = (PYBIND, *of_host)
    return of_host, of_device


def _passed_as_cuda(source: str) -> frozenset[str]:
    """Return the variables that `source` passes as CUDA sources."""
    return frozenset(re.findall(r"\w+", " ".join(_CUDA_NAMES.findall(source))))


def _name_before(source: str, start: int) -> str:
    """Return the variable that the text at `start` is assigned to; "" if there is none."""
    found = _BEFORE_TEXT.search(source, max(0, start - 100), start)
    return found[1] if found else ""


def _flag_lists(call: str, source: str, argument: str) -> list[tuple[str, ...]]:
    """Return the lists of flags that `call` passes as `argument`, literally or by a variable."""
    found: list[tuple[str, ...]] = []
    for match in islice(_FLAGS[argument].finditer(call), MAX_FLAG_SETS):
        text, variable = match[1] or "", match[2]
        if variable:
            assignment = re.search(rf"^{variable}\s*=\s*{_LITERAL}", source, re.MULTILINE)
            if assignment is None:
                continue
            text = assignment[1]
        named = [single or double for single, double in _STRING.findall(text)]
        flags = without_own_macros(stripped(named))
        if flags not in found:
            found.append(flags)
    return found or [()]
