"""Whether a failed light build is the candidate's fault, or that of light headers with too little.

The light headers may lack what torch's have.  So an error counts as the candidate's only if it is
in the candidate's own file, or in a template of the standard library or of CUDA that this file
uses, and if the light build declared everything that the candidate names there and torch's headers
declare.  Rejected flags, and what a linker does not find or finds twice, have nothing to do with
headers.  In doubt torch builds again, and the result of that build counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild.headers.declared_names import names_declared_by
from actors.evaluator.fastbuild.headers.names_in_headers import names_in_headers
from actors.evaluator.fastbuild.headers.toolkit import Toolkit, headers_of_torch
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource, identifiers_in
from actors.evaluator.fastbuild.request.compiler_errors import (
    COMPILER_ERROR,
    is_of_module,
    text_of,
)
from actors.evaluator.fastbuild.request.compiler_process import Deadline
from protocol.values import Value

_QUOTED = re.compile(r"‘([^’\n]+)’|\"([^\"\n]+)\"|'([^'\n]+)'")
_MISSING_FILE = re.compile(r"No such file or directory|cannot open source file|could not open")
_INCOMPLETE = re.compile(r"incomplete (class )?type|forward declaration|used before its definition")
_OPERATOR = re.compile(r"no match for .operator|no operator \"")
_TORCH_TYPE = re.compile(r"\b(at|c10|torch|caffe2)::")
# torch's macros that declare the type of a tensor's elements, and what they call it.
_DISPATCH = re.compile(r"\bAT_DISPATCH_\w+")
_DISPATCHED_TYPES = frozenset(["scalar_t", "index_t", "underlying_t"])
# What the author of a program says there: words, and no names.
_OWN_WORDS = re.compile(r"(?<=static assertion failed)(?: with \"(?:[^\"\\]|\\.)*\"|:.*)|#error.*")
_REPEATED = re.compile(r"\n[^\n]*\n *\^(?=\n|\Z)")  # the candidate's line, its macros replaced
# Of the other names at an unknown one only macros may be its cause: one that is missing leaves its
# arguments in the text, and everything else is an error of its own.
_UNKNOWN = re.compile(
    r"identifier \"\w+\" is undefined|‘\w+’ was not declared in this scope"
    r"|\w+ \".*\" has no member \"\w+\"|‘.*’ has no member named ‘\w+’|‘\w+’ is not a member of ‘"
)
_MAY_BE_MACRO = re.compile(r"\b(?:[A-Z][A-Z0-9_]+\b|[A-Za-z_]\w*(?=\s*\())")
LINES_BEFORE = 3
DEVICE_ONLY_PHASE = "ptxas"  # the front end accepted the source before it ran
LINK_PHASE = "link"
_PTXAS_ERROR = re.compile(r"^ptxas .*\b(?:error|fatal)\b(?!.*[Mm]emory allocation)", re.MULTILINE)
# Flags that nvcc or g++ does not take; `--split-compile` may be ours.  nvcc's other fatal errors
# may be the machine's: no memory, no room on the disk, a file that can't be opened.
_REJECTED_FLAG = re.compile(
    r"\A(?:nvcc warning[^\n]*\n)*(?:nvcc fatal +: (?!.*split-compile)"
    r"(?:Unknown option|Unsupported gpu architecture|Incompatible code generation"
    r"|redefinition of argument|(?:no )?argument expected|Option '.*', missing"
    r"|'.*': expected |'.*' is not in 'keyword=value'|Value '.*' is not defined for option)"
    r"|(?:cc1plus|(?:\S*/)?(?:c\+\+|g\+\+|gcc)(?:-\d+)?): (?:fatal )?error: "
    r"(?:unrecognized|bad value|missing argument|argument to))"
)
# Where a candidate uses the template that has the error, as g++ and as nvcc's front ends say it.
_USED_AT = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+:\s+required from", re.MULTILINE)
_USED_AT_EDG = re.compile(r"at line (?P<line>\d+) of \"?(?P<file>[^\"\n]+)")
_LINKED_TWICE = re.compile(
    r"multiple definition of [`'‘](?:.*[\s:*&])?(~?\w+)(?:\(.*\))?(?:<.*>)?['’]"
)
_LINK_ERROR = re.compile(
    r"^.*(?:undefined reference|\berror:|multiple definition|cannot find).*$", re.M
)


class CompilerFailure(Value, frozen=True, kw_only=True):
    """One compiler's failure."""

    phase: str
    output: str
    source: CandidateSource
    argv: tuple[str, ...]  # compiles the file with the light headers, without -c and -o
    declared: frozenset[str] = frozenset()  # by these headers, as far as it is known already


class _ReportedLine(Value, frozen=True, kw_only=True):
    """A line of the candidate's that a compiler names, and what the compiler says of it."""

    text: str  # of the candidate's file
    line: int
    message: str
    is_in_library: bool = False  # the error itself is in a template that this line uses
    is_of_module: bool = False  # a header rejects the function that this line binds or registers

    @property
    def own_message(self) -> str:
        """The message without words of an author's, and without the names of a header's parts.

        nvcc's front ends repeat the candidate's line, which may have strings.
        """
        if self.is_of_module:
            return ""
        if self.is_in_library:
            return self.message
        return _OWN_WORDS.sub("", _REPEATED.sub("", self.message))


def reason_to_doubt(failure: CompilerFailure, toolkit: Toolkit, deadline: Deadline) -> str | None:
    """Return why torch's own build might end otherwise; None when it would fail in the same way."""
    if failure.phase.startswith(DEVICE_ONLY_PHASE):
        return None if _PTXAS_ERROR.search(failure.output) else "ptxas names no error"
    if failure.phase == LINK_PHASE:
        return _doubt_of_link(failure)
    if _REJECTED_FLAG.match(failure.output):
        return None
    place = _reported_line(failure, toolkit)
    if place is None:
        return "the first error is outside the candidate's files"
    message = place.own_message
    if _MISSING_FILE.search(message):
        return None  # the light tree hides none of torch's files
    if _INCOMPLETE.search(message):
        return "a type is incomplete"
    if _TORCH_TYPE.search(message) and (place.is_in_library or _OPERATOR.search(message)):
        return "an operator on torch's types is missing"
    missing = _names_at(place, message, failure, toolkit)
    if missing:
        missing -= names_in_headers(failure.argv, failure.source, deadline)
    return f"{', '.join(sorted(missing)[:5])} may be declared by torch" if missing else None


def _names_at(
    place: _ReportedLine, message: str, failure: CompilerFailure, toolkit: Toolkit
) -> frozenset[str]:
    """Return torch's names at an error that the light build is not known to have declared."""
    whole_code = failure.source.whole_code
    lines = CandidateSource(path="", text=place.text).code.splitlines()[
        max(0, place.line - 1 - LINES_BEFORE) : place.line
    ]
    text = "\n".join(lines)
    if _UNKNOWN.match(message):
        text = " ".join(_MAY_BE_MACRO.findall(text))
    quoted = " ".join("".join(groups) for groups in _QUOTED.findall(message))
    named = (identifiers_in(quoted) | identifiers_in(text)) & toolkit.torch_names
    dispatches = frozenset(_DISPATCH.findall(whole_code)) & toolkit.torch_names
    if dispatches:
        named = (named - _DISPATCHED_TYPES) | dispatches
    return named - names_declared_by(whole_code) - failure.declared


def _doubt_of_link(failure: CompilerFailure) -> str | None:
    """Return why torch's own link might end otherwise: its objects have other headers."""
    own = names_declared_by(failure.source.code)
    for line in _LINK_ERROR.findall(failure.output):
        twice = _LINKED_TWICE.search(line)
        is_own = twice is not None and (twice[1] in own or twice[1].startswith("PyInit_"))
        if is_own or "cannot find -l" in line or "ld returned" in line:
            continue
        return f"the linker failed: {line[-300:]}"
    return None if _LINK_ERROR.search(failure.output) else "the linker names no error"


def _reported_line(failure: CompilerFailure, toolkit: Toolkit) -> _ReportedLine | None:
    """Return the candidate's line that has the first error, or that uses the template with it."""
    found = COMPILER_ERROR.search(failure.output)
    if found is None:
        return None
    text, message = text_of(found["file"], failure.source), found["message"]
    if text is not None:
        if found["line"]:
            message = message.splitlines()[0]  # g++ repeats the candidate's own line below it
        return _ReportedLine(text=text, line=int(found["line"] or found["edg"]), message=message)
    if _is_of_torch(found["file"], toolkit) and not is_of_module(found):
        return None
    if found["line"]:
        before = failure.output[: found.start()]
        message, used = f"{before}{message.splitlines()[0]}", _USED_AT.finditer(before)
    else:
        message = failure.output[found.start() :].partition("\n\n")[0]
        used = _USED_AT_EDG.finditer(message)
    places = [(text_of(use["file"], failure.source), int(use["line"])) for use in used]
    own = [(text, line) for text, line in places if text is not None]
    if not own:
        return None
    return _ReportedLine(
        text=own[-1][0],
        line=own[-1][1],
        message=message,
        is_in_library=True,
        is_of_module=is_of_module(found),
    )


def _is_of_torch(file: str, toolkit: Toolkit) -> bool:
    """Whether `file` is a header of torch, or a light one in its place."""
    folders = (headers_of_torch(), toolkit.folder)
    return any(Path(file).resolve().is_relative_to(folder.resolve()) for folder in folders)
