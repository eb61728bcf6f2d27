"""What a coder changed outside the anchors of its plan.

Pure.  A legal rewrite may need a new include or a launcher, so nothing is refused here; but every
line of the source that is gone, and every line that came where no anchor is near, gets recorded.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from actors.agents.replies.anchors import AnchorProblem, anchor_pairs, lines_of, without_anchors
from protocol.values import Plan


def edits_outside_anchors(plan: Plan, answer: str) -> tuple[str, ...]:
    """Return the diff hunks of `answer`, against the plan's bare source, outside its anchors."""
    lines = [line.rstrip() for line in lines_of(plan.scaffold)]
    found = anchor_pairs(lines)
    if isinstance(found, AnchorProblem):
        return ()  # a plan without anchors binds nobody
    own_lines = [first - 1 for first, _ in plan.spans]
    fixed: list[list[str]] = []  # what stands before, between and after the spans
    source: list[str] = []
    spans: list[tuple[int, int]] = []  # 0-based, half-open, in `source`
    taken = 0
    for number, pair in enumerate(found):
        known = number < len(own_lines)
        start = own_lines[number] if known else pair.begin + 1 + pair.comments
        fixed.append(lines[taken : pair.begin])
        source += fixed[-1]
        spans.append((len(source), len(source) + pair.end - start))
        source += lines[start : pair.end]
        taken = pair.end + 1
    fixed.append(_without_blank_end(lines[taken:]))
    source += fixed[-1]
    new = [line.rstrip() for line in lines_of(without_anchors(answer))]
    if fixed[-1]:  # blank lines at the end are the span's where nothing fixed follows it
        new = _without_blank_end(new)
    # A plain diff may blame a neighbour that looks like the span.  Where all that is fixed still
    # stands in its order, nothing outside has changed, whatever the diff would say.
    return () if _blocks_in_order(new, fixed) else tuple(_hunks(source, new, spans))


def _without_blank_end(lines: list[str]) -> list[str]:
    last = next((n for n in range(len(lines), 0, -1) if lines[n - 1]), 0)
    return lines[:last]


def _blocks_in_order(lines: Sequence[str], blocks: Sequence[Sequence[str]]) -> bool:
    """Whether `lines` begin with the first block, end with the last, the others between them."""
    head, *middle, tail = blocks
    stop = len(lines) - len(tail)
    position = len(head)
    if position > stop or lines[:position] != head or lines[stop:] != tail:
        return False
    for block in middle:
        starts = range(position, stop - len(block) + 1)
        found = next((n for n in starts if lines[n : n + len(block)] == block), None)
        if found is None:
            return False
        position = found + len(block)
    return True


def _hunks(
    source: Sequence[str], new: Sequence[str], spans: Sequence[tuple[int, int]]
) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, list(source), list(new))
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        anchored = {n for first, last in spans for n in range(first, last)}
        gone = [f"-{source[n]}" for n in range(i1, i2) if n not in anchored]
        # New lines that touch a span may be the span's: only those that touch none are outside.
        touches = any(i1 <= last and i2 >= first for first, last in spans)
        came = [] if touches else [f"+{line}" for line in new[j1:j2]]
        if gone or came:
            yield "\n".join([f"@@ line {i1 + 1} @@", *gone, *came])
