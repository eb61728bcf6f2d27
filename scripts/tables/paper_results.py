"""The paper's figures (arXiv 2510.16996, Tables 1 to 3), which our tables show next to ours.

KernelBench's representative problems on an A100 40 GB, Claude Sonnet 4, 30 attempts a problem.  The
figures are as printed: level 1's shares are fourteenths, the others' eighths, though KernelBench
names 18, 8 and 9 problems; 92.6 % and 67.5 % are neither.
"""

from __future__ import annotations

from protocol.values import Value

FastAndSpeed = tuple[float, float]  # fast_1, speed


class PaperRow(Value, frozen=True, kw_only=True):
    """One row of the paper, shares as fractions."""

    success: float | None = None
    eager: FastAndSpeed
    compile: FastAndSpeed
    max_autotune: FastAndSpeed
    compile_rate: float | None = None
    correct_rate: float | None = None


def _row(
    success: float | None,
    eager: FastAndSpeed,
    compiled: FastAndSpeed,
    max_autotune: FastAndSpeed,
    rates: tuple[float, float] | None = None,
) -> PaperRow:
    return PaperRow(
        success=None if success is None else success / 100,
        eager=_fraction(eager),
        compile=_fraction(compiled),
        max_autotune=_fraction(max_autotune),
        compile_rate=rates[0] / 100 if rates else None,
        correct_rate=rates[1] / 100 if rates else None,
    )


def _fraction(pair: FastAndSpeed) -> FastAndSpeed:
    return pair[0] / 100, pair[1]


# (level, strategy) -> Tables 1 and 2, and the two rows of the ablation (Table 3), which has less.
PAPER_ROWS: dict[tuple[int, str], PaperRow] = {
    (1, "sampling"): _row(57.1, (14.3, 0.81), (7.1, 0.46), (7.1, 0.81), (90.8, 43.0)),
    (1, "reflexion"): _row(92.6, (28.6, 1.24), (14.3, 0.57), (35.7, 0.92), (86.0, 48.3)),
    (1, "stark"): _row(100, (71.4, 3.03), (78.6, 2.37), (78.6, 2.76), (84.5, 50.6)),
    (2, "sampling"): _row(87.5, (50, 1.06), (37.5, 0.91), (37.5, 0.91), (97.0, 44.0)),
    (2, "reflexion"): _row(100, (75, 0.88), (62.5, 0.78), (62.5, 0.78), (86.2, 53.4)),
    (2, "stark"): _row(100, (100, 2.69), (87.5, 2.51), (87.5, 2.52), (90.7, 61.2)),
    (3, "sampling"): _row(100, (50, 0.87), (12.5, 0.67), (12.5, 0.66), (84.9, 15.1)),
    (3, "reflexion"): _row(67.5, (25, 0.79), (12.5, 0.62), (12.5, 0.61), (78.9, 28.4)),
    (3, "search"): _row(None, (67.5, 0.89), (25, 0.71), (25, 0.70)),
    (3, "team"): _row(None, (67.5, 1.11), (25, 0.92), (25, 0.91)),
    (3, "stark"): _row(100, (87.5, 1.58), (87.5, 1.27), (87.5, 1.26), (83.4, 35.5)),
}
