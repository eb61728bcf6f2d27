"""What a coder changed outside the anchors of its plan.

Pure.  A legal rewrite may need a new include or a launcher, so nothing is refused here.  Every
source line that was removed outside of the anchors is recorded, and every line that was added
away from them.
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
        return ()  # a plan without anchors restricts no line
    own_lines = [first - 1 for first, _ in plan.spans]
    fixed: list[list[str]] = []  # the lines before, between and after the spans
    source: list[str] = []
    spans: list[tuple[int, int]] = []  # 0-based, half-open, in `source`
    copied = 0
    for number, pair in enumerate(found):
        is_known = number < len(own_lines)
        start = own_lines[number] if is_known else pair.begin + 1 + pair.comments
        fixed.append(lines[copied : pair.begin])
        source += fixed[-1]
        spans.append((len(source), len(source) + pair.end - start))
        source += lines[start : pair.end]
        copied = pair.end + 1
    fixed.append(_without_blank_end(lines[copied:]))
    source += fixed[-1]
    new = [line.rstrip() for line in lines_of(without_anchors(answer))]
    if fixed[-1]:  # else the last span reaches the end, and blank lines there belong to it
        new = _without_blank_end(new)
    # A plain diff may report a neighbour that looks like the span.  If all fixed lines are still
    # there in their order, nothing outside the anchors has changed, whatever the diff would say.
    return () if _blocks_in_order(new, fixed) else tuple(_hunks(source, new, spans))


def _without_blank_end(lines: list[str]) -> list[str]:
    last = next((n for n in range(len(lines), 0, -1) if lines[n - 1]), 0)
    return lines[:last]


def _blocks_in_order(lines: Sequence[str], blocks: Sequence[Sequence[str]]) -> bool:
    """Whether `lines` begin with the first block, end with the last, the others between."""
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
        removed = [f"-{source[n]}" for n in range(i1, i2) if n not in anchored]
        # New lines that touch a span may belong to it: only those that touch no span are outside.
        touches_span = any(i1 <= last and i2 >= first for first, last in spans)
        added = [] if touches_span else [f"+{line}" for line in new[j1:j2]]
        if removed or added:
            yield "\n".join([f"@@ line {i1 + 1} @@", *removed, *added])
