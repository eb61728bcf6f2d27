"""Anchors that a planner named and did not write: the program puts the marks into the source.

Pure.  Under `## Anchors` each line names a place (`places`).  Promises the scaffold that a planner
would have had to copy, checked like one (`scaffolds`), or a question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from actors.agents.replies import python_source
from actors.agents.replies.anchors import AnchorProblem, insert_anchors, zone_of
from actors.agents.replies.folds import Fold
from actors.agents.replies.places import Place, PlaceProblem, ShownLines
from actors.agents.replies.replies import Reply
from actors.agents.replies.scaffolds import Scaffold, check_scaffold, notes_of
from protocol.values import Plan

MAX_PLACES = 20
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")


def placed_scaffold(
    reply: Reply, source: str, folds: Sequence[Fold] = ()
) -> Scaffold | AnchorProblem:
    """Return `source` with marks around the places that a reply names, or what is unclear."""
    places = _places(reply, source, folds)
    if isinstance(places, AnchorProblem):
        return places
    marked = source
    for place in reversed(places):
        marked = insert_anchors(marked, place.first, place.last, place.note)
    checked = check_scaffold(marked, source)
    if isinstance(checked, AnchorProblem):
        return _with_places(checked, places)
    wanted = tuple((place.first, place.last) for place in places)
    if checked.source_spans != wanted:
        return AnchorProblem(reason=f"the marks can't be put around lines {wanted}: name others")
    if _copies_differ(reply, source, checked):
        return AnchorProblem(
            reason="the reply also has '## Source', with marks at other places: give one of them"
        )
    return checked


def _places(reply: Reply, source: str, folds: Sequence[Fold]) -> list[Place] | AnchorProblem:
    """Return the places in the order of their lines, each once; they do not overlap."""
    shown, zones = ShownLines(source, (), folds), python_source.string_zones(source)
    named = _named_places(reply)
    if len(named) > MAX_PLACES:
        return AnchorProblem(reason=f"it names {len(named)} places: at most {MAX_PLACES} are read")
    places: dict[tuple[int, int], Place] = {}
    for line in named:
        found = shown.find(line, explains=True)
        if isinstance(found, PlaceProblem):
            return AnchorProblem(reason=found.reason)
        question = _language_question(found, zones)
        if question:
            return AnchorProblem(reason=question)
        places.setdefault((found.first, found.last), found)
    ordered = [places[lines] for lines in sorted(places)]
    for one, other in pairwise(ordered):
        if other.first <= one.last:
            return AnchorProblem(
                reason=f"lines {one.first}-{one.last} and lines {other.first}-{other.last} overlap:"
                " which of them is to change? Name places that do not overlap"
            )
    return ordered or AnchorProblem(reason="it names no place")


def marked_spans(plan: Plan, source: str) -> tuple[tuple[int, int], ...]:
    """Return the lines of `source` that a plan marks; () where the plan is for another source."""
    checked = check_scaffold(plan.scaffold, source)
    return () if isinstance(checked, AnchorProblem) else checked.source_spans


def span_notes(plan: Plan, source: str) -> tuple[str, ...]:
    """Return what a plan says at each of the lines that `marked_spans` returns."""
    checked = check_scaffold(plan.scaffold, source)
    return () if isinstance(checked, AnchorProblem) else notes_of(checked)


def _named_places(reply: Reply) -> list[str]:
    texts = [
        text
        for section in reply.sections
        if section.name == "anchors"
        for text in (section.text, *(block.code for block in section.blocks))
    ]
    lines = [_BULLET.sub("", line).strip() for text in texts for line in text.split("\n")]
    return [line for line in lines if line]


def _with_places(problem: AnchorProblem, places: list[Place]) -> AnchorProblem:
    """Return the problem in the numbers that the planner gave, not in those of the scaffold."""
    spans = ", ".join(f"{place.first}-{place.last}" for place in places)
    reason = re.sub(r"^line \d+: ", "", problem.reason)
    return AnchorProblem(reason=f"lines {spans}: {reason}")


def _language_question(place: Place, zones: Sequence[tuple[int, int]]) -> str:
    """Return what is wrong with a place that begins and ends in two languages; "" if it is one.

    A mark stands before the first line and after the last one, and is a comment of its language.
    """
    begin, end = zone_of(zones, place.first), zone_of(zones, place.last + 1)
    if begin == end:
        return ""
    crossed = zones[begin if begin is not None else end or 0]
    side = "ends" if begin is not None else "begins"
    return (
        f"lines {place.first}-{place.last} begin in {_language(begin)} and end in {_language(end)}:"
        f" the string's own lines are {crossed[0]}-{crossed[1] - 1}, and line"
        f" {crossed[1] if begin is not None else crossed[0] - 1} {side} it. Stay on one side, or"
        " name two places"
    )


def _language(zone: int | None) -> str:
    return "Python" if zone is None else "the text of a string"


def _copies_differ(reply: Reply, source: str, checked: Scaffold) -> bool:
    """Whether the reply also has a marked copy of the source, with other marks."""
    copies = [b.code for s in reply.sections if s.name == "source" for b in s.blocks]
    found = [check_scaffold(copy, source) for copy in copies]
    return any(
        isinstance(one, AnchorProblem) or one.source_spans != checked.source_spans for one in found
    )
