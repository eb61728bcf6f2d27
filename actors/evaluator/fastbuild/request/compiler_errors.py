"""Errors as compilers write them: their places, and whose text they are about."""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild.request.candidate_source import CandidateSource

COMPILER_ERROR = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*)(?::(?P<line>\d+)(?::\d+)?: |\((?P<edg>\d+)\): )"
    r"(?:fatal |catastrophic )?error(?: #[\w-]+)?:? (?P<message>.*(?:\n {2,}\S.*)*)$",
    re.MULTILINE,
)
# Conditions on what a module says of its functions and of their arguments, and on the types of a
# registered operator.  Those in pybind11's casters depend on types that the light headers may know
# too few of.
_MODULE_HEADER = re.compile(
    r"/pybind11/(?:pybind11|attr)\.h$"
    r"|/ATen/core/(?:op_registration/infer_schema|boxing/impl/make_boxed_from_unboxed_functor)\.h$"
)
# Errors that neither further headers of cub nor the bodies of functions can change: a class is as
# one header defines it.  A mark may be missing because of a macro that none has defined.
_OF_CLASS = re.compile(r'(?:class|struct|union) ".*" has no member "')
_OF_MARK = re.compile(r'expected (?:a|an) "')
_LIBRARY_MACRO = re.compile(r"\b_?(?:CUB|THRUST|CCCL|LIBCUDACXX|NV)_\w+")


def text_of(file: str, source: CandidateSource) -> str | None:
    """Return the text of the candidate's own file that a compiler calls `file`; None for others."""
    if Path(file).name == Path(source.path).name:
        return source.text
    resolved = str(Path(file).resolve())
    return next((header.text for header in source.headers if header.path == resolved), None)


def is_of_module(error: re.Match[str]) -> bool:
    """Whether a header of torch rejects the function that a candidate binds or registers."""
    is_condition = error["message"].startswith("static assertion failed")
    return is_condition and _MODULE_HEADER.search(error["file"]) is not None


def are_in_source(output: str, source: CandidateSource) -> bool:
    """Whether all errors in `output` are in the candidate's own files."""
    errors = list(COMPILER_ERROR.finditer(output))
    return bool(errors) and all(text_of(error["file"], source) is not None for error in errors)


def no_header_helps(output: str, source: CandidateSource) -> bool:
    """Whether all errors in `output` are in the source, and the same with more of the headers."""
    final = (_OF_CLASS,) if _LIBRARY_MACRO.search(source.whole_code) else (_OF_CLASS, _OF_MARK)
    return are_in_source(output, source) and all(
        any(kind.match(error["message"]) for kind in final)
        for error in COMPILER_ERROR.finditer(output)
    )
