"""Stages and attempts: the pieces of work that a search has done, and one expansion under way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """A piece of work that is leased; its last word in a work id."""

    MEASURE = "measure"
    PLAN = "plan"
    WRITE = "write"
    REPAIR = "repair"
    SOLVE = "solve"  # a single agent's: advice and code, or repair, in one call
    REFLECT = "reflect"  # the same, after words on what the last attempt taught
    EVALUATE = "evaluate"
    CONFIRM = "confirm"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One expansion under way: which node grows, by which agents, and how far it is."""

    number: int
    parent: int
    repair: bool  # the node that grows has a bug
    stage: Stage
