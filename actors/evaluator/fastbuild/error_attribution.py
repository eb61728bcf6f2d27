"""Whose fault a failed light build is: the candidate's, or that of headers which hold too little.

The light headers may lack what torch's have.  So an error counts as the candidate's own only if it
lies in the candidate's own file and everything it names that torch's headers declare was declared
in the light build too.  In doubt torch builds again and its word counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.fastbuild import declared_names
from actors.evaluator.fastbuild.candidate_source import CandidateSource, words
from actors.evaluator.fastbuild.compiler_process import Deadline, run_compiler
from actors.evaluator.fastbuild.toolkit import Toolkit
from protocol.values import Value

_ERROR = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*)(?::(?P<line>\d+)(?::\d+)?: |\((?P<edg>\d+)\): )"
    r"(?:fatal |catastrophic )?error(?: #[\w-]+)?:? (?P<words>.*(?:\n {2,}\S.*)*)$",
    re.MULTILINE,
)
_QUOTED = re.compile(r"‘([^’\n]+)’|\"([^\"\n]+)\"|'([^'\n]+)'")
_MARKER = re.compile(r'^# \d+ "([^"]*)"')
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_MISSING_FILE = re.compile(r"No such file or directory|cannot open source file|could not open")
_INCOMPLETE = re.compile(r"incomplete (class )?type|forward declaration|used before its definition")
_OPERATOR = re.compile(r"no match for .operator|no operator \"")
_TORCH_TYPE = re.compile(r"\b(at|c10|torch|caffe2)::")
LINES_BEFORE = 3
DEVICE_ONLY_PHASES = ("ptxas",)  # what fails there was understood by the front end


class CompilerFailure(Value, frozen=True, kw_only=True):
    """One compiler's failure."""

    phase: str
    output: str
    source: str  # the candidate's file
    text: str  # what stands in it
    argv: tuple[str, ...]  # compiles it with the light headers, without -c and -o


def reason_to_doubt(failure: CompilerFailure, toolkit: Toolkit, deadline: Deadline) -> str | None:
    """Return why torch's own build might say something else; None when it would say the same."""
    if failure.phase in DEVICE_ONLY_PHASES:
        return None
    found = _ERROR.search(failure.output)
    if found is None or Path(found["file"]).name != Path(failure.source).name:
        return "the first error lies outside the candidate's file"
    said = found["words"]
    if _MISSING_FILE.search(said):
        return None  # the tree adds files to torch's and hides none
    if _INCOMPLETE.search(said):
        return "a type is incomplete"
    if _OPERATOR.search(said) and _TORCH_TYPE.search(said):
        return "an operator on torch's types is missing"
    number = int(found["line"] or found["edg"])
    code = CandidateSource(path=failure.source, text=failure.text).code
    lines = code.splitlines()[max(0, number - 1 - LINES_BEFORE) : number]
    if found["line"]:
        said = said.splitlines()[0]  # what follows of g++'s words is the candidate's own line
    quoted = " ".join("".join(groups) for groups in _QUOTED.findall(said))
    named = (words(quoted) | words("\n".join(lines))) & toolkit.torch_names
    missing = named - declared_names.names_declared_by(code)
    missing -= _declared(failure, deadline) if missing else frozenset()
    return f"{', '.join(sorted(missing)[:5])} may be declared by torch" if missing else None


def _declared(failure: CompilerFailure, deadline: Deadline) -> frozenset[str]:
    """Return what the headers of the light build declare or define."""
    folder = Path(failure.source).parent
    text = run_compiler([*failure.argv, "-E"], folder, deadline).output
    macros = run_compiler([*failure.argv, "-E", "-dM"], folder, deadline).output
    own = False
    kept = []
    for line in text.splitlines():
        marker = _MARKER.match(line)
        if marker:
            own = marker[1] == failure.source
        elif not own:
            kept.append(line)
    return declared_names.names_declared_in("\n".join(kept)) | frozenset(_DEFINED.findall(macros))
