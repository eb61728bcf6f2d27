"""The reference's own times: eager, and under torch.compile when that is asked for."""

from __future__ import annotations

import os
import time
from statistics import median

from actors.evaluator import timing
from actors.evaluator.child import Child, Gone
from actors.evaluator.orders import Bench, Compile, FromRunner, Import, Order, Raised
from actors.evaluator.standard import Standard

BLOCKS = 25
MEASURE_S = 1.0
WARM_S = 0.3
COMPILE_S = 300.0


def eager_us(standard: Standard) -> float:
    """Return the median microseconds of one call of the task's own module."""
    measured = _median_us(standard, standard.runner)
    if measured is None:
        raise standard.failed("it could not be timed")
    return measured


def compiled_us(standard: Standard, mode: str) -> float | None:
    """Return the same under torch.compile; None when it can't be compiled here."""
    child: Child[FromRunner] = standard.nursery.spawn(
        "runner", standard.confinement, FromRunner, trusted=False
    )
    try:
        orders: list[tuple[Order, list[int]]] = [
            (Import(source=standard.task.source, class_name="Model"), []),
            standard.construct(),
            standard.load(),
            (Compile(mode=mode), []),
        ]
        for order, carried in orders:
            if not _well(child.ask(order, standard.limits.check_s, carried)):
                return None
        return _median_us(standard, child, first_s=COMPILE_S)
    finally:
        child.kill()


def _well(answer: object) -> bool:
    return isinstance(answer, tuple) and not isinstance(answer[0], Raised)


def _median_us(
    standard: Standard, child: Child[FromRunner], first_s: float | None = None
) -> float | None:
    limit = standard.limits.check_s
    draw = standard.draw()
    feed, carried = standard.feed(draw, 0)
    try:
        fed = _well(child.ask(feed, limit, carried))
    finally:
        os.close(draw.parcel)
        standard.forget(draw.number)
    if not fed or not _well(child.ask(Bench(calls=1, slots=1), first_s or limit)):
        return None
    calls, began = 1, time.monotonic()
    taken: list[float] = []
    while len(taken) < BLOCKS:
        start = time.perf_counter()
        answer = child.ask(Bench(calls=calls, slots=1), limit)
        seconds = (time.perf_counter() - start) / calls
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            return None
        elapsed = time.monotonic() - began
        calls = timing.calls_a_block(seconds)
        if elapsed >= WARM_S or calls == 1:
            taken.append(seconds * 1e6)
        if elapsed >= MEASURE_S and taken:
            break
    return median(taken)
