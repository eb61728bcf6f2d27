"""What a candidate's text seems to need for its builds, read without running or parsing it.

These answers decide only what is prepared early.  A build that they miss happens later, or without
a precompiled header.
"""

from __future__ import annotations

import re
from itertools import islice

from actors.evaluator.fastbuild.request.flag_set import FlagSet, stripped

COMPILE_WORDS = ("cpp_extension", "load_inline")
_LITERAL = r"[\[(]([^\[\]()]{0,2000})[\])]"
_FLAGS = {
    "cflags": re.compile(rf"\bextra_cflags\s*=\s*(?:{_LITERAL}|(\w{{1,80}}))"),
    "cuda_cflags": re.compile(rf"\bextra_cuda_cflags\s*=\s*(?:{_LITERAL}|(\w{{1,80}}))"),
}
_STRING = re.compile(r"'([^'\\\n]*)'|\"([^\"\\\n]*)\"")
_CUDA = re.compile(r"\bcuda_sources\s*=|\.cu[\"']")
_NO_HEADERS = re.compile(r"no_implicit_headers\s*=\s*True")
MAX_FLAG_SETS = 4  # of one candidate; further calls are not read


def may_compile(source: str) -> bool:
    """Whether importing `source` seems to compile something.

    A candidate that hides its compilation is built by its runner, within the runner's time.
    """
    return any(word in source for word in COMPILE_WORDS)


def needs_headers(source: str) -> bool:
    """Whether `source` seems to build with torch's headers; a build without them is fast anyway."""
    return not _NO_HEADERS.search(source) or "torch/" in source or "ATen/" in source


def flag_sets_of(source: str, *, cuda: bool) -> frozenset[FlagSet]:
    """Return the plain flag sets that `source` seems to build with."""
    cflags = _flag_lists(source, "cflags")
    with_cuda = cuda and bool(_CUDA.search(source))
    cuda_cflags = _flag_lists(source, "cuda_cflags") if with_cuda else [()]
    found = [
        FlagSet(cflags=host, cuda_cflags=device, with_cuda=with_cuda)
        for host in cflags
        for device in cuda_cflags
    ]
    return frozenset([flag_set for flag_set in found if flag_set.is_plain()][:MAX_FLAG_SETS])


def _flag_lists(source: str, argument: str) -> list[tuple[str, ...]]:
    """Return the lists of flags that `source` passes as `argument`, literally or by a variable."""
    found: list[tuple[str, ...]] = []
    for match in islice(_FLAGS[argument].finditer(source), MAX_FLAG_SETS):
        text, variable = match[1] or "", match[2]
        if variable:
            assignment = re.search(rf"^{variable}\s*=\s*{_LITERAL}", source, re.MULTILINE)
            if assignment is None:
                continue
            text = assignment[1]
        flags = stripped([single or double for single, double in _STRING.findall(text)])
        if flags not in found:
            found.append(flags)
    return found or [()]
