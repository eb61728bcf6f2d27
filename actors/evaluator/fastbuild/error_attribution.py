"""Whether a failed light build is the candidate's fault, or that of light headers with too little.

The light headers may lack what torch's have.  So an error counts as the candidate's only if it is
in the candidate's own file, and if the light build declared everything that the candidate names and
torch's headers declare.  In doubt torch builds again, and the result of that build counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild.headers.declared_names import names_declared_by
from actors.evaluator.fastbuild.headers.names_in_headers import names_in_headers
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource, identifiers_in
from actors.evaluator.fastbuild.request.compiler_process import Deadline
from protocol.values import Value

_ERROR = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*)(?::(?P<line>\d+)(?::\d+)?: |\((?P<edg>\d+)\): )"
    r"(?:fatal |catastrophic )?error(?: #[\w-]+)?:? (?P<message>.*(?:\n {2,}\S.*)*)$",
    re.MULTILINE,
)
_QUOTED = re.compile(r"‘([^’\n]+)’|\"([^\"\n]+)\"|'([^'\n]+)'")
_MISSING_FILE = re.compile(r"No such file or directory|cannot open source file|could not open")
_INCOMPLETE = re.compile(r"incomplete (class )?type|forward declaration|used before its definition")
_OPERATOR = re.compile(r"no match for .operator|no operator \"")
_TORCH_TYPE = re.compile(r"\b(at|c10|torch|caffe2)::")
LINES_BEFORE = 3
DEVICE_ONLY_PHASES = ("ptxas",)  # the front end accepted the source before they ran


class CompilerFailure(Value, frozen=True, kw_only=True):
    """One compiler's failure."""

    phase: str
    output: str
    source: CandidateSource
    argv: tuple[str, ...]  # compiles the file with the light headers, without -c and -o
    declared: frozenset[str] | None = None  # by these headers; None: not looked up yet


def reason_to_doubt(failure: CompilerFailure, toolkit: Toolkit, deadline: Deadline) -> str | None:
    """Return why torch's own build might end otherwise; None when it would fail in the same way."""
    if failure.phase in DEVICE_ONLY_PHASES:
        return None
    found = _ERROR.search(failure.output)
    text = _text_of(found["file"], failure.source) if found else None
    if found is None or text is None:
        return "the first error is outside the candidate's files"
    message = found["message"]
    if _MISSING_FILE.search(message):
        return None  # the light tree hides none of torch's files
    if _INCOMPLETE.search(message):
        return "a type is incomplete"
    if _OPERATOR.search(message) and _TORCH_TYPE.search(message):
        return "an operator on torch's types is missing"
    whole_code = failure.source.whole_code
    number = int(found["line"] or found["edg"])
    lines = CandidateSource(path="", text=text).code.splitlines()[
        max(0, number - 1 - LINES_BEFORE) : number
    ]
    if found["line"]:
        message = message.splitlines()[0]  # g++ repeats the candidate's own line below it
    quoted = " ".join("".join(groups) for groups in _QUOTED.findall(message))
    named = (identifiers_in(quoted) | identifiers_in("\n".join(lines))) & toolkit.torch_names
    missing = named - names_declared_by(whole_code)
    if missing and failure.declared is None:
        missing -= names_in_headers(failure.argv, failure.source, deadline)
    missing -= failure.declared or frozenset()
    return f"{', '.join(sorted(missing)[:5])} may be declared by torch" if missing else None


def _text_of(file: str, source: CandidateSource) -> str | None:
    """Return the text of the candidate's own file that a compiler calls `file`; None for others."""
    if Path(file).name == Path(source.path).name:
        return source.text
    resolved = str(Path(file).resolve())
    return next((header.text for header in source.headers if header.path == resolved), None)
