"""What happens to a search: results of the work that it asked for.

The events of a person's directives are in `steering_events.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.coordinator.search.attempt_stages import Stage
from protocol.values import GiveUpScope


@dataclass(frozen=True)
class ReferenceReady:
    """The reference runs in this many microseconds."""

    eager_us: float


@dataclass(frozen=True)
class ReferenceRefused:
    """The reference can't be measured, so no candidate can be compared with it."""

    problem: str


@dataclass(frozen=True)
class StageEnded:
    """An attempt's present stage has the result that the next stage needs."""

    number: int


@dataclass(frozen=True)
class AttemptEnded:
    """An attempt has its verdict; `score` is FAILED_SCORE unless it is correct."""

    number: int
    score: float
    kernel: str  # identifies the source
    gives_up_on: GiveUpScope = "attempt"


@dataclass(frozen=True)
class CheckFailed:
    """A candidate failed before it was timed: its agent is asked to mend it, once."""

    number: int
    writing: Stage  # the stage that wrote it
