"""How a run gets on, as text: its state, pace, money, time left, and the best so far as a curve.

Pure: the time of day is passed in.  Both screens use it.
"""

from __future__ import annotations

import bisect
import math

from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from protocol.settings import Settings

PACE_WINDOW_S = 600.0  # the pace is that of the last ten minutes
MIN_PACE_ATTEMPTS = 2  # fewer say nothing about the pace
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
# The words of an evaluator's activity while it measures a task, in any of its parts.
MEASURING = ("measuring", "waiting for the task")
STATES = {"": "starting", "draining": "draining: ends what is under way", "idle": "nothing to do"}


def state(snapshot: Snapshot) -> str:
    """Return what the run does now, with the reason if it does not go on."""
    if snapshot.status == "running" and snapshot.is_paused:
        return "paused by a person: nothing new begins"
    if snapshot.status == "running" and snapshot.is_finishing:
        return "finishing: it was asked to end with what is under way"
    words = STATES.get(snapshot.status, snapshot.status)
    is_going = snapshot.status in ("running", "finished")
    return f"{words} ({snapshot.reason})" if snapshot.reason and not is_going else words


def summary(snapshot: Snapshot, settings: Settings, wall: float, elapsed_s: float) -> list[str]:
    """Return attempts, pace, dollars and time left, a phrase each."""
    budget = sum(task.budget for task in snapshot.tasks if not task.problem)
    pace = attempts_a_minute(snapshot, wall, elapsed_s)
    phrases = [f"{snapshot.recorded} of {budget} attempts"] if budget else []
    if pace is not None:
        phrases.append(f"{pace:.1f} a minute")
    phrases.append(dollars(snapshot, settings))
    left = time_left(snapshot, settings, pace, elapsed_s)
    return [*phrases, left] if left else phrases


def attempts_a_minute(snapshot: Snapshot, wall: float, elapsed_s: float) -> float | None:
    """Return how many attempts a minute got a verdict lately; None for too few to say."""
    span_s = min(PACE_WINDOW_S, elapsed_s)
    nodes = [node for task in snapshot.tasks for node in task.attempts]
    count = sum(wall - span_s < node.at <= wall for node in nodes)
    return None if count < MIN_PACE_ATTEMPTS or span_s <= 0 else count / span_s * 60


def dollars(snapshot: Snapshot, settings: Settings) -> str:
    """Return `0.42 of 5.00 USD`, or without a cap `0.42 USD`."""
    spent = formatting.total_spend([task.spend for task in snapshot.tasks]).usd
    cap = settings.max_cost if snapshot.cap_usd is None else snapshot.cap_usd
    if spent is None:
        return "price unknown"
    return f"{spent:.2f} USD" if cap is None else f"{spent:.2f} of {cap:.2f} USD"


def time_left(snapshot: Snapshot, settings: Settings, pace: float | None, elapsed_s: float) -> str:
    """Return the time left, by the pace or by --max-minutes; "" where it is unknown."""
    if snapshot.status != "running" or snapshot.is_paused:
        return ""
    unfinished = [task for task in snapshot.tasks if not snapshot.is_finished(task)]
    remaining = sum(max(0, task.budget - len(task.attempts)) for task in unfinished)
    if unfinished and not remaining:
        return "all attempts are made: judging the best again, in 3 to 15 fresh processes each"
    if not unfinished and any(
        task.reference is not None and task.reference.baselines_pending for task in snapshot.tasks
    ):
        return "all tasks are done: torch.compile's baselines are measured"
    limit_s = None if settings.max_minutes is None else settings.max_minutes * 60 - elapsed_s
    guess_s = remaining / pace * 60 if pace and remaining else None
    if limit_s is not None and (guess_s is None or limit_s < guess_s):
        return f"{formatting.clock_time(max(0.0, limit_s))} left of --max-minutes"
    return "" if guess_s is None else f"about {rough_time(guess_s)} left (estimate)"


def rough_time(seconds: float) -> str:
    """Return `40 s`, `8 min`, `3.5 h`: no more digits than an estimate has."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def measuring(task: TaskState, workers: tuple[WorkerStatus, ...]) -> str:
    """Return which part of a task's reference is measured now, and for how long already."""
    if task.reference is not None or task.problem:
        return ""
    for worker in workers:
        if worker.activity.startswith(MEASURING) and worker.activity.split()[-1] == task.name:
            activity = worker.activity.removesuffix(task.name).removesuffix(" of ").strip()
            what = "measuring the reference" if activity == "measuring" else activity
            return f"{what}, for {formatting.clock_time(worker.seconds or 0.0)}"
    return "waits: its reference is not measured yet"


def best_so_far(task: TaskState) -> list[float]:
    """Return the best speed-up after the reference and each attempt, by first looks."""
    best, curve = 1.0, [1.0]
    for node in sorted(task.attempts, key=lambda node: (node.at, node.number)):
        first = node.first_verdict
        if first.is_faster:
            best = max(best, first.speedup or 1.0)
        curve.append(best)
    return curve


def curve_line(task: TaskState, width: int, *, ascii_only: bool = False) -> str:
    """Return `▁▁▃▃█ 2.50×, last gain at attempt 5 of 9`; "" before the first attempt.

    Once a node was confirmed, the line says that the curve is of first looks.
    """
    values = best_so_far(task)
    attempts = len(values) - 1
    if not attempts:
        return ""
    last = bisect.bisect_left(values, values[-1])  # the first attempt that was as good
    gain = f", last gain at attempt {last} of {attempts}" if last else ", no gain yet"
    looks = " in first looks" if any(node.confirmed for node in task.attempts) else ""
    return f"{blocks(values, width, ascii_only=ascii_only)} {values[-1]:.2f}×{looks}{gain}"


def blocks(values: list[float], width: int, *, ascii_only: bool = False) -> str:
    """Return values from 1 on as block characters, `width` at most, on a logarithmic scale."""
    signs = ASCII_BLOCKS if ascii_only else BLOCKS
    count = min(width, len(values))
    # Of several values in one place the last one counts: the best so far never falls.
    shown = [values[(place + 1) * len(values) // count - 1] for place in range(count)]
    top = math.log(max(values))
    heights = [math.log(value) / top if top > 0 else 0.0 for value in shown]
    return "".join(signs[round(height * (len(signs) - 1))] for height in heights)


def path_to_best(task: TaskState) -> list[NodeView]:
    """Return the nodes from the reference's child to the best, or to what comes closest."""
    by_number = {node.number: node for node in task.attempts}
    node = task.best or task.closest
    path: list[NodeView] = []
    while node is not None and node not in path:
        path.insert(0, node)
        node = by_number.get(node.parent or 0)
    return path


def path_line(task: TaskState, width: int) -> str:
    """Return `0 → 2 1.25× → 3 2.50×`, with its middle left out where it does not fit."""
    steps = [f"{node.number} {_speed(node)}" for node in path_to_best(task)]
    for kept in range(len(steps), 0, -1):
        middle = [] if kept == len(steps) else ["…"]
        line = " → ".join(["0", *middle, *steps[-kept:]])
        if len(line) <= width:
            return line
    return f"… {steps[-1]}" if steps else ""


def _speed(node: NodeView) -> str:
    speedup = node.verdict.speedup
    return f"{speedup:.2f}×" if node.is_correct and speedup else str(node.verdict.verdict)
