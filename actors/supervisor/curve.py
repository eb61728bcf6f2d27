"""The best-so-far curve as inline SVG: speed-up over attempts, one dot for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from actors.supervisor.snapshot import Node, TaskState

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 36

Axis = Callable[[float], float]  # a value to its place in the picture


def curve(task: TaskState) -> str:
    """Return the curve of one task: the step line of the best, dots of the correct, ticks below."""
    nodes = sorted(task.attempts, key=lambda node: (node.at, node.number))
    if not nodes:
        return "<p>No attempt has ended yet.</p>"
    most = max(1.0, *(node.verdict.speedup or 0.0 for node in nodes)) * 1.08
    x_step = (WIDTH - LEFT - RIGHT) / max(task.budget, len(nodes))

    def x(position: float) -> float:
        return LEFT + position * x_step

    def y(speedup: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - speedup / most)

    parts = [_grid(most, max(task.budget, len(nodes)), x, y)]
    parts.append(f'<path class="best" d="{_steps(nodes, x, y)}"/>')
    for position, node in enumerate(nodes, start=1):
        if node.verdict.correct and node.verdict.speedup is not None:
            parts.append(
                f'<circle class="ok" cx="{x(position):.1f}" cy="{y(node.verdict.speedup):.1f}"'
                f' r="3.5"><title>node {node.number}: {node.verdict.speedup:.2f}×</title></circle>'
            )
        else:
            at = x(position)
            parts.append(
                f'<path class="bad" d="M{at - 3:.1f} {HEIGHT - BOTTOM - 9}l6 6m0 -6l-6 6">'
                f"<title>node {node.number}: {node.verdict.verdict}</title></path>"
            )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="best speed-up so far">'
        f"{''.join(parts)}</svg>"
    )


def _steps(nodes: Sequence[Node], x: Axis, y: Axis) -> str:
    best = 1.0  # the root is the reference itself
    path = f"M{x(0):.1f} {y(best):.1f}"
    for position, node in enumerate(nodes, start=1):
        path += f"H{x(position):.1f}"
        if node.verdict.correct and (node.verdict.speedup or 0.0) > best:
            best = node.verdict.speedup or best
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
