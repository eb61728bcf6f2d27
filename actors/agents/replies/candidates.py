"""Candidates: the coder's and the debugger's code, taken out of a reply and checked as text.

Pure.  A reply holds a whole file, or edits of the source that its model was shown.  A candidate
that passes is Python text that defines ModelNew and has no anchors.  Whether it builds and is
right, the evaluator finds out.
"""

from __future__ import annotations

import ast
import re

from actors.agents.replies import python_source
from actors.agents.replies.anchors import lines_of, text_of, without_anchors
from actors.agents.replies.definitions import definitions_of
from actors.agents.replies.edit_questions import question_about_result
from actors.agents.replies.edits import EditedSource, edited_source, has_edits, with_model_new
from actors.agents.replies.folds import NO_FOLD, lost_function, unfolded, unknown_mark
from actors.agents.replies.left_out_code import left_out_code, missing_name
from actors.agents.replies.model_class import class_problem
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import EDIT, EDITS, Reply, ReplyProblem
from actors.agents.replies.unanchored_edits import edits_outside_anchors
from actors.tune_space import TuneSpaceError, tune_space
from protocol.values import Candidate, Plan

# The names of macros: in a compiler's flags, defined in the text, and in a space of variants.
TUNE = re.compile(r"^TUNE\b[^=\n]*=\s*\{([^}]*)\}", re.MULTILINE)
TUNED_NAME = re.compile(r"""["'](\w+)["']\s*:""")
SHORT_MACRO = re.compile(r"(?<!\S)-D[ ]?[A-Za-z](?:=|(?!\S))")  # its name: in torch's headers
MACRO = re.compile(r"-D[ ]?([A-Za-z_]\w*)|^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
UNROLL = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t]*\(?[ \t]*([A-Za-z_]\w*)", re.MULTILINE)
INTEGERS = "int|unsigned|long|short|size_t|auto|u?int(?:8|16|32|64)_t"
FILE = re.compile(r"\b(([A-Za-z_]\w*)\.(py|cuh?|cpp|cc|hp?p?))\b")
BOTH_FORMS = (
    "the reply has both '## Edits' and a whole file ('## Candidate'), and they are not the same"
    " file: give one of them"
)
MAX_BYTES = 256 * 1024  # ten times the largest kernel seen; messages and run.db can hold it


def read_candidate(
    reply: Reply, plan: Plan, shown: ShownLines | None = None
) -> Candidate | ReplyProblem:
    """Return the candidate in `reply`, or what is missing; `shown`: what its edits belong to."""
    edited = _edited(reply, shown) if shown and has_edits(reply) else _whole_file(reply, shown)
    if isinstance(edited, ReplyProblem):
        return edited
    outside = edits_outside_anchors(plan, edited.source)
    return Candidate(source=edited.source, outside=outside, edits=edited.edits)


def _whole_file(reply: Reply, shown: ShownLines | None) -> EditedSource | ReplyProblem:
    before = shown.source if shown else ""

    def whole(text: str) -> str:
        lines = lines_of(without_anchors(text))
        return text_of(unfolded(lines, shown.lines, shown.folds)) if shown else text_of(lines)

    code = reply.code("candidate", lambda text: not _file_problem(whole(text), before))
    if code is None:
        return ReplyProblem(reason="the reply has no code under '## Candidate'")
    source = whole(code)
    problem = _file_problem(source, before) or _other_file(source, reply)
    problem = problem or _folded_problem(source, shown)
    return ReplyProblem(reason=problem) if problem else EditedSource(source=source, edits=())


def _folded_problem(source: str, shown: ShownLines | None) -> str:
    """Return what is missing where a whole file calls a function whose body was not shown."""
    if shown is None or not shown.folds:
        return ""
    unknown = unknown_mark(lines_of(source), shown.folds)
    if unknown:
        return f"the code has `{unknown}`: {NO_FOLD}"
    lost = lost_function(source, {one.name for one in definitions_of(source)}, shown.folds)
    if lost is None:
        return ""
    return (
        f"the code calls {lost.name}, whose body was not shown: write its head with `{lost.mark}`"
        f" behind it, as in line {lost.first - 1}, or answer with edits"
    )


def _file_problem(source: str, shown: str) -> str:
    """Return why a text is not a whole candidate; a sketch leaves code of the shown source out."""
    problem = candidate_problem(source)
    if problem:
        return problem
    left_out, missing = left_out_code(source, shown), missing_name(source, shown)
    if left_out:
        return f"the code leaves lines out ({left_out!r}): write all of it, or answer with edits"
    only_shown = f"the code uses {missing!r}, which only the shown source defines: write all of it"
    if missing:
        return f"{only_shown}, or answer with edits"
    return class_problem(source, with_model_new(shown))


def _other_file(source: str, reply: Reply) -> str:
    """Return what is wrong where an answer is in several files: a candidate is one; else ""."""
    imported = python_source.imported_modules(source)
    for section in reply.sections:
        for file, name, ending in FILE.findall(f"{section.title}\n{section.text}"):
            if name in imported if ending == "py" else re.search(rf"""["']{file}["']""", source):
                return f"the code needs another file, {file}: put all of it into one"
    return ""


def _edited(reply: Reply, shown: ShownLines) -> EditedSource | ReplyProblem:
    edited = edited_source(reply, shown)
    if not isinstance(edited, ReplyProblem):
        problem = candidate_problem(edited.source)
        before = with_model_new(shown.source)
        problem = problem or question_about_result(before, edited.source)
        problem = problem or class_problem(edited.source, before)
        edited = ReplyProblem(reason=f"with the edits in place, {problem}") if problem else edited
    files = [b.code for s in reply.sections if s.name == "candidate" for b in s.blocks]
    if not files:
        return _beside_files(edited, reply, shown)
    whole = _whole_file(reply, shown)
    texts = [None if isinstance(one, ReplyProblem) else one.source for one in (edited, whole)]
    if texts[0] == texts[1]:
        return edited
    return ReplyProblem(reason=BOTH_FORMS)


def _beside_files(
    edited: EditedSource | ReplyProblem, reply: Reply, shown: ShownLines
) -> EditedSource | ReplyProblem:
    """Return the edited source, or a question where a whole file without its heading differs."""
    known = {
        shown.source.strip(),
        "" if isinstance(edited, ReplyProblem) else edited.source.strip(),
    }
    for section in reply.sections:
        for block in section.blocks if section.name not in (EDIT, EDITS) else ():
            if block.code.strip() not in known and not candidate_problem(block.code):
                return ReplyProblem(reason=BOTH_FORMS)
    return edited


def candidate_problem(source: str) -> str:
    """Return why `source` can't be a candidate, in one line; "" when it can."""
    if len(source.encode(errors="replace")) > MAX_BYTES:
        return f"the code is longer than {MAX_BYTES // 1024} KiB"
    module = python_source.parse(source)
    if isinstance(module, str):
        return f"the code is not valid Python: {module}"
    if not python_source.defines_class(module, "ModelNew"):
        return "the code defines no class ModelNew"
    if "" in python_source.imported_modules(source):
        return "the code imports from its own folder (from . import …): put all of it into one file"
    return unexpanded_macro(source) or _short_macro(module) or _broken_space(source)


def _short_macro(module: ast.Module) -> str:
    """Return what is wrong where a flag makes a macro of one letter; else "".

    Torch's headers have templates whose parameters are called so.  A string of flags begins with
    one; comments and compiled code may tell of others.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            flags = node.value.lstrip()
            found = SHORT_MACRO.search(flags) if flags.startswith("-") else None
            if found:
                return f"the flag {found[0]} breaks torch's headers: use a longer name"
    return ""


def _broken_space(source: str) -> str:
    """Return what the judge would say of a `TUNE` that is not a literal of values; else ""."""
    try:
        tune_space(source)
    except TuneSpaceError as error:
        return str(error)
    return ""


def unexpanded_macro(source: str) -> str:
    """Return what is wrong where nvcc would find a macro's name in `#pragma unroll`; else "".

    The preprocessor leaves such a line as it is, so the build ends with "identifier is undefined".
    """
    macros = {name for pair in MACRO.findall(source) for name in pair if name}
    macros |= {name for space in TUNE.findall(source) for name in TUNED_NAME.findall(space)}
    for name in UNROLL.findall(source):
        declared = rf"\b(?:{INTEGERS})\s+(?:[^;{{}}()]*,\s*)?{name}\b"  # alone or in a list
        if name in macros and not re.search(declared, source):
            return (
                f"`#pragma unroll {name}` names a macro, which nvcc does not expand there: write "
                f"`constexpr int unroll = {name};` and `#pragma unroll unroll`"
            )
    return ""
