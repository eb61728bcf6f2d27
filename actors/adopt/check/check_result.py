"""What `check` writes: each winner in the whole model, and all that were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from actors.adopt.check.accuracy import Accuracy
from actors.adopt.check.compiled_graphs import GraphCount
from actors.adopt.check.regime_gains import RegimeGain
from actors.adopt.check.step_timing import Gain

QUALITY_CHANGE = 0.01  # of the user's own figures
NO_TIME = "the time for the check was over before it was tried (--max-minutes)"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One winner in the whole model."""

    name: str
    kept: bool
    reason: str = ""  # why it was dropped
    alone: Gain | None = None
    together: Gain | None = None  # with those kept before it, compared with those only
    accuracy: Accuracy | None = None
    ceiling: float = 0.0
    kernel_calls: int = 0  # in one pass over all batches
    expected_calls: int = 0

    @property
    def has_no_gain(self) -> bool:
        """Whether nothing is wrong with a winner, but the step is not faster."""
        return self.alone is not None and self.alone.low <= 1.0


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """check.json."""

    device: str
    kept: list[str]
    trials: list[Trial]
    gain: Gain | None  # of all kept winners; null where none is
    is_partial: bool = False  # the time was over before torch.compile and the rest were tried
    regime: str = "eager"  # in which that gain was measured
    ceiling: float = 0.0  # what all kept winners together could bring at most
    regimes: list[RegimeGain] = msgspec.field(default_factory=list)
    accuracy: Accuracy | None = None
    accuracy_problem: str = ""  # why there is no float64 reference
    memory_before: int = 0  # bytes, the highest of a pass
    memory_after: int = 0
    graphs_before: GraphCount | None = None
    graphs_after: GraphCount | None = None
    quality_before: dict[str, float] = msgspec.field(default_factory=dict)
    quality_after: dict[str, float] = msgspec.field(default_factory=dict)
    # group of modules -> its time in a step before and after, ms; those inside of kernels are out
    module_ms: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)

    @property
    def is_faster(self) -> bool:
        """Whether the step is faster beyond noise with what is kept."""
        return self.gain is not None and self.gain.low > 1.0

    @property
    def has_untried(self) -> bool:
        """Whether there was no time to try a winner: the same command may bring more."""
        return any(trial.reason == NO_TIME for trial in self.trials)


def best_so_far(
    first: Check, trials: Sequence[Trial], peaks: Mapping[frozenset[str], int]
) -> Check:
    """Return the result where the time is over after these trials: the best winner alone.

    `first`: a result without winners.  `peaks`: the highest memory of a pass, by winners.
    """
    gains = {trial.name: trial.alone for trial in trials if trial.kept and trial.alone}
    best = max(gains, key=lambda name: gains[name].speedup, default=None)
    found = [
        trial
        if trial.name == best or not trial.kept
        else msgspec.structs.replace(trial, kept=False, reason=NO_TIME)
        for trial in trials
    ]
    result = msgspec.structs.replace(first, trials=found, is_partial=True)
    if best is None:
        return result
    (trial,) = (each for each in found if each.name == best)
    return msgspec.structs.replace(
        result,
        kept=[best],
        gain=trial.alone,
        ceiling=trial.ceiling,
        accuracy=trial.accuracy,
        memory_after=peaks.get(frozenset([best]), 0),
    )


def changed_figure(before: dict[str, float], after: dict[str, float]) -> str:
    """Return which of the user's own figures has changed; "" when none has."""
    for name, value in before.items():
        other = after.get(name, float("nan"))
        if not abs(other - value) <= QUALITY_CHANGE * max(abs(value), 1e-12):
            return f"{name} changes from {value:.6g} to {other:.6g}"
    return ""
