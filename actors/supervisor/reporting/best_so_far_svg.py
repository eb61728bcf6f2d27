"""The best-so-far curve as inline SVG: speed-up over attempts, one dot for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from actors.supervisor.reporting.snapshot import NodeView, TaskState

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 36

Axis = Callable[[float], float]  # a value to its place in the picture


def best_so_far_svg(task: TaskState) -> str:
    """Return the curve of one task: the step line of the best, dots of the correct, ticks below.

    Line and dots are first looks, as the search went by them; the line's end is what was confirmed.
    """
    nodes = sorted(task.attempts, key=lambda node: (node.at, node.number))
    if not nodes:
        return "<p>No attempt has ended yet.</p>"
    end = _confirmed(task)
    most = max(1.0, end or 0.0, *(node.first_verdict.speedup or 0.0 for node in nodes)) * 1.08
    attempts = max(task.budget, len(nodes))
    x_step = (WIDTH - LEFT - RIGHT) / (attempts + (end is not None))

    def x(position: float) -> float:
        return LEFT + position * x_step

    def y(speedup: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - speedup / most)

    line = _steps(nodes, x, y)
    parts = [_grid(most, attempts, x, y)]
    if end is not None:
        line += f"H{x(attempts):.1f}V{y(end):.1f}H{x(attempts + 1):.1f}"
    parts.append(f'<path class="best" d="{line}"/>')
    parts += [_mark(node, x(place), y) for place, node in enumerate(nodes, start=1)]
    if end is not None and task.best is not None:
        parts.append(
            f'<circle class="best" cx="{x(attempts + 1):.1f}" cy="{y(end):.1f}" r="4.5">'
            f"<title>node {task.best.number}: {end:.2f}×, confirmed</title></circle>"
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="best speed-up so far">'
        f"{''.join(parts)}</svg>"
    )


def _confirmed(task: TaskState) -> float | None:
    """Return the speed-up that the task ends with: the winner's, or 1; None before the end."""
    if task.best is not None and task.best.confirmed:
        return task.best.verdict.speedup
    return 1.0 if task.is_over else None


def _mark(node: NodeView, at: float, y: Axis) -> str:
    """Return a node's dot, or the cross of a failure."""
    first = node.first_verdict
    if first.is_correct and first.speedup is not None:
        return (
            f'<circle class="ok" cx="{at:.1f}" cy="{y(first.speedup):.1f}" r="3.5">'
            f"<title>node {node.number}: {first.speedup:.2f}×, first look</title></circle>"
        )
    return (
        f'<path class="bad" d="M{at - 3:.1f} {HEIGHT - BOTTOM - 9}l6 6m0 -6l-6 6">'
        f"<title>node {node.number}: {first.verdict}</title></path>"
    )


def _steps(nodes: Sequence[NodeView], x: Axis, y: Axis) -> str:
    best = 1.0  # the root is the reference itself
    path = f"M{x(0):.1f} {y(best):.1f}"
    for position, node in enumerate(nodes, start=1):
        path += f"H{x(position):.1f}"
        if node.first_verdict.is_faster and (node.first_verdict.speedup or 0.0) > best:
            best = node.first_verdict.speedup or best
            path += f"V{y(best):.1f}"
    return path


def _grid(most: float, attempts: int, x: Axis, y: Axis) -> str:
    parts = []
    step = _round_step(most / 4)
    for number in range(int(most / step) + 1):
        height = y(number * step)
        parts.append(
            f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{number * step:g}×</text>'
        )
    parts.append(f'<path class="one" d="M{LEFT} {y(1):.1f}H{WIDTH - RIGHT}"/>')
    every = max(1, round(_round_step(attempts / 6)))
    for position in range(0, attempts + 1, every):
        parts.append(
            f'<text x="{x(position):.1f}" y="{HEIGHT - BOTTOM + 18}"'
            f' text-anchor="middle">{position}</text>'
        )
    return "".join(parts)


def _round_step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10)
