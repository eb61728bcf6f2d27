"""What a candidate's text asks of builds, read without running or parsing it as Python.

It only decides what is done early: whatever it misses is built later, or without such a header.
"""

from __future__ import annotations

import re
from itertools import islice

from actors.evaluator.fastbuild.flag_set import FlagSet, cleaned

COMPILE_WORDS = ("cpp_extension", "load_inline")
_LITERAL = r"[\[(]([^\[\]()]{0,2000})[\])]"
_FLAGS = {
    "cflags": re.compile(rf"\bextra_cflags\s*=\s*(?:{_LITERAL}|(\w{{1,80}}))"),
    "cuda_cflags": re.compile(rf"\bextra_cuda_cflags\s*=\s*(?:{_LITERAL}|(\w{{1,80}}))"),
}
_STRING = re.compile(r"'([^'\\\n]*)'|\"([^\"\\\n]*)\"")
_CUDA = re.compile(r"\bcuda_sources\s*=|\.cu[\"']")
_NO_HEADERS = re.compile(r"no_implicit_headers\s*=\s*True")
MAX_FLAG_SETS = 4  # calls of one candidate that are looked at


def may_compile(source: str) -> bool:
    """Whether `source` looks as if importing it compiled something.

    A candidate that hides it is built by its runner, within the runner's time.
    """
    return any(word in source for word in COMPILE_WORDS)


def needs_headers(source: str) -> bool:
    """Whether `source` seems to build with torch's headers: without them any way is fast."""
    return not _NO_HEADERS.search(source) or "torch/" in source or "ATen/" in source


def flag_sets(source: str, *, cuda: bool) -> frozenset[FlagSet]:
    """Return the plain families of flags that `source` seems to build with."""
    cflags = _lists(source, "cflags")
    with_cuda = cuda and bool(_CUDA.search(source))
    cuda_cflags = _lists(source, "cuda_cflags") if with_cuda else [()]
    found = [
        FlagSet(cflags=host, cuda_cflags=device, with_cuda=with_cuda)
        for host in cflags
        for device in cuda_cflags
    ]
    return frozenset([family for family in found if family.is_plain()][:MAX_FLAG_SETS])


def _lists(source: str, name: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for match in islice(_FLAGS[name].finditer(source), MAX_FLAG_SETS):
        text, named = match[1] or "", match[2]
        if named:
            assigned = re.search(rf"^{named}\s*=\s*{_LITERAL}", source, re.MULTILINE)
            if assigned is None:
                continue
            text = assigned[1]
        flags = cleaned([single or double for single, double in _STRING.findall(text)])
        if flags not in found:
            found.append(flags)
    return found or [()]
