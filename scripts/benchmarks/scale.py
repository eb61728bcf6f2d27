"""Scale: 64 and 1,000 workers on one coordinator, its restart, and other schedulers.

The coordinator is a real process with its store on disk; the workers are simulated
(`simulated_workers.py`), each with a socket of its own.  `python -m scripts.benchmarks.scale`
prints the figures that docs/scale.md explains.

Offered load is an open loop: results are sent by the clock, whether or not earlier ones were
answered.  A dispatch counts from the result's place in it to the arrival of the next work.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from actors.cli import OneLineParser
from scripts.benchmarks import other_schedulers
from scripts.benchmarks.coordinator_fixture import CoordinatorFixture
from scripts.benchmarks.machine_info import disk, machine, percentile
from scripts.benchmarks.other_schedulers import OFFERED, SchedulerFigures
from scripts.benchmarks.simulated_workers import Tally

FEW_WORKERS, MANY_WORKERS = 64, 1000
TASKS = 10
WARM_S = 1.0
MEASURE_S = 6.0
COORDINATOR_KILLS = 5


def ours(workers: int) -> SchedulerFigures:
    """Measure the coordinator's dispatch in the way of the other schedulers."""
    with CoordinatorFixture(workers=workers, under_way=1) as fixture:
        alone = measured(fixture, None, seconds=MEASURE_S / 2)
    with CoordinatorFixture(workers=workers, under_way=workers) as fixture:
        flood = measured(fixture, None)
    # No more under way than workers of any role: no work waits for a free worker.
    with CoordinatorFixture(workers=workers, under_way=workers * 5 // 16) as fixture:
        offered = measured(fixture, OFFERED)
    return SchedulerFigures(
        alone_p50_ms=percentile(alone.dispatch_ms, 50),
        alone_p99_ms=percentile(alone.dispatch_ms, 99),
        flood_rate=flood.rate,
        offered_rate=offered.rate,
        offered_p50_ms=percentile(offered.dispatch_ms, 50),
        offered_p99_ms=percentile(offered.dispatch_ms, 99),
    )


def measured(
    fixture: CoordinatorFixture, rate: float | None, *, seconds: float = MEASURE_S
) -> Tally:
    """Load a coordinator with `rate` results a second (None: each at once); return the tally."""
    fixture.workers.set_rate(rate)
    fixture.workers.serve(WARM_S)
    return fixture.workers.serve(seconds)


def compare() -> None:
    """Print the dispatch of the coordinator and of the other schedulers, one row each."""
    with tempfile.TemporaryDirectory() as folder:
        p50, p99 = disk(Path(folder))
    load = os.getloadavg()[0]
    print(f"20 KB made durable on this disk, now: {p50:.2f} ms (p99 {p99:.2f}); load {load:.1f}")
    print(f"dispatch of 20 KB tasks to {FEW_WORKERS} workers: possible -> begun, ms (p50 / p99)")
    print(f"{'':<18}{'on disk':>8}{'one at a time':>16}{'flood':>12}{'1,000/s offered':>20}")
    show("this coordinator", "yes", ours(FEW_WORKERS))
    for name in other_schedulers.SCHEDULERS:
        result = other_schedulers.measured(name, FEW_WORKERS)
        if isinstance(result, str):
            print(f"{name:<18}left out: {result}")
        else:
            show(name, "no", result)


def show(name: str, durable: str, figures: SchedulerFigures) -> None:
    """Print one row; a system that does not keep up says how many a second it began."""
    alone = f"{figures.alone_p50_ms:.2f} / {figures.alone_p99_ms:.2f}"
    offered = f"{figures.offered_p50_ms:.1f} / {figures.offered_p99_ms:.1f}"
    if figures.offered_rate < 0.98 * OFFERED:
        offered += f" (began {figures.offered_rate:.0f}/s)"
    print(
        f"{name:<18}{durable:>8}{alone:>16}{figures.flood_rate:>10.0f}/s{offered:>20}", flush=True
    )


def many() -> None:
    """Print the cost of a thousand workers on ten tasks, under three loads."""
    print(f"\n{MANY_WORKERS:,} workers on one coordinator, {TASKS} tasks in parallel")
    print(
        f"{'':<34}{'leases/s':>9}{'p50 ms':>8}{'p99 ms':>8}{'CPU':>7}"
        f"{'MiB':>6}{'KB in / out a lease':>21}"
    )
    for label, rate, under_way, calls in (
        ("as fast as it goes", None, MANY_WORKERS, False),
        ("1,000/s offered", OFFERED, MANY_WORKERS * 5 // 16, False),
        ("150/s offered, replies stored", 150.0, MANY_WORKERS * 5 // 16, True),
    ):
        with CoordinatorFixture(
            workers=MANY_WORKERS, under_way=under_way, tasks=TASKS, calls=calls
        ) as fixture:
            fixture.workers.set_rate(rate)
            fixture.workers.serve(WARM_S)
            used = fixture.cpu_s()
            tally = fixture.workers.serve(MEASURE_S)
            used = (fixture.cpu_s() - used) / tally.seconds
            sizes = f"{tally.sent_bytes / tally.tasks / 1e3:.1f} / "
            sizes += f"{tally.received_bytes / tally.tasks / 1e3:.1f}"
            print(
                f"{label:<34}{tally.rate:>9.0f}{percentile(tally.dispatch_ms, 50):>8.2f}"
                f"{percentile(tally.dispatch_ms, 99):>8.2f}{used:>7.0%}"
                f"{fixture.memory_mib():>6.0f}{sizes:>21}",
                flush=True,
            )


def deaths() -> None:
    """Print the time until a killed coordinator leases again, and has all its workers back."""
    print(
        f"\ncoordinator killed by SIGKILL under load and started again, {COORDINATOR_KILLS} times"
    )
    print(f"{'':<18}{'first lease again':>26}{'all workers back':>26}")
    for workers, tasks in ((FEW_WORKERS, 1), (MANY_WORKERS, TASKS)):
        first, back = [], []
        with CoordinatorFixture(workers=workers, under_way=workers, tasks=tasks) as fixture:
            for _ in range(COORDINATOR_KILLS):
                fixture.workers.serve(WARM_S)
                lease_s, all_s = fixture.kill()
                first.append(lease_s)
                back.append(all_s)
        columns = [
            f"{statistics.median(values):.2f} s (worst {max(values):.2f})"
            for values in (first, back)
        ]
        print(f"{workers:>7,} workers{'':<3}{columns[0]:>26}{columns[1]:>26}", flush=True)


def report() -> None:
    """Print all parts; it takes about four minutes."""
    compare()
    many()
    deaths()


if __name__ == "__main__":
    OneLineParser(prog="python -m scripts.benchmarks.scale", description=__doc__).parse_args()
    print(machine() + "\n")
    report()
