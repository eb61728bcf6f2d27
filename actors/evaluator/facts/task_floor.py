"""The floor of a task: its own bytes and operations at rates that were measured.  Pure."""

from __future__ import annotations

from protocol.facts import DeviceRates, TaskCost, TaskFloor


def task_floor(cost: TaskCost, rates: DeviceRates) -> TaskFloor:
    """Return the least time of a task's own bytes and operations; unknown parts are None.

    Bytes count from the last cache if all of them fit into half of it, where they may stay from
    call to call.  Operations count only if every one of them was counted.
    """
    moved = cost.total_bytes
    fits = 2 * moved <= rates.cache_bytes
    return TaskFloor(
        memory_us=_us(moved, rates.copy_gb_s, 1e3),
        cached_us=_us(moved, rates.cached_copy_gb_s, 1e3) if fits else None,
        matrix_us=_matrix_us(cost, rates),
        launch_us=rates.next_launch_us or rates.empty_call_us,
    )


def _matrix_us(cost: TaskCost, rates: DeviceRates) -> float | None:
    parts = [
        _us(count, rates.tflops.get(precision), 1e6) for precision, count in cost.flops.items()
    ]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _us(amount: float, rate: float | None, a_us: float) -> float | None:
    """Return the microseconds of an amount; `a_us`: what one unit of the rate does in each."""
    return amount / (rate * a_us) if rate else None
