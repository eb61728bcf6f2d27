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
from actors.agents.replies.places import PlaceProblem, ShownLines
from actors.agents.replies.replies import EDIT, EDITS, Reply, ReplyProblem, ReplySection
from protocol.values import Value

INPUTS = ("get_inputs", "get_init_inputs")
_INSERTION = re.compile(r"(?:insert\s+)?(?P<side>after|before)\s+(?P<place>.+)", re.I | re.DOTALL)
_VERB = re.compile(r"(?P<verb>replace|change|delete|remove)\s+(?P<place>.+)", re.I | re.DOTALL)
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_NUMBERED = re.compile(r"\s*\d+\t")


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
    """Whether a reply answers with edits."""
    return any(section.name in (EDITS, EDIT) for section in reply.sections)


def edited_source(reply: Reply, shown: ShownLines) -> EditedSource | ReplyProblem:
    """Return the shown source with the reply's edits in it, or what is unclear about them."""
    edits: list[Edit] = []
    for section in reply.sections:
        if section.name == EDITS and section.blocks:
            return ReplyProblem(
                reason="a block under '## Edits' has no heading that names its place, such as"
                " '### span 1' or '### lines 12-14'"
            )
        if section.name == EDIT:
            edit = _edit(section, shown)
            if isinstance(edit, ReplyProblem):
                return edit
            edits.append(edit)
    if not edits:
        return ReplyProblem(reason="there is no edit under '## Edits'")
    return _applied(edits, shown)


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
    if any(_FENCE.match(line) for line in lines):
        return ReplyProblem(
            reason=f"the block of the edit '### {title}' holds a fence: close each block, and use a"
            " longer fence around lines that begin with one"
        )
    if any(line.strip() for line in lines) and all(
        _NUMBERED.match(line) for line in lines if line.strip()
    ):
        return ReplyProblem(
            reason=f"the lines of the edit '### {title}' begin with line numbers: leave these out"
        )
    first, last = place.first, place.last
    if insertion:
        first = place.last + 1 if insertion["side"].lower() == "after" else place.first
        last = first - 1
    return Edit(first=first, last=last, lines=tuple(lines), title=title)


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
