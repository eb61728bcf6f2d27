"""What is known of a task and of its attempts, as lines of the compact requests.  Pure.

The one place where these lines are gathered: a new kind of fact is added here.
"""

from __future__ import annotations

from protocol.cases import reference_case_lines, result_case_lines
from protocol.fact_lines import task_fact_lines, verdict_fact_lines
from protocol.values import Reference, Verdict
from protocol.variant_lines import brief_variant_lines

# Figures of a verdict's profile that tell an agent what to change.
SHOWN_FIGURES = ("task", "labels")


# Rules of the judge that the system message states for every task.
STATED_RULES = ("Checks: ", "Timed: ", "Precision is judged by its error alone: ")


def task_lines(reference: Reference) -> list[str]:
    """Return the lines about a task and its machine: the same in all requests of the task."""
    return [
        line
        for line in task_fact_lines(reference.facts)
        if not line.startswith(STATED_RULES) or "--precision" in line
    ]


def note_lines(reference: Reference) -> list[str]:
    """Return what else is asked of a candidate: the task's notes and its cases."""
    notes = [f"Note: {note}" for note in reference.notes]
    return [*notes, *reference_case_lines(reference.cases)]


def attempt_lines(verdict: Verdict, reference: Reference) -> list[str]:
    """Return the lines below an attempt's result."""
    profile = verdict.profile or {}
    figures = [f"{name}: {profile[name]}" for name in SHOWN_FIGURES if profile.get(name)]
    known = verdict_fact_lines(verdict.facts, reference.facts)
    return [*result_case_lines(verdict.cases), *known, *figures, *brief_variant_lines(verdict)]


def least_us(reference: Reference) -> float | None:
    """Return the least time of the task's own bytes and operations; None where it is not known."""
    floor = reference.facts.floor if reference.facts is not None else None
    return floor.us if floor is not None else None
