"""The cases of a task: other shapes and dtypes, what was measured of each, one score.  Pure.

The score of a candidate is the geometric mean of its speed-ups, weighted.  A candidate that makes
one case slower than `SLOWEST_RATIO` of eager has that case's figures instead, so it never wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from protocol.figure_text import us
from protocol.frozen_struct import Value
from protocol.release import Judged

SLOWEST_RATIO = 0.98  # of a case: eager's time over the candidate's, at least


class TaskCase(Value, frozen=True, kw_only=True):
    """One layout of a task's inputs; without any change it is what `get_inputs()` draws."""

    name: str
    weight: float = 1.0  # the weights of a task's cases add up to 1
    # Constants of the task's file, or defaults of get_inputs(): name -> Python literal.
    constants: dict[str, str] = msgspec.field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = ()  # of the tensors of get_inputs(), in order
    dtypes: tuple[str, ...] = ()  # likewise
    dtype: str = ""  # of the module and of its floating-point inputs, as `.to(dtype)` makes them


class CaseReference(Value, frozen=True, kw_only=True):
    """The measured figures of the task's own module in one case."""

    name: str
    weight: float
    eager_us: float
    compile_us: float | None = None
    max_autotune_us: float | None = None
    inputs: str = ""
    outputs: str = ""
    judged: Judged | None = None  # its layouts; None in older runs


class CaseResult(Value, frozen=True, kw_only=True):
    """What the judge measured of a correct candidate in one case."""

    name: str
    weight: float
    median_us: float | None = None
    reference_us: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the candidate is slower here than the task allows."""
        return self.speedup is not None and self.speedup < SLOWEST_RATIO


class CaseFigures(Value, frozen=True, kw_only=True):
    """The figures of a candidate over all cases, and the slow case that they are of, if any."""

    median_us: float | None = None
    reference_us: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    slow_case: str = ""


def combined_figures(results: Sequence[CaseResult]) -> CaseFigures:
    """Return the weighted geometric means, or the figures of the slowest case if that is slow.

    The bounds of the interval are the means of the cases' bounds, which is never too narrow.
    """
    slow = [each for each in results if each.is_slow]
    if slow:
        worst = min(slow, key=lambda each: each.speedup or math.inf)
        return CaseFigures(
            median_us=worst.median_us,
            reference_us=worst.reference_us,
            speedup=worst.speedup,
            speedup_ci95=worst.speedup_ci95,
            slow_case=worst.name,
        )
    weights = [each.weight for each in results]
    bounds = [each.speedup_ci95 for each in results]
    low = geometric_mean([each and each[0] for each in bounds], weights)
    high = geometric_mean([each and each[1] for each in bounds], weights)
    return CaseFigures(
        median_us=geometric_mean([each.median_us for each in results], weights),
        reference_us=geometric_mean([each.reference_us for each in results], weights),
        speedup=geometric_mean([each.speedup for each in results], weights),
        speedup_ci95=None if low is None or high is None else (low, high),
    )


def geometric_mean(figures: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the weighted geometric mean; None if a figure is missing."""
    known = [figure for figure in figures if figure is not None and figure > 0]
    if not figures or len(known) < len(figures):
        return None
    total = sum(weights)
    logs = (math.log(figure) * weight for figure, weight in zip(known, weights, strict=True))
    return math.exp(sum(logs) / total)


# --- as text --------------------------------------------------------------------------------------


def reference_case_lines(cases: Sequence[CaseReference], *, backward: bool = False) -> list[str]:
    """Return what a task with cases asks for, a line for each; [] for a task without cases."""
    if not cases:
        return []
    call = "call (forward and backward)" if backward else "call"
    head = (
        f"ModelNew is judged on {len(cases)} cases. It must be correct on all of them; the score "
        f"is the geometric mean of the speed-ups, weighted, and no case may be slower than "
        f"{SLOWEST_RATIO:g}× of eager. Each {call} has the shapes and dtypes of one case:"
        if len(cases) > 1
        else f"ModelNew is judged on this case, each {call}:"
    )
    return [head, *(f"- {_reference_text(each)}" for each in cases)]


def _reference_text(case: CaseReference) -> str:
    times = f"{us(case.eager_us)} eager"
    if case.compile_us is not None:
        times += f", {us(case.compile_us)} under torch.compile"
    shown = f"{case.inputs} → {case.outputs}" if case.outputs else case.inputs
    return f"{case.name} (weight {case.weight:.2g}): {shown}; {times}"


def result_case_lines(results: Sequence[CaseResult]) -> list[str]:
    """Return the figures of each case; [] for a task without cases."""
    slow = combined_figures(results).slow_case if results else ""
    return [
        f"case {each.name} (weight {each.weight:.2g}): {_result_text(each)}"
        + (f"; slower than {SLOWEST_RATIO:g}×: this is the score" if each.name == slow else "")
        for each in results
    ]


def _result_text(result: CaseResult) -> str:
    if result.speedup is None or result.median_us is None or result.reference_us is None:
        return "correct"
    times = f"{us(result.median_us)} against {us(result.reference_us)} eager"
    interval = ""
    if result.speedup_ci95 is not None:
        low, high = result.speedup_ci95
        interval = f" (95 %: {low:.3g} to {high:.3g})"
    return f"{result.speedup:.3g}×{interval}, {times}"
