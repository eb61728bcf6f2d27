"""Replies: a model's text, cut into named sections and fenced blocks.

Pure, and tolerant of what models really write: text around the sections, headings in another case
or size, several blocks, fences in fences, CRLF, a block that was never closed.  This file judges
nothing; the roles judge, and say what is wrong in a `ReplyProblem`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from actors.agents.replies.anchors import lines_of
from protocol.values import GiveUpScope, Value

# Headings by which a model says that it has no answer, and what it gives up on.
REFUSALS: dict[str, GiveUpScope] = {
    "cannot": "attempt",
    "cannot at this node": "node",
    "cannot at this task": "task",
}
EDITS = "edits"  # the heading above edits; each of these has a heading of its own, an EDIT
EDIT = "edit"
SECTION_NAMES = (
    *("advice", "anchors", "source", EDITS, "candidate", "diagnosis", "reflection"),
    *REFUSALS,
)
_HEADING = re.compile(r" {0,3}#{1,6}\s*(?:\d+[.)]\s*)?[*_`]*([^*_`:#]*?)[*_`]*:?[*_`]*\s*#*\s*")
_BOLD = re.compile(r" {0,3}\*\*([A-Za-z]+):?\*\*:?\s*")
_LIST_MARK = r"(?:[-*+]|\d+[.)])\s+"
_EDIT_HEADING = re.compile(rf" {{0,3}}(?:{_LIST_MARK})?(?P<mark>#{{2,6}})\s+(?P<title>\S.*)")
_WRAPPED = re.compile(r"(?P<mark>\*\*|\*|__|_|`)(?P<text>[^`*]+)(?P=mark)(?P<rest>.*)")
_COUNT = re.compile(r"(?:(?:edit|change)\s*#?\d+\s*[:.)–—-]|\d+[.)])\s+", re.IGNORECASE)
# One that names a place surely: it heads an edit also where '## Edits' was forgotten.
_PLACE_TITLE = re.compile(
    r"(?:(?:replace|change|delete|remove|insert|after|before)\s+)*(?:marked\s+)?"
    r"(?:span\s+\d|lines?\s+[\d`]|(?:function|method|kernel|class|struct)\s+[\w`]|from\s+`).*",
    re.IGNORECASE,
)
_FENCE = re.compile(rf"(\s*(?:{_LIST_MARK})*)(`{{3,}}|~{{3,}})\s*([^`~\s]*)[^`]*")


# What some models write before their answer; servers may leave the opening mark out.
_THOUGHTS = r"\s*<(?P<name>think|thinking|thought|reasoning|scratchpad)>"
_THINKING = re.compile(
    rf"{_THOUGHTS}.*?</(?P=name)>|.*?^[ \t]*</think(?:ing)?>[ \t]*$",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_OPEN_THINKING = re.compile(_THOUGHTS, re.IGNORECASE)
MARKDOWN = ("markdown", "md")  # languages of a block that holds a whole answer

# Longer lines are text: the patterns take a time that grows faster than their length.
MAX_HEADING, MAX_FENCE, MAX_PLACE = 200, 400, 2_000
SHOWN_CHARS = 80  # of a heading that is longer


class ReplyProblem(Value, frozen=True, kw_only=True):
    """Why a reply can't be used: told to the model once, and then stored with the attempt."""

    reason: str
    is_final: bool = False  # asking again would not help: the model refused or said that it can't
    gives_up_on: GiveUpScope = "attempt"  # what the model said that it can never do


class FencedBlock(Value, frozen=True, kw_only=True):
    """One fenced block."""

    language: str  # the first word after the fence, lower case
    code: str
    mark: str = "```"  # the fence
    is_closed: bool = True


class ReplySection(Value, frozen=True, kw_only=True):
    """The text and the code under one heading."""

    name: str  # one of SECTION_NAMES, EDIT, or "" where the heading is not known
    title: str = ""  # the heading of an EDIT: what it changes
    text: str = ""  # without its blocks
    blocks: tuple[FencedBlock, ...] = ()
    joined_code: str = ""  # from the first fence to the last: the fences between may mislead


class Reply(Value, frozen=True, kw_only=True):
    """A whole reply."""

    sections: tuple[ReplySection, ...]

    def text(self, name: str) -> str:
        """Return the text under the first heading `name` that has any; "" when none has."""
        return next((s.text for s in self.sections if s.name == name and s.text), "")

    def code(self, name: str, fits: Callable[[str], bool]) -> str | None:
        """Return the code under heading `name` that fits, or any that fits, or the named code.

        The last block that fits wins: a model that changes its mind corrects itself further down.
        Where no block fits, the first code under the heading is returned, so that its fault can be
        named.  Of other code only what stands behind the heading counts, if there is one: before
        it are sketches.
        """
        named = [section for section in self.sections if section.name == name]
        behind = self.sections[self.sections.index(named[0]) :] if named else self.sections
        others = [section for section in behind if section.name != name]
        fenced_code = [block.code for section in named for block in section.blocks]
        unfenced = [section.text + "\n" for section in named if not section.blocks]
        choices = (
            fenced_code,
            [section.joined_code for section in named],
            unfenced,
            [block.code for section in others for block in section.blocks],
            [section.joined_code for section in others],
        )
        for codes in choices:
            fitting = [code for code in codes if code.strip() and fits(code)]
            if fitting:
                return fitting[-1]
        return next((code for codes in choices[:1] for code in codes if code.strip()), None)


def fenced(code: str, language: str = "python") -> str:
    """Return `code` as a block whose fence is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    end = "" if code.endswith("\n") else "\n"
    return f"{fence}{language}\n{code}{end}{fence}"


def parse_reply(text: str) -> Reply:
    """Return the sections of a reply; any text has at least the one without a name.

    What a model thought before its answer is not part of it; an answer may stand in a block.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    has_thoughts = text.lstrip().startswith("<") or "</think" in text.lower()
    thought = _THINKING.match(text) if has_thoughts else None
    reply = _parsed(text[thought.end() :] if thought else text)
    if has_thoughts and not thought and _OPEN_THINKING.match(text):
        reply = _last_candidate(reply)
    if any(section.name for section in reply.sections):
        return reply
    blocks = [block for section in reply.sections for block in section.blocks]
    inner = [_parsed(block.code) for block in blocks if block.language in MARKDOWN]
    return next((one for one in inner if any(each.name for each in one.sections)), reply)


def _last_candidate(reply: Reply) -> Reply:
    """Return the last whole file of thoughts that never end, and what follows it.

    Edits and other sections among such thoughts may be sketches.
    """
    for number, section in reversed([*enumerate(reply.sections)]):
        is_whole = section.blocks and all(block.is_closed for block in section.blocks)
        if section.name == "candidate" and is_whole:
            return Reply(sections=reply.sections[number:])
    return _parsed("")


def _parsed(text: str) -> Reply:
    lines = lines_of(text)
    spans = _block_spans(lines)
    in_block = {number for first, last in spans for number in range(first, last + 1)}
    heads = [(0, "", "")]
    for number, line in enumerate(lines):
        if number not in in_block:
            name = _heading(line)
            title = None if name else _edit_title(line, is_below=heads[-1][1] in (EDITS, EDIT))
            if title is not None:
                heads.append((number, EDIT, title))
            elif name is not None:
                heads.append((number, name, ""))
    stops = [number for number, _, _ in heads[1:]] + [len(lines)]
    sections = [
        _section(name, title, lines, start, stop, [s for s in spans if start <= s[0] < stop])
        for (start, name, title), stop in zip(heads, stops, strict=True)
    ]
    return Reply(sections=tuple(sections))


def is_open_ended(reply: Reply) -> bool:
    """Whether more may have followed that would count: other edits, places, the rest of a block."""
    return any(
        section.name in ("anchors", EDITS, EDIT) or not all(b.is_closed for b in section.blocks)
        for section in reply.sections
    )


def _section(
    name: str,
    title: str,
    lines: Sequence[str],
    start: int,
    stop: int,
    spans: Sequence[tuple[int, int]],
) -> ReplySection:
    in_block = {number for first, last in spans for number in range(first, last + 1)}
    first = start + 1 if name else start
    prose = [lines[n] for n in range(first, stop) if n not in in_block]
    joined_code = _code(lines, spans[0][0], spans[-1][1]) if len(spans) > 1 else ""
    return ReplySection(
        name=name,
        title=title,
        text="\n".join(prose).strip(),
        blocks=tuple(
            FencedBlock(
                language=_language(lines[a]),
                mark=fence_of(lines[a]),
                code=_code(lines, a, b),
                is_closed=_is_closed(lines, a, b),
            )
            for a, b in spans
        ),
        joined_code=joined_code,
    )


def _heading(line: str) -> str | None:
    """Return the known name in a heading, "" for an unknown heading, None for no heading."""
    if len(line) > MAX_HEADING:
        return "" if line.lstrip().startswith("##") else None
    match = _BOLD.fullmatch(line)
    if match is not None:
        name = match.group(1).lower()
        return name if name in SECTION_NAMES else None
    match = _HEADING.fullmatch(line)
    if match is None:
        return None
    name = match.group(1).strip().lower()
    if name in SECTION_NAMES:
        return name
    return "" if line.lstrip().startswith("##") else None  # one # may be a comment


def _edit_title(line: str, *, is_below: bool) -> str | None:
    """Return the place that a heading names; None for another heading.

    Below '## Edits' each smaller heading names one.  Emphasis around the place is not part of it.
    """
    if len(line) > MAX_PLACE:  # a question names its beginning
        return f"{line.strip(' #')[:SHOWN_CHARS]}…" if is_below and "###" in line[:7] else None
    match = _EDIT_HEADING.fullmatch(line)
    if match is None:
        return None
    title = match["title"].rstrip(" \t#")
    wrapped = _WRAPPED.fullmatch(title)
    if wrapped:
        title = wrapped["text"].rstrip(":").strip() + wrapped["rest"]
    title = _COUNT.sub("", title, count=1) if _COUNT.match(title) else title
    is_small = len(match["mark"]) > 2
    return title if (is_below and is_small) or _PLACE_TITLE.fullmatch(title) else None


def _block_spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return the line numbers of the outermost fenced blocks, their fences included."""
    spans: list[tuple[int, int]] = []
    number = 0
    while number < len(lines):
        if fence_of(lines[number]):
            last = _closing(lines, number)
            spans.append((number, last))
            number = last
        number += 1
    return spans


def _closing(lines: Sequence[str], opening: int) -> int:
    """Return the line on which the block that begins at `opening` ends."""
    mark = fence_of(lines[opening])
    depth = 1
    bare: list[int] = []
    for number in range(opening + 1, len(lines)):
        inner = fence_of(lines[number])
        if not inner or inner[0] != mark[0] or len(inner) < len(mark):
            continue
        if _language(lines[number]):
            depth += 1
            continue
        bare.append(number)
        depth -= 1
        if depth == 0:
            return number
    # The fences do not pair up.  The block ends at the last bare fence before the next known
    # heading; without a bare fence it was never closed.
    stop = opening + 1
    while stop < len(lines) and not (lines[stop].startswith("##") and _heading(lines[stop])):
        stop += 1
    return max((number for number in bare if number < stop), default=stop - 1)


def fence_of(line: str) -> str:
    """Return the marks of a line that opens or closes a block; "" of any other line."""
    match = _fence(line)
    return match.group(2) if match else ""


def _fence(line: str) -> re.Match[str] | None:
    return _FENCE.fullmatch(line) if len(line) <= MAX_FENCE else None


def _language(line: str) -> str:
    match = _fence(line)
    return match.group(3).lower() if match else ""


def _code(lines: Sequence[str], first: int, last: int) -> str:
    match = _fence(lines[first])
    indent = match.group(1) if match else ""
    indent = re.sub(r"\S", " ", indent)  # the mark of a list's item
    body = lines[first + 1 : last if _is_closed(lines, first, last) else last + 1]
    return "".join(line.removeprefix(indent) + "\n" for line in body)


def _is_closed(lines: Sequence[str], first: int, last: int) -> bool:
    return last > first and bool(fence_of(lines[last])) and not _language(lines[last])
