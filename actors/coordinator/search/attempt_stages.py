"""Stages and attempts: the kinds of work that a search leases, and one expansion under way."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    # The agent of that stage mends its candidate in the same conversation, before it is a node.
    AMEND_WRITE = "amend-write"
    AMEND_REPAIR = "amend-repair"
    AMEND_SOLVE = "amend-solve"
    AMEND_REFLECT = "amend-reflect"
    REEVALUATE = "reevaluate"  # the mended candidate
    CONFIRM = "confirm"


# The stages that an attempt begins with.
OPENING_STAGES = (Stage.PLAN, Stage.REPAIR, Stage.SOLVE, Stage.REFLECT)
# The stage that wrote a candidate, of the stage that mends it.
WRITING_STAGE = {
    Stage.AMEND_WRITE: Stage.WRITE,
    Stage.AMEND_REPAIR: Stage.REPAIR,
    Stage.AMEND_SOLVE: Stage.SOLVE,
    Stage.AMEND_REFLECT: Stage.REFLECT,
}
AMENDING_STAGE = {writing: amending for amending, writing in WRITING_STAGE.items()}
JUDGED_STAGES = (Stage.EVALUATE, Stage.REEVALUATE)


def stage_after(stage: Stage) -> Stage:
    """Return the stage that follows when a stage has its result."""
    if stage is Stage.PLAN:
        return Stage.WRITE
    return Stage.REEVALUATE if stage in WRITING_STAGE else Stage.EVALUATE


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One expansion under way: the node that grows, and the present stage."""

    number: int
    parent: int
    repair: bool  # the node that grows has a bug
    stage: Stage
    injected: bool = False  # its source is a person's

    def at(self, stage: Stage) -> Attempt:
        """Return the attempt at another stage."""
        return replace(self, stage=stage)
