"""Edits: the parts of a source that a reply replaces, put into the source that was shown.

Pure.  Under `## Edits` each heading names a place (`places`) and its block is the new text.
Promises the shown source with exactly these lines replaced, or a question about the first edit that
can't be placed.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from itertools import pairwise

from actors.agents.replies import python_source
from actors.agents.replies.anchors import lines_of, text_of, without_anchors
from actors.agents.replies.decorators import defines_something, with_decorators
from actors.agents.replies.edit_questions import (
    has_numbers,
    question_about_block,
    repeated_line,
)
from actors.agents.replies.folds import NO_FOLD, fold_of_mark, unfolded, unknown_mark
from actors.agents.replies.places import Place, PlaceProblem, ShownLines
from actors.agents.replies.replies import (
    EDIT,
    EDITS,
    FencedBlock,
    Reply,
    ReplyProblem,
    ReplySection,
)
from protocol.values import Value

INPUTS = ("get_inputs", "get_init_inputs")
_INSERTION = re.compile(r"(?:insert\s+)?(?P<side>after|before)\s+(?P<place>.+)", re.I | re.DOTALL)
_VERB = re.compile(
    r"(?P<verb>replace|change|delete|remove)\s+(?P<place>.+?)(?:\s+(?:with|by|to)\s*:?)?",
    re.I | re.DOTALL,
)


class Edit(Value, frozen=True, kw_only=True):
    """New lines for [first, last] of the shown source; (n, n - 1) inserts before line n."""

    first: int
    last: int
    lines: tuple[str, ...]
    title: str

    @property
    def description(self) -> str:
        """The edit in a line for people: "span 1 (lines 18-33): 16 lines become 14"."""
        new, old = len(self.lines), self.last - self.first + 1
        if not old:
            return f"{self.title}: {new} new"
        where = "" if str(self.first) in self.title else f" (lines {self.first}-{self.last})"
        return f"{self.title}{where}: {old} line{'s' * (old != 1)} become{'s' * (old == 1)} {new}"


class EditedSource(Value, frozen=True, kw_only=True):
    """The shown source with the edits of a reply in it."""

    source: str
    edits: tuple[str, ...]  # their descriptions, in the order of their lines


def has_edits(reply: Reply) -> bool:
    """Whether a reply answers with edits: a heading that names a place in prose is none."""
    return any(one.name == EDITS or (one.name == EDIT and one.blocks) for one in reply.sections)


def edited_source(reply: Reply, shown: ShownLines) -> EditedSource | ReplyProblem:
    """Return the shown source with the reply's edits in it, or what is unclear about them."""
    edits: list[Edit] = []
    for section in _answering(reply):
        if section.name == EDITS and section.blocks:
            return ReplyProblem(
                reason="a block under '## Edits' has no heading that names its place, such as"
                " '### span 1' or '### lines 12-14'"
            )
        if section.name == EDIT and not _is_remark(section, shown):
            edit = _edit(section, shown)
            if isinstance(edit, ReplyProblem):
                return edit
            if edit not in edits:  # the same words twice
                edits.append(edit)
    if not edits:
        return ReplyProblem(reason="there is no edit under '## Edits'")
    return _applied(edits, shown)


def _answering(reply: Reply) -> list[ReplySection]:
    """Return the sections from '## Edits' on, and before it those places that have a block."""
    first = next((n for n, one in enumerate(reply.sections) if one.name == EDITS), 0)
    return [one for n, one in enumerate(reply.sections) if n >= first or one.blocks]


def _edit(section: ReplySection, shown: ShownLines) -> Edit | ReplyProblem:
    title = section.title
    insertion, verb = _INSERTION.fullmatch(title), _VERB.fullmatch(title)
    match = insertion or verb
    place = shown.find(match["place"] if match else title)
    if isinstance(place, PlaceProblem):
        return ReplyProblem(reason=f"the edit '### {title}' can't be placed: {place.reason}")
    deletes = verb is not None and verb["verb"].lower() in ("delete", "remove")
    if len(section.blocks) != (0 if deletes else 1):
        wanted = "no block" if deletes else "exactly one block with its new lines"
        return ReplyProblem(
            reason=f"the edit '### {title}' has {len(section.blocks)} blocks: it needs {wanted}"
        )
    code = "" if deletes else section.blocks[0].code
    lines = lines_of(without_anchors(code)) if code.strip() else []
    first, last = place.first, place.last
    problem = _fold_problem(lines, place, shown, is_insertion=bool(insertion))
    if problem:
        return ReplyProblem(reason=f"the edit '### {title}' has {problem}")
    lines = unfolded(lines, shown.lines, shown.folds)
    if place.is_named and not insertion:
        lines = with_decorators(lines, shown.lines[first - 1 : last])
        if not deletes and not defines_something(lines, shown.lines[first - 1 : last]):
            return ReplyProblem(
                reason=f"the block of the edit '### {title}' defines nothing: write the head of"
                " what it replaces, too, or name the lines of its body"
            )
    if insertion:
        first = place.last + 1 if insertion["side"].lower() == "after" else place.first
        last = first - 1
    edit = Edit(first=first, last=last, lines=tuple(lines), title=title)
    question = "" if deletes else _question(edit, section.blocks[0], shown)
    return ReplyProblem(reason=question) if question else edit


def _fold_problem(
    lines: Sequence[str], place: Place, shown: ShownLines, *, is_insertion: bool
) -> str:
    """Return what is wrong with marks of lines that were not shown; "" for nothing."""
    unknown = unknown_mark(lines, shown.folds)
    if unknown:
        return f"`{unknown}`: {NO_FOLD}"
    for fold in (fold_of_mark(line, shown.folds) for line in lines):
        if fold and (is_insertion or not place.first < fold.first <= fold.last <= place.last):
            return (
                f"`{fold.mark}`, which stands for lines that stay where they are: leave it out, or"
                " name the lines with it"
            )
    return ""


def _question(edit: Edit, block: FencedBlock, shown: ShownLines) -> str:
    """Return why an edit is not surely what is meant; "" if it is."""
    replaced = shown.lines[edit.first - 1 : edit.last]
    question = question_about_block(block, edit.lines, replaced)
    if not question and has_numbers(edit.lines, edit.first, edit.last, shown):
        question = "has line numbers at the beginning of lines: leave these out"
    if question:
        return f"the block of the edit '### {edit.title}' {question}"
    is_insertion = edit.last < edit.first
    number = None if is_insertion else repeated_line(edit.first, edit.last, edit.lines, shown)
    if number is None:
        return ""
    return (
        f"the edit '### {edit.title}' (lines {edit.first}-{edit.last}) also holds line {number},"
        " which is next to these lines and would be there twice: name the lines again, with line"
        f" {number} or without it"
    )


def _is_remark(section: ReplySection, shown: ShownLines) -> bool:
    """Whether a heading below '## Edits' is only text: it names no place and has no block."""
    title = section.title
    match = _INSERTION.fullmatch(title) or _VERB.fullmatch(title)
    place = shown.find(match["place"] if match else title)
    return not section.blocks and isinstance(place, PlaceProblem) and place.is_unnamed


def _applied(edits: Sequence[Edit], shown: ShownLines) -> EditedSource | ReplyProblem:
    ordered = sorted(edits, key=lambda edit: (edit.first, edit.last))
    for one, other in pairwise(ordered):
        if other.first <= one.last:
            return ReplyProblem(
                reason=f"the edits '### {one.title}' (lines {one.first}-{one.last}) and"
                f" '### {other.title}' (lines {other.first}-{other.last}) overlap: join them"
            )
    # New lines end as those of the source do: a file with both ends confuses diffs.
    end = "\r" if shown.lines and shown.lines[0].endswith("\r") else ""
    lines: list[str] = []
    position = 0
    for edit in ordered:
        lines += shown.lines[position : edit.first - 1]
        lines += (f"{line}{end}" for line in edit.lines)
        position = edit.last
    source = text_of([*lines, *shown.lines[position:]])
    if source == text_of(shown.lines):
        return ReplyProblem(reason="the edits change nothing in the source")
    return EditedSource(
        source=with_model_new(source), edits=tuple(edit.description for edit in ordered)
    )


def with_model_new(source: str) -> str:
    """Return the task's own source as a candidate: its class `Model` is called `ModelNew`.

    The functions that make inputs are left out.  A source that has a `ModelNew` stays as it is.
    """
    module = python_source.parse(source)
    if isinstance(module, str) or python_source.defines_class(module, "ModelNew"):
        return source
    if not any(isinstance(one, ast.ClassDef) and one.name == "Model" for one in module.body):
        return source
    lines = source.split("\n")
    previous = ""
    names: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string == "Model" and previous != ".":
            names.append(token.start)
        previous = token.string
    for row, column in reversed(names):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column]}ModelNew{line[column + len('Model') :]}"
    for number in sorted(_lines_of_inputs(module), reverse=True):
        del lines[number - 1]
    return "\n".join(lines).rstrip("\n") + "\n"


def _lines_of_inputs(module: ast.Module) -> set[int]:
    """Return the lines of the functions that only the judge calls."""
    made = [one for one in module.body if isinstance(one, ast.FunctionDef) and one.name in INPUTS]
    return {
        number for one in made for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }
