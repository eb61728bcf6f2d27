"""What is known of a task and of its attempts, as lines of the compact requests.  Pure.

The one place where these lines are gathered: a new kind of fact is added here.
"""

from __future__ import annotations

from msgspec.structs import replace

from protocol.cases import reference_case_lines, result_case_lines
from protocol.fact_lines import (
    idle_us,
    split_products_us,
    task_fact_lines,
    verdict_fact_lines,
)
from protocol.values import Reference, Verdict
from protocol.variant_lines import raced_line

# What the evaluator's labels say (`actors/evaluator/labels/labels.py`).
LABEL_WORDS = {
    "library_only": "it has no kernel of its own",
    "fallback_swallowed": "it catches its kernel's failure and lets torch do the work",
    "decoy_kernel": "it builds a kernel that forward does not call, or drops its result",
    "precision_cast": "it computes in a lower precision than the task's, which its error allows",
    "algebraic_shortcut": "it leaves out work of the reference",
    "renamed_reference": "it is the task's own module under another name, and never wins",
}
# Facts about a device that tell an author of kernels nothing.
UNTOLD_FACTS = (
    *("memory", "memory clock", "memory bus", "clock", "threads a warp", "driver"),
    *("shared memory a block without opting in", "shared memory a multiprocessor"),
    *("registers a multiprocessor", "threads a multiprocessor"),
)
MAKERS_RATES = ", by its maker"  # are left out where rates were measured
MAX_SENTENCES = 10  # of a node's profile
LAST_SENTENCES = 3  # of another attempt's: its last ones name what bounds it

OPERATORS = "PyTorch's own call by operator"  # begins the line about them
# Rules of the judge that the system message states for every task.
STATED_RULES = ("Checks: ", "Timed: ", "Precision is judged by its error alone: ")


def device_line(reference: Reference) -> str:
    """Return the device and its facts in a line."""
    device = reference.device
    name = device.name or device.kind
    is_measured = reference.facts is not None and reference.facts.rates.copy_gb_s is not None
    told = [
        f"{fact} {value}"
        for fact, value in device.facts.items()
        if value != name
        and fact not in UNTOLD_FACTS
        and not (is_measured and fact.endswith(MAKERS_RATES))
    ]
    return f"Device: {name}{': ' if told else ''}{', '.join(told)}"


def task_lines(reference: Reference) -> list[str]:
    """Return the lines about a task and its machine: the same in all requests of the task."""
    return [
        line
        for line in task_fact_lines(reference.facts)
        if not line.startswith((OPERATORS, *STATED_RULES)) or "--precision" in line
    ]


def operator_lines(reference: Reference) -> list[str]:
    """Return what the task's own module spends its time on: for those that begin with it."""
    return [line for line in task_fact_lines(reference.facts) if line.startswith(OPERATORS)]


def note_lines(reference: Reference) -> list[str]:
    """Return what else is asked of a candidate: the task's notes and its cases."""
    notes = [f"Note: {note}" for note in reference.notes]
    return [*notes, *reference_case_lines(reference.cases)]


def attempt_lines(verdict: Verdict, reference: Reference, *, is_node: bool = True) -> list[str]:
    """Return the lines below an attempt's result.

    Of another attempt than the node a profile is cut to its end, and has no kernels beside it.
    Its share of the floor stands beside its time already.
    """
    facts = verdict.facts
    if facts is not None:
        told = facts.profile_sentences[:MAX_SENTENCES]
        if told and not is_node:
            told = facts.profile_sentences[-LAST_SENTENCES:]
            facts = replace(facts, kernels=(), more_kernels=0)
        facts = replace(facts, profile_sentences=told)
    task = (verdict.profile or {}).get("task")
    labels = [f"{label}: {LABEL_WORDS.get(label, 'a label')}" for label in verdict.labels]
    return [
        *result_case_lines(verdict.cases),
        *verdict_fact_lines(facts, reference.facts if is_node else None),
        *([f"task: {task}"] if task else []),
        *([f"Remark on its text, {', '.join(labels)}."] if labels else []),
        *raced_line(verdict),
    ]


def brief_lines(verdict: Verdict, reference: Reference) -> list[str]:
    """Return the lines of an attempt beside the node: cases, its bound, an idle device, faults.

    Its share of the floor stands beside its time already.
    """
    facts = verdict.facts
    if facts is not None:  # the last sentence of a profile is the bound
        last = facts.profile_sentences[-1:]
        launches = facts.launches if idle_us(facts) is not None else None
        facts = replace(facts, kernels=(), errors=(), launches=launches, profile_sentences=last)
    return [*result_case_lines(verdict.cases), *verdict_fact_lines(facts, None)]


def item(line: str) -> str:
    """Return a line of a list; one that is an item already belongs to the item above it."""
    return f"  {line}" if line.startswith("- ") else f"- {line}"


def attainable_us(reference: Reference) -> float | None:
    """Return the least time where float32 products may be split; None where it is not known."""
    facts = reference.facts
    if facts is None or facts.floor is None:
        return None
    parts = dict(facts.floor.parts)
    split = split_products_us(facts)
    if split is not None and "operations" in parts:
        parts["operations"] = min(split, parts["operations"])
    return max(parts.values(), default=None)


def least_us(reference: Reference) -> float | None:
    """Return the least time of the task's own bytes and operations; None where it is not known."""
    floor = reference.facts.floor if reference.facts is not None else None
    return floor.us if floor is not None else None
