"""The ledger of a request: every attempt of the task in a line, and a planner's stance.  Pure."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Container

from actors.agents.cards.operation_times import LEAST_SHARE, by_time
from actors.agents.cards.task_operations import task_operations
from actors.agents.requests.facts import least_us
from actors.agents.requests.rules import PRODUCTS
from protocol.fact_lines import split_products_us
from protocol.messages import AgentWork, MakePlan, Solve
from protocol.values import Backend, LedgerEntry, Reference

ALL_IDEAS = 1_600  # characters of a ledger's ideas together, about
LEAST_IDEA, MOST_IDEA = 110, 320  # characters of one; of one under way twice as many
MAX_REASON = 160
BEYOND_FLOOR = 1.15  # times below the reference's floor: a multiple of it says nothing then
LEAST_LEFT = 0.05  # of a time: what is less of it is not what bounds it
SENTENCE_END = re.compile(r"(?<=[^\s.]\.) (?=\S)")  # not the product in "y = x . w"
# From where a planner looks while others plan for the same task, in turn by attempt.
STANCES: dict[Backend, tuple[str, ...]] = {
    "cpp": (
        "algebra: work that no input needs",
        "layout: the order in which memory is read, blocks that stay in a cache",
        "vector units: instructions, alignment, several sums at once",
        "fusion: tensors that need not exist",
        "threads: how the work is divided, and what each costs",
        "scheduling: passes, prefetching, work that can overlap",
    ),
    "cuda": (
        "algebra: work that no input needs",
        "layout: coalescing, vector width, what stays in registers and shared memory",
        "tensor cores: which products they can take, in which precision, from which layout",
        "fusion: tensors and launches that need not exist",
        "occupancy: registers, shared memory, blocks in flight, tails",
        "scheduling: asynchronous copies, pipelines, persistent blocks, overlapping launches",
    ),
}
# How much a planner's design changes, in turn beside the stance.
SCOPES: dict[Backend, tuple[str, ...]] = {
    "cpp": (
        "the library keeps what it does well, kernels take the rest",
        "kernels of your own for all of it, as few as the data needs",
        "one parallel region for everything, if its threads can wait for each other cheaply",
    ),
    "cuda": (
        "the library keeps what it does well, kernels take the rest",
        "kernels of your own for all of it, as few as the data needs",
        "one launch for everything, if its blocks can wait for each other cheaply",
    ),
}


def shown_entries(work: AgentWork) -> tuple[LedgerEntry, ...]:
    """Return what a request's ledger tells; code that follows a plan needs none."""
    return work.ledger if isinstance(work, MakePlan | Solve) else ()


def ledger_lines(work: AgentWork, above: Container[int] = ()) -> list[str]:
    """Return a line for each attempt; the fastest is marked.

    `above`: the attempts whose idea and fault the request shows before the ledger.
    """
    times = {e.number: e.score_us for e in work.ledger if e.score_us is not None}
    for view in (work.best, work.node, *work.window):
        if view is not None and view.node and view.score_us is not None:
            times[view.node] = view.score_us
    least = min(times.values(), default=None)
    times[work.root.node] = work.reference.eager_us
    left_out = work.ledger_left_out
    head = [f"({left_out} earlier attempts are left out)"] if left_out else []
    most = max(LEAST_IDEA, min(MOST_IDEA, ALL_IDEAS // max(1, len(work.ledger))))
    lines = (_line(entry, work.reference, above, times, most) for entry in work.ledger)
    marked = [
        f"{line}, the fastest" if entry.score_us is not None and entry.score_us == least else line
        for entry, line in zip(work.ledger, lines, strict=True)
    ]
    return [*head, *marked]


def _line(
    entry: LedgerEntry,
    reference: Reference,
    above: Container[int],
    times: dict[int, float],
    most: int,
) -> str:
    """Return the line of an attempt.

    `most`: characters of an idea.  Of an attempt under way there is nothing else to go by.
    """
    is_shown = entry.outcome is not None and entry.number in above
    idea = sentences(entry.idea, 2 * most) if entry.outcome is None else one_line(entry.idea, most)
    unknown = "(its idea is not known yet)" if entry.outcome is None else "(no idea)"
    idea = "(above)" if is_shown else idea or unknown
    if entry.outcome is None:
        stages = {"plan": "is being planned", "write": "is being written", "judge": "is judged"}
        outcome, figures = f"under way, {stages.get(entry.stage, entry.stage)}", ""
    elif entry.score_us is not None:
        outcome, figures = "correct", _figures(entry, entry.score_us, reference, times)
    else:
        outcome = entry.outcome.replace("_", " ")
        figures = "" if is_shown else one_line(entry.reason, MAX_REASON)
    return f"{entry.number} ({entry.parent}) | {outcome} | {idea} | {figures}".rstrip(" |")


def _figures(
    entry: LedgerEntry, score_us: float, reference: Reference, times: dict[int, float]
) -> str:
    """Return an attempt's time, as a multiple of the floor, and what its step gave."""
    parts = [duration(score_us), *_floor_shares(score_us, reference, "floor")[-1:]]
    if entry.parent in times:
        parts.append(f"{times[entry.parent] / score_us:.3g} × parent")
    parts += [f"{each.unit} {each.share:.0%}" for each in entry.units]
    return ", ".join(parts)


def duration(microseconds: float) -> str:
    """Return a time with four digits and no exponent: "22,220 µs"."""
    digits = max(0, 3 - math.floor(math.log10(microseconds))) if microseconds > 0 else 0
    return f"{round(microseconds, digits):,} µs" if digits else f"{microseconds:,.0f} µs"


def comparisons(score_us: float, reference: Reference) -> list[str]:
    """Return a time as multiples of PyTorch's own, and of the reference's floor where it is known.

    An exact shortcut may be below that floor, so it is not called a least time.
    """
    found = [f"{reference.eager_us / score_us:.3g} × eager"]
    if reference.compile_us is not None:
        found.append(f"{reference.compile_us / score_us:.3g} × torch.compile")
    return [*found, *_floor_shares(score_us, reference, "the reference's floor")]


def _floor_shares(score_us: float, reference: Reference, name: str) -> list[str]:
    """Return a time as a multiple of the floor; below it, of what is left of the floor.

    Split products of a lower precision take less than the reference's, and the bytes stay.
    """
    least = least_us(reference)
    if not least:
        return []
    if score_us * BEYOND_FLOOR >= least:
        return [f"{score_us / least:.3g} × {name}"]
    known = reference.facts
    bytes_us = known.floor.parts.get("bytes", 0.0) if known and known.floor else 0.0
    split_us = (split_products_us(known) or 0.0) if known else 0.0
    left, what = max((bytes_us, "its bytes"), (split_us, "its split products"))
    if not LEAST_LEFT * score_us <= left <= BEYOND_FLOOR * score_us:
        return [f"below {name}"]
    return [f"below {name}", f"{score_us / left:.3g} × {what}"]


def stance(work: AgentWork) -> str:
    """Return where to begin while others plan for the task; "" for the only planner.

    The ledger tells the one that began first nothing of the others.
    """
    is_alone = all(entry.outcome is not None or entry.idea for entry in work.ledger)
    if not isinstance(work, MakePlan | Solve) or is_alone:
        return ""
    return (
        "Others plan at this moment, so the design that the figures suggest first is likely taken."
        f" Look at another side of the task first: {_direction(work, work.attempt)}. Where your"
        " estimate says that another design gives more, take that one.\n"
    )


def _direction(work: AgentWork, attempt: int) -> str:
    """Return an attempt's stance, and its scope where a first design merges several launches."""
    stances = fitting_stances(work)
    chosen = stances[attempt % len(stances)]
    is_root = work.node.node == work.root.node
    if not is_root or _is_without_products(work) or not _can_merge(work):
        return chosen
    scopes = SCOPES[_family(work)]
    return f"{chosen}; {scopes[(attempt + attempt // len(stances)) % len(scopes)]}"


def _family(work: AgentWork) -> Backend:
    """Return the key of a backend in tables that tell hosts from cards."""
    return "cpp" if work.task.backend == "cpp" else "cuda"


def fitting_stances(work: AgentWork) -> tuple[str, ...]:
    """Return the stances that what is known of the task and of the node leaves room for."""
    unfit = set()
    if _is_without_products(work):
        unfit.add("tensor cores")
    # Of the module itself every first design is fewer kernels: no other side of the task.
    if work.node.node == work.root.node or not _can_merge(work):
        unfit.add("fusion")
    stances = STANCES[_family(work)]
    return tuple(one for one in stances if one.partition(":")[0] not in unfit)


def _is_without_products(work: AgentWork) -> bool:
    operations = task_operations(work.task.source, work.reference.inputs)
    known = work.reference.facts
    return bool(operations) and (
        by_time(operations, known.operations if known else ())[0] not in PRODUCTS
    )


def _can_merge(work: AgentWork) -> bool:
    """Whether the node has, or may have, more than one launch or operator to merge."""
    reference = work.reference.facts
    is_root = work.node.node == work.root.node
    if is_root and reference is not None and reference.operations:
        return sum(each.share >= LEAST_SHARE for each in reference.operations) > 1
    return _launches(work) != 1


def _launches(work: AgentWork) -> int | None:
    """Return the kernels, or on a host the operators, of one call of the node; None: not known."""
    if work.node.node != work.root.node:
        facts = work.node.verdict.facts
        return facts.launches if facts is not None else None
    reference = work.reference.facts
    if reference is None or reference.launches is not None:
        return reference.launches if reference is not None else None
    return len(reference.operations) + reference.more_operations or None


def one_line(text: str, most: int) -> str:
    """Return a text in one line of at most `most` characters, cut between words.

    Of a longer text its first sentence is left, or what fits of it.
    """
    line = " ".join(text.split()).replace("|", "/")
    if len(line) <= most:
        return line
    end = SENTENCE_END.search(line, endpos=most + 1)
    if end is not None:
        return line[: end.start()]
    whole_words = textwrap.shorten(line, most, placeholder="…")
    return whole_words if len(whole_words) > most // 2 else f"{line[: most - 1]}…"


def sentences(text: str, most: int) -> str:
    """Return the first whole sentences of a text, in one line of at most `most` characters."""
    line = " ".join(text.split())
    ends = [end.start() for end in SENTENCE_END.finditer(line, endpos=most + 1)]
    return line[: ends[-1]] if len(line) > most and ends else one_line(text, most)
