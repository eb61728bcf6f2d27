"""Which extensions torch builds from the start, and why.

Fast builds are made for kernels and the functions that launch them.  torch builds an extension that
needs more of torch than its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.evaluator.fastbuild.headers.header_tree import UMBRELLAS
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource, identifiers_in

_HEAVY = re.compile(
    r"\btorch\s*::\s*(nn|optim|jit|data|serialize|profiler|fft|linalg|special|sparse|nested|cuda"
    r"|mps|xpu|utils|library|Library|save|load|pickle_save|pickle_load|OrderedDict|stable)\b"
    r"|\bautograd\s*::\s*(?!make_variable\b|Variable\b)\w+"
    r"|\bTORCH_LIBRARY\w*|\bTORCH_SELECTIVE\w*|\bTORCH_(STABLE_ONLY|TARGET_VERSION)\b"
)
_CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*(?:\\\n.*)*)", re.MULTILINE)
_UMBRELLA = frozenset((*UMBRELLAS, "torch/extension.h", "torch/version.h"))
# Headers that the light tree does not replace and that include everything they need.
_PLAIN_TORCH = re.compile(r"(c10|ATen|torch/headeronly)/")
_NOT_PLAIN = re.compile(r"ATen/(native|functorch|core/(dispatch|boxing|op_registration|ivalue))")


def unsupported_reason(
    sources: Sequence[CandidateSource],
    include_folders: Sequence[str],
    hidden_macros: frozenset[str],
) -> str | None:
    """Return why torch must build these sources; None if a light build can.

    `hidden_macros`: the macros that torch's headers define and the light ones do not.
    """
    if include_folders:
        return "it names include folders of its own"
    for source in sources:
        heavy = _HEAVY.search(source.code)
        if heavy:
            return f"it uses {' '.join(heavy.group().split())}"
        for named in source.includes:
            reason = _unsupported_include(named)
            if reason:
                return reason
        conditions = identifiers_in(" ".join(_CONDITION.findall(source.code)))
        if conditions & hidden_macros:
            return f"it tests whether {min(conditions & hidden_macros)} is defined"
    return None


def _unsupported_include(named: str) -> str | None:
    name = named[1:-1]
    if name in _UMBRELLA:
        return None
    if named.startswith('"') and "/" not in name and not name.startswith(("cuda", "mma")):
        return f"it includes the local file {name}"
    if _NOT_PLAIN.match(name) or (name.startswith("torch/") and not _PLAIN_TORCH.match(name)):
        return f"it includes {name}"
    if name.startswith("pybind11/"):
        return None
    if named.startswith('"') and not _PLAIN_TORCH.match(name) and not name.startswith("cuda"):
        return f"it includes the local file {name}"
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
    code = source.code
    if re.search(r"\bpy\s*::|\bpybind11\b", code):
        return False
    modules = code.count("PYBIND11_MODULE")
    if modules == 0:
        return True
    found = _TABLE.search(source.text)
    return modules == 1 and found is not None and found["body"].count(".def(") <= MAX_FUNCTIONS
