"""Scaffolds: a source with anchors and advice in it, checked against the source that was shown.

Pure.  Every planner's answer is checked here.  Promises: a scaffold that passes is the shown source
plus anchor lines and plan comments and nothing else, byte for byte.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from actors.agents.replies import python_source
from actors.agents.replies.anchors import (
    ANY_ANCHOR,
    BEGIN,
    HASH_ANCHOR,
    STAR_ANCHOR,
    AnchorPair,
    AnchorProblem,
    anchor_kind,
    anchor_pairs,
    lines_of,
    text_of,
    zone_of,
)
from protocol.values import Value

COMMENT_MARKS = re.compile(r"^\s*(?:#|//|/\*)|\*/\s*$")


class Scaffold(Value, frozen=True, kw_only=True):
    """A checked scaffold; (n, n - 1) is an insertion point before line n."""

    text: str
    spans: tuple[tuple[int, int], ...]  # the source's own lines inside, counted in `text`
    source_spans: tuple[tuple[int, int], ...]  # the same lines, counted in the bare source


def check_scaffold(scaffold: str, source: str) -> Scaffold | AnchorProblem:
    """Return the checked scaffold of `source`, or what is wrong with it.

    Its lines are the source's own: blanks that a model dropped at line ends are restored.
    """
    theirs, ours = lines_of(scaffold), lines_of(source)
    if any(ANY_ANCHOR.search(line) for line in ours):
        return AnchorProblem(reason="the shown source already has anchors in it")
    found = anchor_pairs(theirs)
    if isinstance(found, AnchorProblem):
        return found
    added = _align(theirs, ours, found)
    if added is None:
        theirs = _with_trailing_lines_of(ours, theirs, found[-1].end + 1)
        added = _align(theirs, ours, found)
    if added is None:
        return _first_change(theirs, ours, found)
    checked = _rebuild(theirs, ours, found, added)
    return _language_problem(checked, theirs, source, found) or checked


def notes_of(checked: Scaffold) -> tuple[str, ...]:
    """Return what a plan says at each of its places, in a line; "" where it says nothing."""
    lines = lines_of(checked.text)
    found = []
    for first, _last in checked.spans:
        note: list[str] = []
        for line in reversed(lines[: first - 1]):
            if anchor_kind(line):
                break
            note.insert(0, COMMENT_MARKS.sub("", line).strip())
        found.append(" ".join(note))
    return tuple(found)


def _with_trailing_lines_of(ours: Sequence[str], theirs: Sequence[str], first: int) -> list[str]:
    """Return `theirs` with as many blank lines at its end as `ours` has: models drop these."""

    def blank_end(lines: Sequence[str]) -> int:
        return next((n for n, line in enumerate(reversed(lines)) if line.strip()), len(lines))

    spare = min(blank_end(theirs), len(theirs) - first)
    return [*theirs[: len(theirs) - spare], *[""] * blank_end(ours)]


def _align(
    theirs: Sequence[str], ours: Sequence[str], found: Sequence[AnchorPair]
) -> list[int] | None:
    """Return how many comment lines were added after each BEGIN, or None: the source changed.

    The source may begin a span with comments of its own, so every count is tried.  Only one way to
    reach each position is remembered, so the time stays linear in the spans.
    """
    head = theirs[: found[0].begin]
    if not _same(head, ours[: len(head)]):
        return None
    stops = [*(pair.begin for pair in found[1:]), len(theirs)]
    reached: dict[int, list[int]] = {len(head): []}
    for pair, stop in zip(found, stops, strict=True):
        block = [*theirs[pair.begin + 1 : pair.end], *theirs[pair.end + 1 : stop]]
        further: dict[int, list[int]] = {}
        for position, counts in reached.items():
            for count in range(pair.comments, -1, -1):
                rest = block[count:]
                if _same(rest, ours[position : position + len(rest)]):
                    further.setdefault(position + len(rest), [*counts, count])
        reached = further
    return reached.get(len(ours))


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    return len(one) == len(other) and all(
        a.rstrip() == b.rstrip() for a, b in zip(one, other, strict=True)
    )


def _rebuild(
    theirs: Sequence[str], ours: Sequence[str], found: Sequence[AnchorPair], added: Sequence[int]
) -> Scaffold:
    text: list[str] = []
    spans: list[tuple[int, int]] = []
    source_spans: list[tuple[int, int]] = []
    position = copied = 0  # in `ours`; in `theirs`
    for pair, count in zip(found, added, strict=True):
        before, inside = pair.begin - copied, pair.end - pair.begin - 1 - count
        text += ours[position : position + before]
        position += before
        text += (line.rstrip() for line in theirs[pair.begin : pair.begin + 1 + count])
        spans.append((len(text) + 1, len(text) + inside))
        source_spans.append((position + 1, position + inside))
        text += [*ours[position : position + inside], theirs[pair.end].rstrip()]
        position += inside
        copied = pair.end + 1
    return Scaffold(
        text=text_of([*text, *ours[position:]]),
        spans=tuple(spans),
        source_spans=tuple(source_spans),
    )


def _language_problem(
    checked: Scaffold, theirs: Sequence[str], source: str, found: Sequence[AnchorPair]
) -> AnchorProblem | None:
    if isinstance(python_source.parse(source), str):
        return None  # the shown source is not Python either: there is nothing to compare
    zones = python_source.string_zones(source)
    for (first, last), pair in zip(checked.source_spans, found, strict=True):
        zone = zone_of(zones, first)
        if zone != zone_of(zones, last + 1):
            return AnchorProblem(
                reason=f"line {pair.begin + 1}: BEGIN and END are in different languages"
            )
        form, wanted = (
            (HASH_ANCHOR, f"# {BEGIN}") if zone is None else (STAR_ANCHOR, f"/* {BEGIN} */")
        )
        for number in (pair.begin, pair.end):
            if not form.fullmatch(theirs[number].strip()):
                return AnchorProblem(
                    reason=f"line {number + 1}: an anchor there is written {wanted}"
                )
    module = python_source.parse(checked.text)
    if isinstance(module, str):
        return AnchorProblem(reason=f"with the anchors it is no longer valid Python: {module}")
    return None


def _first_change(
    theirs: Sequence[str], ours: Sequence[str], found: Sequence[AnchorPair]
) -> AnchorProblem:
    """Return where the source was changed, as well as a diff can tell."""
    plan = {n for pair in found for n in range(pair.begin, pair.begin + 1 + pair.comments)}
    source_lines = [n for n, line in enumerate(theirs) if not anchor_kind(line) and n not in plan]
    matcher = difflib.SequenceMatcher(
        None, [line.rstrip() for line in ours], [theirs[n].rstrip() for n in source_lines]
    )
    rule = "only anchors, and comments directly after BEGIN, may be added"
    for tag, i1, i2, j1, _ in matcher.get_opcodes():
        own_comments = all(line.strip().startswith(("#", "/", "*")) for line in ours[i1:i2])
        if tag == "equal" or (tag == "delete" and own_comments):
            continue
        line = source_lines[j1] + 1 if j1 < len(source_lines) else len(theirs)
        shown = f"; shown was: {ours[i1].strip()[:200]}" if i1 < i2 else ""
        return AnchorProblem(reason=f"line {line}: the source was changed ({rule}){shown}")
    return AnchorProblem(reason=f"the source was changed ({rule})")
