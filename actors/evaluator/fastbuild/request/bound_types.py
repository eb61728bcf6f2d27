"""Whether the functions of a module have types that the prebuilt binding converts, read off a text.

A type too many that counts as unknown costs pybind11's compilation, and one too few a first attempt
without it.  So names that may be a candidate's own aliases do not count.
"""

from __future__ import annotations

import re

_TENSOR = r"(?:(?:at|torch)::)?Tensor"
_INTEGER = r"(?:int|long|long long|unsigned|unsigned int|unsigned long|(?:std::)?u?int(?:32|64)_t)"
_NUMBER = rf"(?:{_INTEGER}|float|double)"
_OPTIONAL = r"(?:std|c10|at|torch)::optional"
# The kinds in native/record.h, as candidates write them.
_KNOWN = re.compile(
    rf"void|bool|(?:std::)?size_t|{_NUMBER}|std::string|{_TENSOR}"
    rf"|std::vector<(?:{_TENSOR}|{_NUMBER})>"
    rf"|{_OPTIONAL}<(?:{_TENSOR}|std::vector<{_TENSOR}>|bool|std::string|{_NUMBER})>"
    rf"|std::tuple<{_TENSOR}(?:,{_TENSOR}){{1,4}}>"
    r"|(?:at|c10|torch)::(?:IntArrayRef|ScalarType|Device|Layout|MemoryFormat|Dtype)"
)
# Types that are no alias of a candidate's: those of libraries, and small or pointed-to ones.
_OF_LIBRARY = re.compile(r"\b(?:std|at|c10|torch|cuda)::|\b(?:char|short|u?int(?:8|16)_t)\b|\*$")
_QUALIFIER = re.compile(
    r"\b(?:const|volatile|inline|extern|static|constexpr|__host__|TORCH_API)\b|\bextern\s*\"C\""
)
_DEFINED = re.compile(
    r"\.\s*def\(\s*\"[^\"]*\"\s*,\s*(?:torch::wrap_pybind_function\(\s*|&\s*)?(\w+)"
)
_QUOTED = re.compile(r"[\"'](\w{1,80})[\"']")
_NOT_BOUND = re.compile(r"\b(?:__global__|__device__|template)\b")
_STATEMENT_END = re.compile(r"[;{}#)\\\"']")
MAX_NAMES = 60


def names_in_module(text: str) -> frozenset[str]:
    """Return the functions that the modules in a C++ `text` list."""
    return frozenset(_DEFINED.findall(text))


def quoted_names(source: str) -> frozenset[str]:
    """Return the names that may be those of a module's functions in a candidate's Python text."""
    return frozenset(_QUOTED.findall(source)[:MAX_NAMES]) | names_in_module(source)


def has_unknown_types(code: str, names: frozenset[str]) -> bool:
    """Whether a function of `names` is declared in `code` with a type that the binding lacks."""
    return any(_is_unknown(kind) for name in sorted(names) for kind in _types_of(code, name))


def _types_of(code: str, name: str) -> list[str]:
    """Return the types of result and arguments, with names, in all declarations of `name`."""
    found = []
    for match in re.finditer(rf"(?<![\w:.>]){re.escape(name)}\s*\(", code):
        closing = _closing(code, match.end())
        before = _STATEMENT_END.split(code[max(0, match.start() - 200) : match.start()])[-1].strip()
        if closing < 0 or not re.match(r"\s*[;{]", code[closing + 1 : closing + 40]):
            continue
        if not before or before.startswith("return") or re.search(r"[=(\[.?]", before):
            continue
        if _NOT_BOUND.search(before):  # a kernel whose name a dispatch or a message quotes
            continue
        found += [before, *_split(code[match.end() : closing])]
    return found


def _closing(code: str, start: int) -> int:
    """Return the position of the bracket that closes the one before `start`; -1 if none does."""
    depth = 1
    for at in range(start, min(len(code), start + 4000)):
        depth += (code[at] == "(") - (code[at] == ")")
        if not depth:
            return at
    return -1


def _split(arguments: str) -> list[str]:
    """Return the arguments of a declaration, without those that are empty."""
    parts, depth = [""], 0
    for sign in arguments:
        depth += (sign in "<({[") - (sign in ">)}]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part.strip()]


def _plain(kind: str) -> str:
    """Return a type without qualifiers, references and default value, spaced in one way."""
    kind = _QUALIFIER.sub(" ", kind.partition("=")[0]).replace("&", " ").replace("*", "* ")
    return re.sub(r"\s*([<>,*]|::)\s*", r"\1", " ".join(kind.split()))


def _is_unknown(kind: str) -> bool:
    plain = _plain(kind)
    without_name = re.sub(r"(?<=[\s>*])\w+$", "", plain).strip()
    if _KNOWN.fullmatch(plain) or _KNOWN.fullmatch(without_name):
        return False
    return _OF_LIBRARY.search(without_name) is not None
