"""Which functions of a node's source a request shows without their body.  Pure.

A source takes half of a late request.  A wrapper of an instruction, or of the driver's function
that encodes a tensor map, is known by its head; and a change in one kernel needs no other one.
Folds follow from sources and the plan alone, so a run that is made again asks the same.  A repair
is shown everything: the fault may lie anywhere.  What is to be mended in a conversation is shown
without the functions that the answer left as they were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.agents.replies.definitions import Definition, definitions_in_strings
from actors.agents.replies.folds import Fold
from actors.agents.replies.placed_anchors import marked_spans
from actors.agents.requests.request import shown_source
from protocol.messages import AgentWork, MakePlan, Solve, Write

SHORT_SOURCE = 5_000  # characters: one up to so long is shown whole
MOST_LINES = 16  # of a wrapper
LEAST_SAVED = 60  # characters of a body
_INSTRUCTION = re.compile(r"\basm\b")
_LAUNCH = re.compile(r"<<<|cudaLaunch|cuLaunch")
_LOOP = re.compile(r"\bfor\s*\(")
_KERNEL = re.compile(r"\b__global__\b")
_DEVICE = re.compile(r"\b__(?:device|global)__\b")
_ENCODING = re.compile(r"cuTensorMapEncode")


def editable_folds(work: AgentWork) -> tuple[Fold, ...]:
    """Return the bodies that are left out of the source that edits belong to."""
    if work.failed is None:
        return shown_folds(work)
    return _unchanged_folds(work.failed.source, shown_source(work))


def shown_folds(work: AgentWork) -> tuple[Fold, ...]:
    """Return the bodies that the request for a piece of work leaves out of the node's source."""
    source = shown_source(work)
    is_short = len(source) <= SHORT_SOURCE or source == work.task.source
    if is_short or not work.node.verdict.is_correct:
        return ()
    if isinstance(work, Write):
        spans = marked_spans(work.plan, source)
        return _far_folds(source, spans, work.plan.advice) if spans else ()
    return _wrapper_folds(source) if isinstance(work, MakePlan | Solve) else ()


def _unchanged_folds(source: str, before: str) -> tuple[Fold, ...]:
    """Return the functions of a candidate that are those of the source that it was made from.

    The conversation has shown them, or they are wrappers of a source that worked.
    """
    if len(source) <= SHORT_SOURCE:
        return ()
    lines, old = source.split("\n"), before.split("\n")
    known = {_text(old, each) for each in _functions(before)}
    same = (each for each in _functions(source) if _text(lines, each) in known)
    return tuple(fold for each in same if (fold := _fold(lines, each)))


def _wrapper_folds(source: str) -> tuple[Fold, ...]:
    lines = source.split("\n")
    return tuple(
        fold
        for each in _functions(source)
        if _is_wrapper(_text(lines, each)) and (fold := _fold(lines, each))
    )


def _far_folds(source: str, spans: Sequence[tuple[int, int]], advice: str) -> tuple[Fold, ...]:
    """Return the functions that a plan's change does not touch, call or launch."""
    lines, functions = source.split("\n"), _functions(source)
    texts = {each: _text(lines, each) for each in functions}
    marked = [each for each in functions if any(_touches(each, span) for span in spans)]
    if not marked:
        return _wrapper_folds(source)
    near = {
        each
        for each in functions
        for one in marked
        if _names(texts[each], one) or (_names(texts[one], each) and not _is_wrapper(texts[each]))
    }
    near |= {each for each in functions if re.search(rf"\b{each.name}\b", advice)}
    left = [each for each in functions if each not in near and each not in marked]
    return tuple(fold for each in left if (fold := _fold(lines, each)))


def _functions(source: str) -> list[Definition]:
    """Return the compiled functions that lie in no other definition; [] where none is sure."""
    found = [one for string in definitions_in_strings(source) for one in string]
    return [
        one
        for one in found
        if not one.is_class
        and not any(o.first <= one.first and one.last <= o.last for o in found if o is not one)
    ]


def _touches(one: Definition, span: tuple[int, int]) -> bool:
    """Whether a span has lines of a definition; one without lines stands between two."""
    first, last = span
    return one.first <= max(first, last) and first <= one.last


def _names(text: str, one: Definition) -> bool:
    return re.search(rf"\b{one.name}\b", text) is not None


def _is_wrapper(text: str) -> bool:
    """Whether a function is known by its head: an instruction or a tensor map, without a loop."""
    if _KERNEL.search(text) or _LOOP.search(text) or _LAUNCH.search(text):
        return False
    is_device = _DEVICE.search(text) is not None
    is_one = _INSTRUCTION.search(text) if is_device else _ENCODING.search(text)
    return bool(is_one) and text.count("\n") < MOST_LINES + 8 * (not is_device)


def _fold(lines: Sequence[str], one: Definition) -> Fold | None:
    """Return the lines behind the one that opens a function's body; None where it saves nothing."""
    opening = next(
        (n for n in range(one.first, one.last) if lines[n - 1].rstrip().endswith("{")), None
    )
    if opening is None or lines[one.last - 1].strip() != "}":
        return None
    fold = Fold(name=one.name, first=opening + 1, last=one.last)
    saved = sum(len(line) + 1 for line in lines[opening : one.last])
    return fold if saved - len(fold.mark) >= LEAST_SAVED else None


def _text(lines: Sequence[str], one: Definition) -> str:
    return "\n".join(lines[one.first - 1 : one.last])
