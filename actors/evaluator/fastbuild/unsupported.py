"""Which extensions torch builds from the start, and why.

Fast builds are made for kernels and the functions that launch them.  torch builds an extension that
needs more of torch than its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.evaluator.fastbuild.headers.header_tree import BINDING_UMBRELLAS, UMBRELLAS
from actors.evaluator.fastbuild.request.added_headers import (
    AUTOGRAD,
    LIBRARY,
    torch_headers_for,
)
from actors.evaluator.fastbuild.request.bound_types import has_unknown_types, names_in_module
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource, identifiers_in

_HEAVY = re.compile(
    r"\btorch\s*::\s*(nn|optim|jit|data|serialize|profiler|fft|linalg|special|sparse|nested"
    r"|cuda\s*::\s*(?!(?:synchronize|device_count|is_available|manual_seed_all)\b)\w+"
    r"|mps|xpu|utils|save|load|pickle_save|pickle_load|OrderedDict|stable|class_|python)\b"
    r"|\bautograd\s*::\s*(?!(?:Function|AutogradContext|Variable|variable_list|tensor_list"
    r"|make_variable)\b)\w+"
    r"|\bTORCH_SELECTIVE\w*|\bTORCH_(STABLE_ONLY|TARGET_VERSION)\b"
)
_CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*(?:\\\n.*)*)", re.MULTILINE)
_OF_CUDA = re.compile(r"\btorch\s*::\s*cuda\b")
_CUDA = "torch/cuda.h"
_GRAPHS = "torch/csrc/autograd/custom_function.h"
_UMBRELLA = frozenset((*UMBRELLAS, *BINDING_UMBRELLAS, "torch/version.h", LIBRARY, _GRAPHS, _CUDA))
# The umbrella headers that include torch's graphs.
_WITH_GRAPHS = frozenset(
    ["torch/extension.h", "torch/all.h", "torch/torch.h", "torch/autograd.h", _GRAPHS]
)
_BINDING = frozenset(
    ["torch/csrc/utils/pybind.h", "torch/csrc/python_headers.h", "torch/csrc/Exceptions.h"]
)
# Headers that the light tree does not replace and that include everything they need.
_PLAIN_TORCH = re.compile(r"(c10|ATen|torch/headeronly)/")
_NOT_PLAIN = re.compile(r"ATen/(native|functorch|core/(dispatch|boxing|op_registration|ivalue))")


def unsupported_reason(
    sources: Sequence[CandidateSource], hidden_macros: frozenset[str]
) -> str | None:
    """Return why torch must build these sources; None if a light build can.

    `hidden_macros`: the macros that torch's headers define and the light ones do not.
    """
    for source in sources:
        code = source.whole_code
        heavy = _HEAVY.search(code)
        if heavy:
            return f"it uses {' '.join(heavy.group().split())}"
        for named in source.includes:
            reason = _unsupported_include(named)
            if reason:
                return reason
        included = {named[1:-1] for named in source.includes}
        if AUTOGRAD in torch_headers_for(code) and not included & _WITH_GRAPHS:
            return "it uses torch::autograd without its header"
        if _OF_CUDA.search(code) and not included & {*_WITH_GRAPHS, _CUDA}:
            return "it uses torch::cuda without its header"
        conditions = identifiers_in(" ".join(_CONDITION.findall(code)))
        if conditions & hidden_macros:
            return f"it tests whether {min(conditions & hidden_macros)} is defined"
    return None


def _unsupported_include(named: str) -> str | None:
    name = named[1:-1]
    if name in _UMBRELLA or name in _BINDING:
        return None
    if named.startswith('"') and "/" not in name and not name.startswith(("cuda", "mma")):
        return f"it includes {name}, which is not beside it"
    if _NOT_PLAIN.match(name) or (name.startswith("torch/") and not _PLAIN_TORCH.match(name)):
        return f"it includes {name}"
    if name.startswith("pybind11/"):
        return None
    if named.startswith('"') and not _PLAIN_TORCH.match(name) and not name.startswith("cuda"):
        return f"it includes {name}, which is not beside it"
    return None


_TABLE = re.compile(
    r"PYBIND11_MODULE\(\s*TORCH_EXTENSION_NAME\s*,\s*(?P<module>\w+)\s*\)\s*\{\s*"
    r"(?P<body>(?:(?P=module)\.def\(\s*\"\w+\"\s*,"
    r"\s*(?:torch::wrap_pybind_function\(\s*\w+\s*\)|&?\s*\w+)"
    r"\s*(?:,\s*\"(?:[^\"\\\n]|\\.)*\"\s*)?\)\s*;\s*)*)\}"
)
MAX_FUNCTIONS = 60


def can_bind_by_table(source: CandidateSource) -> bool:
    """Whether the source's module only lists functions, so that the prebuilt binding is enough."""
    code = source.whole_code
    if re.search(r"\bpy\s*::|\bpybind11\b", code):
        return False
    if has_unknown_types(code, names_in_module(source.text)):
        return False
    if any(named[1:-1] in _BINDING for named in source.includes):
        return False  # its macros are pybind11's own
    modules = code.count("PYBIND11_MODULE")
    if modules == 0:
        return True
    found = _TABLE.search(source.text)
    return modules == 1 and found is not None and found["body"].count(".def(") <= MAX_FUNCTIONS
