"""Anchors: the comment lines that a plan puts around the spot in the source that is to change.

Pure.  This file knows what an anchor looks like, puts pairs in, finds them and takes them out;
`scaffolds` checks what a planner returned, `outside` compares what a coder returned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.agents.replies import python_source
from protocol.values import Value

BEGIN = "<<<IMPROVE BEGIN>>>"
END = "<<<IMPROVE END>>>"
HASH_ANCHOR = re.compile(r"#\s*<<<IMPROVE (BEGIN|END)>>>")
STAR_ANCHOR = re.compile(r"/\*\s*<<<IMPROVE (BEGIN|END)>>>\s*\*/")
TRAILING_ANCHOR = re.compile(HASH_ANCHOR.pattern + r"\s*$")
ANY_ANCHOR = re.compile(r"<<<\s*IMPROVE (BEGIN|END)S?\s*>>>", re.IGNORECASE)


class AnchorProblem(Value, frozen=True, kw_only=True):
    """Why a text is no scaffold of the shown source, in words for the model."""

    reason: str


class AnchorPair(Value, frozen=True, kw_only=True):
    """One pair of anchors: 0-based line numbers, and how many comment lines follow BEGIN."""

    begin: int
    end: int
    comments: int


def lines_of(text: str) -> list[str]:
    """Return the lines as Python and compilers count them: a form feed ends none."""
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
    words = [one.strip() for one in clean if one.strip()]
    if zone_of(python_source.string_zones(source), first) is None:
        comments = [f"{indent}# {one}" for one in words]
        marks = f"{indent}# {BEGIN}", f"{indent}# {END}"
    else:
        # These comments stand in a Python string: no quote may end it, no backslash escape.
        words = [re.sub(r"\*/|/\*|[\\\"'{}]", " ", one).strip() for one in words]
        comments = [f"{indent}/* {one} */" for one in words if one]
        marks = f"{indent}/* {BEGIN} */", f"{indent}/* {END} */"
    inside = [marks[0], *comments, *lines[first - 1 : last], marks[1]]
    return text_of([*lines[: first - 1], *inside, *lines[last:]])


def without_anchors(text: str) -> str:
    """Return `text` without its anchors, however they are written; all else stays, comments too.

    One that is left would be taken for a plan's own when the source is grown.
    """
    kept = [line for line in lines_of(text) if not anchor_kind(line)]
    # A mark that shares its line with code or with words loses the mark only: the words after it
    # must stay a comment.
    return text_of(
        [ANY_ANCHOR.sub("", TRAILING_ANCHOR.sub("", STAR_ANCHOR.sub("", line))) for line in kept]
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
    """Return which of the string zones line `line` begins in; None for plain Python."""
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


def _at(number: int, words: str) -> AnchorProblem:
    return AnchorProblem(reason=f"line {number + 1}: {words}")
