"""What comes before torch's headers in a source: only then can they be parsed in advance."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import structs

from actors.evaluator.fastbuild.headers.header_tree import BINDING_UMBRELLAS, UMBRELLAS
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource

_TORCH_MACRO = re.compile(r"(AT|TORCH|C10|CAFFE2|PYBIND11)_\w+|PYBIND11_\w+")
_TORCH_NAMES = frozenset(["torch", "at", "c10", "caffe2", "py", "pybind11", "Tensor"])

_DIRECTIVE = re.compile(r"^\s*#\s*(\w+)\s*(.*)$", re.MULTILINE)
_TORCH_HEADERS = frozenset([*BINDING_UMBRELLAS, *UMBRELLAS])


def includes_torch_first(source: CandidateSource) -> bool:
    """Whether no directive before the include of torch's headers could change these."""
    return _first_directives(source, source.code_with_includes) == "torch"


def _first_directives(source: CandidateSource, code: str) -> Literal["torch", "harmless", "other"]:
    """Return what comes first in `code`: torch's headers, or a directive that may change them."""
    headers = {spelled: header for header in source.headers for spelled in header.spelled}
    for directive, rest in _DIRECTIVE.findall(code):
        if directive == "include":
            if rest.strip()[1:-1] in _TORCH_HEADERS:
                return "torch"
            header = headers.pop(rest.strip(), None)  # a header is read once
            if header is not None:
                local = CandidateSource(path=header.path, text=header.text)
                first = _first_directives(
                    structs.replace(source, headers=tuple(headers.values())),
                    local.code_with_includes,
                )
                if first != "harmless":
                    return first
        elif directive != "pragma" or rest.strip() != "once":
            return "other"
    return "harmless"


def uses_torch(source: CandidateSource) -> bool:
    """Whether the source uses torch beyond the header that torch itself puts before it."""
    named = source.identifiers
    return bool(named & _TORCH_NAMES) or any(_TORCH_MACRO.fullmatch(name) for name in named)
