"""Errors in a module that the prebuilt binding stands for: which are the binding's, which not.

A type that the binding does not convert is an error in its headers, and pybind11 binds the module
instead.  An error of the candidate's own may have others behind it that name the binding: they are
left out, since torch's own build shows no such text.
"""

from __future__ import annotations

import re

from actors.evaluator.fastbuild.request.compiler_errors import COMPILER_ERROR

_HEADER = re.compile(r"/stark/(?:table|record)\.h$")
# A function with overloads is told in other words by pybind11.
_BINDING = re.compile(r"\bstark::|\bwrap_pybind_function\b|unresolved overloaded function type")
_FUNCTION = re.compile(r"\bvoid stark_fill_(\w+)\(stark::Table ?& ?\)")
_COUNT = re.compile(r"^\d+ errors? detected in", re.MULTILINE)


def is_of_binding(output: str) -> bool:
    """Whether the first error in a compiler's `output` is the binding's: pybind11 may have none."""
    found = COMPILER_ERROR.search(output)
    if found is None:
        return False
    first_line = found["message"].partition("\n")[0]
    return _HEADER.search(found["file"]) is not None or _BINDING.search(first_line) is not None


def without_binding(output: str) -> str:
    """Return `output` with the module's function as pybind11 names it, and without later errors.

    nvcc's front ends end each error with an empty line.
    """
    text = _FUNCTION.sub(r"void pybind11_init_\1(pybind11::module_&)", output)
    parts = text.split("\n\n")
    kept = [part for part in parts if not (COMPILER_ERROR.search(part) and "stark::" in part)]
    if len(kept) == len(parts):
        return text
    errors = sum(1 for part in kept if COMPILER_ERROR.search(part))
    counted = f"{errors} error{'s' if errors != 1 else ''} detected in"
    return _COUNT.sub(counted, "\n\n".join(kept))
