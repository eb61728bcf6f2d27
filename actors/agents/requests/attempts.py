"""Earlier attempts in the compact requests: changes of the node's source, ideas and results.  Pure.

A request has room for little code besides the node's own.  Of other attempts it shows the change
from the node where that is short; of the rest the ledger tells idea and result.  The fastest
attempt alone is shown with its code.  Which attempts of the window show code depends on their
sources only, so a run that is made again asks the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from msgspec.structs import replace

import prompts
from actors.agents.replies.definitions import definitions_of
from actors.agents.replies.replies import fenced
from actors.agents.requests import facts, ledger
from actors.agents.requests.error_line import first_error_line
from actors.agents.requests.prompting import MAX_LOG, excerpt, fill, relation
from actors.agents.requests.request import PromptSection, shown_source
from protocol.fact_lines import MIN_TOLD_ERROR
from protocol.messages import AgentWork, MakePlan, Repair, Solve, Write
from protocol.values import AttemptView, Outcome, Reference, Verdict

MAX_LOG_OF_OTHERS = 1_500  # characters of a log of an attempt other than the node
MAX_DIFFERENCE = 0.6  # of a source: a longer difference is not shown in its place
ALL_CODE = 12_000  # characters of a request, the node's own included; what it leaves is for others
LEAST_OTHER_CODE, MOST_OTHER_CODE = 3_000, 6_000  # characters
CHANGES_SHARE = 1 / 3  # of other code: differences; the fastest attempt has the rest
MAX_IDEA = 250  # characters of a plan where its code is shown
MAX_TOLD_IDEA = 400  # and where it is not
MOST_SPREAD = 100  # times the lower bound of an interval: a wider one says nothing
UNKNOWN = "other programs took the machine, so the figures say little"
MIN_TOLD_DRIFT = 0.01  # of a time: from here on both figures are told
COMPILER_SAYS = "the compiler says: "  # the judge's words before a compiler's first error
KERNEL_NAME = re.compile(r"(?:void )?(?:\w+::)*(\w+)")


def window_sections(work: AgentWork) -> Iterator[PromptSection]:
    """Yield a section for each attempt of the window that has more than its line of the ledger.

    A coder is shown changes alone: its plan knows the ideas.  A debugger is told of other tries
    that failed, too: of one that is correct only its code would help.
    """
    room = int(CHANGES_SHARE * _room_for_others(work))
    best = _fastest_view(work)
    told = {entry.number for entry in ledger.shown_entries(work)}
    sections: list[PromptSection] = []
    for entry in work.window:
        change = "" if _is_surpassed(entry, work) else _change(entry, work, room)
        room -= len(change)
        is_told = entry.node in told or isinstance(work, Write)
        if not change and (is_told or (isinstance(work, Repair) and entry.verdict.is_correct)):
            continue
        title = f"Attempt {len(sections) + 1}: node {entry.node}, {_relation(entry, work)}"
        shown = change or _no_code(entry)
        is_best = best is not None and entry.node == best.node
        text = observed("compact/attempt.md", title, entry, shown, work, is_told_below=is_best)
        sections.append(PromptSection(kind="attempt", text=text, node=entry.node))
    if sections:
        yield PromptSection(kind="window", text=prompts.read("compact/window.md"))
    yield from sections


def _relation(entry: AttemptView, work: AgentWork) -> str:
    """Return what an entry of the window is to the node."""
    is_parent = entry.node == work.node.parent
    return "the parent of the source above" if is_parent else relation(entry, work)


def _is_surpassed(entry: AttemptView, work: AgentWork) -> bool:
    """Whether an attempt is one that the node came from, and is faster than."""
    parents = {each.number: each.parent for each in work.ledger}
    number, before = work.node.parent, set[int]()
    while number and number not in before:
        before.add(number)
        number = parents.get(number)
    mine, other = work.node.score_us, entry.score_us
    return entry.node in before and mine is not None and (other is None or mine < other)


def _room_for_others(work: AgentWork) -> int:
    """Return the characters of code besides the node's own; they follow from its length alone."""
    left = ALL_CODE - len(shown_source(work))
    return max(LEAST_OTHER_CODE, min(MOST_OTHER_CODE, left))


def _fastest_view(work: AgentWork) -> AttemptView | None:
    """Return the fastest attempt; None if it is the node.

    Code that follows a plan needs none of it, and a repair changes little: its window has what got
    past the same obstacle.
    """
    if not isinstance(work, MakePlan | Solve):
        return None
    known = [work.node, *work.window, *([] if work.best is None else [work.best])]
    correct = [one for one in known if one.node and one.score_us is not None]
    best = min(correct, key=lambda one: (one.score_us or 0.0, one.node), default=None)
    return None if best is None or best.node == work.node.node else best


def fastest(work: AgentWork) -> str:
    """Return the fastest attempt with its code and all that is known of it; "" if it is the node.

    Its code is left out where the window shows its change from the node.
    """
    best = _fastest_view(work)
    if best is None:
        return ""
    shown = [section.text for section in window_sections(work) if section.node == best.node]
    has_change = any("\n```diff\n" in text for text in shown)
    room = int((1 - CHANGES_SHARE) * _room_for_others(work))
    code = "Its change of the node is above." if has_change else _code(best, work, room)
    title = f"The fastest so far: node {best.node}"
    in_ledger = any(entry.number == best.node for entry in ledger.shown_entries(work))
    told = replace(best, advice="") if shown or in_ledger else best
    return observed("compact/attempt.md", title, told, code, work, is_whole=True)


def observed(
    template: str,
    title: str,
    node: AttemptView,
    shown: str,
    work: AgentWork,
    *,
    is_node: bool = False,
    is_whole: bool = False,
    is_told_below: bool = False,
) -> str:
    """Return an attempt: its idea, what is shown of its source, and its result.

    `is_whole`: with all facts about the result, as the node has them.  `is_told_below`: the result
    stands with the fastest attempt's.
    """
    idea = ledger.one_line(node.advice, MAX_IDEA)
    if not shown:
        idea = ledger.sentences(node.advice, MAX_TOLD_IDEA)
    if is_node and isinstance(work, Repair):  # its part quotes the whole plan
        idea = ""
    if is_node and isinstance(work, Write):
        node = replace(node, verdict=facts.for_a_coder(node.verdict))
    result = "Correct: its figures are below, as those of the fastest so far."
    if not is_told_below:
        result = _result(node, work.reference, is_node=is_node, is_whole=is_node or is_whole)
    return fill(
        template,
        title=title,
        origin=f"Its idea: {idea}\n\n" if idea else "",
        source=f"{shown}\n\n" if shown else "",
        result=result,
    )


def _change(entry: AttemptView, work: AgentWork, room: int) -> str:
    """Return the difference from the node's source; "" where it is long."""
    if not entry.source.strip():
        return ""
    lines = difflib.unified_diff(
        shown_source(work).splitlines(), entry.source.splitlines(), lineterm="", n=0
    )
    difference = "\n".join(list(lines)[2:])  # without the names of files
    if len(difference) > min(room, MAX_DIFFERENCE * len(entry.source)):
        return ""
    where = "the module" if work.node.node == work.root.node else f"node {work.node.node}"
    return f"Its source, as changes of {where} above:\n\n{fenced(difference, 'diff').strip()}"


def _no_code(entry: AttemptView) -> str:
    return "" if entry.source.strip() else "(no code was written)"


def _code(best: AttemptView, work: AgentWork, room: int) -> str:
    """Return the source of an attempt, or its change of the node.

    Of a source that is long in both forms it is the kernel that takes the most time.
    """
    change = _change(best, work, room)
    if change or len(best.source) <= room:
        return change or fenced(best.source).strip()
    kernels = best.verdict.facts.kernels if best.verdict.facts is not None else ()
    found = KERNEL_NAME.match(kernels[0].name) if kernels else None
    named = [one for one in definitions_of(best.source) if found and one.name == found[1]]
    lines = best.source.splitlines()
    texts = ["\n".join(lines[one.first - 1 : one.last]) for one in named]
    fitting = [text for text in texts if len(text) <= room]
    if not fitting:
        return ""
    share = f", {kernels[0].share:.0%} of its device time" if kernels[0].share is not None else ""
    return f"Of its source, the longest kernel{share}:\n\n{fenced(fitting[0], 'cuda').strip()}"


def _result(node: AttemptView, reference: Reference, *, is_node: bool, is_whole: bool) -> str:
    verdict = _on_one_clock(node)
    if is_whole:
        lines = facts.attempt_lines(verdict, reference, is_node=is_node)
    else:
        lines = facts.brief_lines(verdict, reference)
    known = "".join(f"\n{facts.item(line)}" for line in lines)
    if verdict.is_correct:
        return _time(node, reference, is_whole=is_whole) + known
    word = verdict.verdict.replace("_", " ").capitalize()
    outcome = f"{word}: {verdict.reason}".rstrip(": ")
    if verdict.verdict is Outcome.NO_CANDIDATE:  # its log is what a model answered
        return f"{outcome}. The source above is the one that it was to change."
    if not is_node and verdict.reason:  # of its log, without its source, this says most
        return f"{outcome}{known}"
    log = excerpt(verdict.log, MAX_LOG if is_node else MAX_LOG_OF_OTHERS)
    place = first_error_line(verdict.log, node.source) if is_node else ""
    outcome = outcome if untold_reason(verdict, log) else word
    parts = [f"{outcome}{known}", fenced(log, "text").strip() if log else "", place]
    return "\n\n".join(part for part in parts if part)


def _on_one_clock(node: AttemptView) -> Verdict:
    """Return the verdict with a host's time as the score has it: of PyTorch's beside it.

    A card's facts stay as they were measured, beside the times of its kernels.
    """
    facts = node.verdict.facts
    if facts is None or facts.device_us is not None or node.score_us is None:
        return node.verdict
    return replace(node.verdict, facts=replace(facts, median_us=node.score_us))


def untold_reason(verdict: Verdict, log: str) -> str:
    """Return a failure's reason; "" where the log that is shown has it."""
    told = verdict.reason.removeprefix(COMPILER_SAYS)
    return "" if told and told in log else verdict.reason


def _time(node: AttemptView, reference: Reference, *, is_whole: bool) -> str:
    """Return the time of a correct attempt, and what it is beside PyTorch's and the floor's."""
    verdict = node.verdict
    time = node.score_us if node.score_us is not None else verdict.median_us
    if time is None:
        return "Correct"
    told = f"{ledger.duration(time)} a call"
    measured, beside = verdict.median_us, verdict.reference_us
    if node.node and measured and beside and abs(measured / time - 1) > MIN_TOLD_DRIFT:
        told = (
            f"{ledger.duration(measured)} a call, eager beside it {ledger.duration(beside)}: "
            f"{ledger.duration(time)} at eager's usual speed"
        )
    parts = [f"Correct: {told}"]
    if node.node:
        parts += ledger.comparisons(time, reference)
        has_errors = is_whole and verdict.facts is not None and verdict.facts.errors
        if not has_errors and (verdict.max_error or 0.0) >= MIN_TOLD_ERROR:
            parts.append(f"largest error {verdict.max_error:.2g} of the tolerance")
    if verdict.is_wide and verdict.speedup_ci95 is not None:
        low, high = verdict.speedup_ci95
        is_told = high <= MOST_SPREAD * low
        bounds = f"with 95 % between {low:.3g} and {high:.3g} × eager" if is_told else UNKNOWN
        parts.append(f"not sure: {bounds}")
    return ", ".join(parts)
