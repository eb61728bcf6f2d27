"""Stages and attempts: the kinds of work that a search leases, and one expansion under way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """A kind of work that is leased; the last part of a work id."""

    MEASURE = "measure"
    BASELINES = "baselines"  # of the reference, while a device is idle; no search knows of it
    PLAN = "plan"
    WRITE = "write"
    REPAIR = "repair"
    SOLVE = "solve"  # a single agent: advice and code, or a repair, in one call
    REFLECT = "reflect"  # the same, after a reflection on the last attempt
    EVALUATE = "evaluate"
    CONFIRM = "confirm"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One expansion under way: the node that grows, and the present stage."""

    number: int
    parent: int
    repair: bool  # the node that grows has a bug
    stage: Stage
    injected: bool = False  # its source is a person's
