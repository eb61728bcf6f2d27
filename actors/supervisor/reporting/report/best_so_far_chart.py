"""The geometry of the best-so-far chart: speed-up over attempts, one mark for each attempt.

`best_so_far.svg.j2` draws it.  The line and the rings show first looks, by which the search went;
the end of the line is the confirmed speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from actors.supervisor.reporting.run_data.snapshot import NodeView, TaskState
from protocol.values import Value

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 36
HEADROOM = 1.08  # of the highest speed-up, so that its mark is not at the edge


class ChartLabel(Value, frozen=True, kw_only=True):
    """A number at an axis, and where it is in the picture."""

    at: float
    text: str


class ChartMark(Value, frozen=True, kw_only=True):
    """One attempt: a ring at its speed-up, or a cross at the bottom for a failure."""

    x: float
    y: float | None  # None: not correct
    title: str


class ChartAxes(Value, frozen=True, kw_only=True):
    """How attempts and speed-ups become positions in the picture."""

    max_speedup: float
    x_step: float

    def x(self, position: float) -> float:
        return LEFT + position * self.x_step

    def y(self, speedup: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - speedup / self.max_speedup)


class BestSoFarChart(Value, frozen=True, kw_only=True):
    """All that the picture of one task shows."""

    line: str  # an SVG path
    reference_y: float
    speedups: tuple[ChartLabel, ...]
    attempts: tuple[ChartLabel, ...]
    marks: tuple[ChartMark, ...]
    confirmed: ChartMark | None

    width: int = WIDTH
    left: int = LEFT
    right: int = WIDTH - RIGHT
    height: int = HEIGHT
    bottom: int = HEIGHT - BOTTOM


def best_so_far_chart(task: TaskState) -> BestSoFarChart | None:
    """Return the chart of one task, or None before its first attempt has ended."""
    nodes = sorted(task.attempts, key=lambda node: (node.at, node.number))
    if not nodes:
        return None
    end = _confirmed_speedup(task)
    highest = max(1.0, end or 0.0, *(node.first_verdict.speedup or 0.0 for node in nodes))
    count = max(task.budget, len(nodes))
    x_step = (WIDTH - LEFT - RIGHT) / (count + (end is not None))
    axes = ChartAxes(max_speedup=highest * HEADROOM, x_step=x_step)
    line = _steps(nodes, axes)
    confirmed = None
    if end is not None:
        line += f"H{axes.x(count):.1f}V{axes.y(end):.1f}H{axes.x(count + 1):.1f}"
        if task.best is not None:
            title = f"node {task.best.number}: {end:.2f}×, confirmed"
            confirmed = ChartMark(x=axes.x(count + 1), y=axes.y(end), title=title)
    return BestSoFarChart(
        line=line,
        reference_y=axes.y(1.0),
        speedups=tuple(_speedup_labels(axes)),
        attempts=tuple(_attempt_labels(axes, count)),
        marks=tuple(_mark(node, axes.x(place), axes) for place, node in enumerate(nodes, start=1)),
        confirmed=confirmed,
    )


def _confirmed_speedup(task: TaskState) -> float | None:
    """Return the speed-up that the task ends with: the winner's, or 1; None before the end."""
    if task.best is not None and task.best.confirmed:
        return task.best.verdict.speedup
    return 1.0 if task.is_over else None


def _mark(node: NodeView, x: float, axes: ChartAxes) -> ChartMark:
    first = node.first_verdict
    if first.is_correct and first.speedup is not None:
        title = f"node {node.number}: {first.speedup:.2f}×, first look"
        return ChartMark(x=x, y=axes.y(first.speedup), title=title)
    return ChartMark(x=x, y=None, title=f"node {node.number}: {first.verdict}")


def _steps(nodes: Sequence[NodeView], axes: ChartAxes) -> str:
    best = 1.0  # the root is the reference itself
    path = f"M{axes.x(0):.1f} {axes.y(best):.1f}"
    for position, node in enumerate(nodes, start=1):
        path += f"H{axes.x(position):.1f}"
        if node.first_verdict.is_faster and (node.first_verdict.speedup or 0.0) > best:
            best = node.first_verdict.speedup or best
            path += f"V{axes.y(best):.1f}"
    return path


def _speedup_labels(axes: ChartAxes) -> Iterator[ChartLabel]:
    step = _round_step(axes.max_speedup / 4)
    for number in range(int(axes.max_speedup / step) + 1):
        yield ChartLabel(at=axes.y(number * step), text=f"{number * step:g}×")


def _attempt_labels(axes: ChartAxes, attempts: int) -> Iterator[ChartLabel]:
    step = max(1, round(_round_step(attempts / 6)))
    for position in range(0, attempts + 1, step):
        yield ChartLabel(at=axes.x(position), text=str(position))


def _round_step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10)
