"""The floor of a task: its own bytes and operations at rates that were measured.  Pure."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.facts import DeviceRates, TaskCost, TaskFloor

MAX_RAISE = 1.3  # of a rate by the task's own module


def task_floor(cost: TaskCost, rates: DeviceRates) -> TaskFloor:
    """Return the least time of a task's own bytes and operations; unknown parts are None.

    Bytes count from the last cache if all of them fit into half of it, where they may stay from
    call to call.  Operations count only if every one of them was counted.
    """
    fits = 2 * cost.total_bytes <= rates.cache_bytes
    return TaskFloor(
        memory_us=_bytes_us(cost, rates.copy_gb_s, rates.read_gb_s),
        cached_us=_bytes_us(cost, rates.cached_copy_gb_s, rates.cached_read_gb_s) if fits else None,
        matrix_us=_matrix_us(cost, rates),
        launch_us=rates.next_launch_us or rates.empty_call_us,
    )


def rates_that_allow(us: float, cost: TaskCost, rates: DeviceRates) -> DeviceRates:
    """Return the rates, raised where the task's own module is faster than its floor by them.

    What was measured in one shape may be reached in another.  Rates that are far too low were
    measured beside other programs: then nothing is known.
    """
    floor = task_floor(cost, rates)
    bytes_us, matrix_us = floor.parts.get("bytes", 0.0), floor.matrix_us or 0.0
    if max(bytes_us, matrix_us) > MAX_RAISE * us:
        return DeviceRates()
    if matrix_us > us:
        raised = {
            precision: rate * (matrix_us / us if precision in cost.flops else 1.0)
            for precision, rate in rates.tflops.items()
        }
        rates = replace(rates, tflops=raised)
    if bytes_us > us:
        cached = "" if floor.cached_us is None else "cached_"
        names = (f"{cached}copy_gb_s", f"{cached}read_gb_s")
        known = {name: rate for name in names if (rate := getattr(rates, name)) is not None}
        rates = replace(rates, **{name: rate * bytes_us / us for name, rate in known.items()})
    return rates


def _bytes_us(cost: TaskCost, copy_gb_s: float | None, read_gb_s: float | None) -> float | None:
    """Return the microseconds of a task's bytes: what is written takes as much read along with it.

    The rate of a copy holds for both; what is read beyond it has the rate of reading, if known.
    """
    read, written = cost.input_bytes + cost.state_bytes, cost.output_bytes
    only_read = max(0, read - written)
    copied = _us(cost.total_bytes - only_read, copy_gb_s, 1e3)
    rest = _us(only_read, read_gb_s or copy_gb_s, 1e3)
    return copied + rest if copied is not None and rest is not None else None


def _matrix_us(cost: TaskCost, rates: DeviceRates) -> float | None:
    parts = [
        _us(count, rates.tflops.get(precision), 1e6) for precision, count in cost.flops.items()
    ]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _us(amount: float, rate: float | None, a_us: float) -> float | None:
    """Return the microseconds of an amount; `a_us`: what one unit of the rate does in each."""
    return amount / (rate * a_us) if rate else None
