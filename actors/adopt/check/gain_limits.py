"""Which gains of a winner are believed: above noise, and possible for its part of the step."""

from __future__ import annotations

from collections.abc import Iterable

from actors.adopt.check.fitted_states import DroppedError
from actors.adopt.check.step_timing import Gain
from actors.adopt.look.look import Look
from actors.adopt.look.site_groups import amdahl
from actors.adopt.take.taken_tasks import TakenTask

CEILING_SLACK = 1.1  # shares are measured, too
UNDECIDED_WIDTH = 0.2  # an interval that may hide a gain worth having


class NoGainError(DroppedError):
    """The step is not faster beyond noise."""


def possible_gain(look: Look, tasks: Iterable[TakenTask]) -> float:
    """Return what tasks could bring by their shares.

    In a training step what belongs to no module may be their backward, and its Python.
    """
    tasks = list(tasks)
    share = sum(task.share for task in tasks)
    busy = look.busy
    if any(task.gradients for task in tasks):
        return amdahl(min((share + look.outside_share) * busy + 1 - busy, 1.0))
    return amdahl(min(share * busy, 1.0))


def refuse_gain(gain: Gain, ceiling: float, share: float) -> None:
    """Raise DroppedError for a gain that is not there, or that can't be."""
    if gain.low <= 1.0:
        word = "slower" if gain.high < 1.0 else "no gain beyond noise"
        is_wide = gain.low < 1.0 < gain.high and gain.high - gain.low > UNDECIDED_WIDTH
        advice = " (the machine is busy: --seconds 60 measures longer)" if is_wide else ""
        raise NoGainError(f"{word}: {gain.describe()}{advice}")
    if gain.low > ceiling * CEILING_SLACK:
        raise DroppedError(
            f"the step becomes {gain.describe()} faster, and the module is only {share:.0%} of it"
            f" (at most {ceiling:.2f}×): something else changed"
        )
