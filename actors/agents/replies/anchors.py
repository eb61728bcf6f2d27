"""Anchors: the comment lines that a plan puts around the spot in the source that is to change.

Pure.  This file knows what an anchor looks like, inserts pairs, finds them and removes them.
`scaffolds` checks what a planner returned, `unanchored_edits` what a coder changed elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.agents.replies import python_source
from protocol.values import Value

MARK = "<<<IMPROVE {}>>>"
BEGIN, END = MARK.format("BEGIN"), MARK.format("END")
EITHER_MARK = MARK.format("(BEGIN|END)")  # a pattern, as all below
HASH_ANCHOR = re.compile(rf"#\s*{EITHER_MARK}")
STAR_ANCHOR = re.compile(rf"/\*\s*{EITHER_MARK}\s*\*/")
TRAILING_ANCHOR = re.compile(rf"{HASH_ANCHOR.pattern}\s*$")
# Models write the marks in lower case, with spaces and with a plural, too.
ANY_ANCHOR = re.compile(r"<<<\s*IMPROVE (BEGIN|END)S?\s*>>>", re.IGNORECASE)


class AnchorProblem(Value, frozen=True, kw_only=True):
    """Why a text is not a scaffold of the shown source, in a sentence for the model."""

    reason: str


class AnchorPair(Value, frozen=True, kw_only=True):
    """One pair of anchors: 0-based line numbers, and how many comment lines follow BEGIN."""

    begin: int
    end: int
    comments: int


def lines_of(text: str) -> list[str]:
    """Return the lines as Python and compilers count them: a form feed does not end a line."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def text_of(lines: Sequence[str]) -> str:
    """Return the lines as a text that ends with a newline."""
    return "\n".join(lines) + "\n" if lines else ""


def insert_anchors(source: str, first: int, last: int, advice: str) -> str:
    """Return `source` with anchors around its lines [first, last] (1-based), `advice` inside."""
    lines = lines_of(source) or [""]
    if not 1 <= first <= last <= len(lines):
        raise ValueError(f"no lines {first} to {last} in a source of {len(lines)} lines")
    line = lines[first - 1]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    clean = (
        re.sub(r"[\x00-\x1f\x7f]", " ", one) for one in ANY_ANCHOR.sub("", advice).splitlines()
    )
    advice_lines = [one.strip() for one in clean if one.strip()]
    if zone_of(python_source.string_zones(source), first) is None:
        comments = [f"{indent}# {one}" for one in advice_lines]
        marks = f"{indent}# {BEGIN}", f"{indent}# {END}"
    else:
        # These comments are inside a Python string: a quote would end it, a backslash escape.
        advice_lines = [re.sub(r"\*/|/\*|[\\\"'{}]", " ", one).strip() for one in advice_lines]
        comments = [f"{indent}/* {one} */" for one in advice_lines if one]
        marks = f"{indent}/* {BEGIN} */", f"{indent}/* {END} */"
    inside = [marks[0], *comments, *lines[first - 1 : last], marks[1]]
    return text_of([*lines[: first - 1], *inside, *lines[last:]])


def without_anchors(text: str) -> str:
    """Return `text` without its anchors, however they are written; comments and all else stay.

    The next plan for this source would take an anchor that is left for its own.
    """
    others = [line for line in lines_of(text) if not anchor_kind(line)]
    # A line that has a mark beside code or text loses the mark only: the text after the mark must
    # stay a comment.
    return text_of(
        [ANY_ANCHOR.sub("", TRAILING_ANCHOR.sub("", STAR_ANCHOR.sub("", line))) for line in others]
    )


def anchor_pairs(lines: Sequence[str]) -> list[AnchorPair] | AnchorProblem:
    """Return the pairs of anchors in a text: balanced, not nested, at least one."""
    found: list[AnchorPair] = []
    begin: int | None = None
    for number, line in enumerate(lines):
        kind = anchor_kind(line)
        if not kind:
            if ANY_ANCHOR.search(line):
                return _at(number, "an anchor must be a comment line of its own")
        elif kind == "BEGIN":
            if begin is not None:
                return _at(number, "BEGIN inside another pair of anchors")
            begin = number
        elif begin is None:
            return _at(number, "END without BEGIN")
        else:
            comments = _comments_after(lines, begin, number)
            found.append(AnchorPair(begin=begin, end=number, comments=comments))
            begin = None
    if begin is not None:
        return _at(begin, "BEGIN without END")
    return found or AnchorProblem(reason="there are no anchors in it")


def anchor_kind(line: str) -> str:
    """Return "BEGIN" or "END" for an anchor line, "" for any other."""
    match = HASH_ANCHOR.fullmatch(line.strip()) or STAR_ANCHOR.fullmatch(line.strip())
    return match.group(1) if match else ""


def zone_of(zones: Sequence[tuple[int, int]], line: int) -> int | None:
    """Return the index of the string zone in which line `line` begins; None for plain Python."""
    return next((n for n, (first, last) in enumerate(zones) if first <= line <= last), None)


def _comments_after(lines: Sequence[str], begin: int, end: int) -> int:
    in_block = False
    for count, line in enumerate(lines[begin + 1 : end]):
        text = line.strip()
        if in_block or text.startswith("/*"):
            in_block = "*/" not in text
            if not in_block and not text.endswith("*/"):
                return count
        elif not text.startswith(("#", "//")):
            return count
    return end - begin - 1


def _at(number: int, problem: str) -> AnchorProblem:
    return AnchorProblem(reason=f"line {number + 1}: {problem}")
