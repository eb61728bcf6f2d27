"""Facts as text: one short line each, for models and for people.  Pure.

A line names its figures.  Where nothing is known there is no line.
"""

from __future__ import annotations

from protocol.facts import ReferenceFacts, VerdictFacts


def task_fact_lines(facts: ReferenceFacts | None) -> list[str]:
    """Return what is known of a task: rates, bytes and operations, floor, operators, rules."""
    return list(facts.rule_lines) if facts is not None else []


def verdict_fact_lines(facts: VerdictFacts | None, task: ReferenceFacts | None) -> list[str]:
    """Return what is known of a candidate: its share of the floor, launches, kernels, errors.

    `task`: the facts of the candidate's task, for the floor and for the device's rates.
    """
    return [*facts.profile_sentences, *facts.difference] if facts is not None else []
