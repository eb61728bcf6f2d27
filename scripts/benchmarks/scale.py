"""Scale: 64 and 1,000 workers on one coordinator, beside the field's schedulers, and its death.

A real coordinator process with its store on disk; the workers are simulated (`swarm`), each with a
socket of its own.  `python -m scripts.benchmarks.scale` prints what docs/scale.md explains.

Offered load is an open loop: results are said by the clock, whether or not those before were
answered, and a dispatch counts from its place in that schedule to the next work in hand.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from actors.usage import Parser
from scripts.benchmarks import rivals
from scripts.benchmarks.machine import disk, machine, percentile
from scripts.benchmarks.rivals import OFFERED, Figures
from scripts.benchmarks.stand import Stand
from scripts.benchmarks.swarm import Tally

FEW, MANY = 64, 1000
TASKS = 10
WARM_S = 1.0
MEASURE_S = 6.0
KILLS = 5


def ours(workers: int) -> Figures:
    """Measure our dispatch as the rivals' is measured."""
    with Stand(workers=workers, under_way=1) as stand:
        alone = measured(stand, None, seconds=MEASURE_S / 2)
    with Stand(workers=workers, under_way=workers) as stand:
        flood = measured(stand, None)
    # No more under way than there are workers of any role: nothing waits for a free one.
    with Stand(workers=workers, under_way=workers * 5 // 16) as stand:
        offered = measured(stand, OFFERED)
    return Figures(
        alone_p50_ms=percentile(alone.dispatch_ms, 50),
        alone_p99_ms=percentile(alone.dispatch_ms, 99),
        flood_rate=flood.rate,
        offered_rate=offered.rate,
        offered_p50_ms=percentile(offered.dispatch_ms, 50),
        offered_p99_ms=percentile(offered.dispatch_ms, 99),
    )


def measured(stand: Stand, rate: float | None, *, seconds: float = MEASURE_S) -> Tally:
    """Load a stand at `rate` results a second (None: each at once); return what was seen."""
    stand.swarm.pace(rate)
    stand.swarm.serve(WARM_S)
    return stand.swarm.serve(seconds)


def compare() -> None:
    """Print our dispatch and the field's, one row each."""
    with tempfile.TemporaryDirectory() as folder:
        p50, p99 = disk(Path(folder))
    load = os.getloadavg()[0]
    print(f"20 KB made durable on this disk, now: {p50:.2f} ms (p99 {p99:.2f}); load {load:.1f}")
    print(f"dispatch of 20 KB tasks to {FEW} workers: possible -> begun, ms (p50 / p99)")
    print(f"{'':<18}{'on disk':>8}{'one at a time':>16}{'flood':>12}{'1,000/s offered':>20}")
    show("this coordinator", "yes", ours(FEW))
    for name in rivals.RIVALS:
        found = rivals.measured(name, FEW)
        if isinstance(found, str):
            print(f"{name:<18}left out: {found}")
        else:
            show(name, "no", found)


def show(name: str, durable: str, found: Figures) -> None:
    """Print one row; a system that does not keep up says how many a second it began."""
    alone = f"{found.alone_p50_ms:.2f} / {found.alone_p99_ms:.2f}"
    offered = f"{found.offered_p50_ms:.1f} / {found.offered_p99_ms:.1f}"
    if found.offered_rate < 0.98 * OFFERED:
        offered += f" (began {found.offered_rate:.0f}/s)"
    print(f"{name:<18}{durable:>8}{alone:>16}{found.flood_rate:>10.0f}/s{offered:>20}", flush=True)


def many() -> None:
    """Print what a thousand workers on ten tasks cost, loaded in three ways."""
    print(f"\n{MANY:,} workers on one coordinator, {TASKS} tasks in parallel")
    print(
        f"{'':<34}{'leases/s':>9}{'p50 ms':>8}{'p99 ms':>8}{'CPU':>7}"
        f"{'MiB':>6}{'KB in / out a lease':>21}"
    )
    for words, rate, under_way, calls in (
        ("as fast as it goes", None, MANY, False),
        ("1,000/s offered", OFFERED, MANY * 5 // 16, False),
        ("150/s offered, replies stored", 150.0, MANY * 5 // 16, True),
    ):
        with Stand(workers=MANY, under_way=under_way, tasks=TASKS, calls=calls) as stand:
            stand.swarm.pace(rate)
            stand.swarm.serve(WARM_S)
            used = stand.cpu_s()
            tally = stand.swarm.serve(MEASURE_S)
            used = (stand.cpu_s() - used) / tally.seconds
            sizes = f"{tally.sent_bytes / tally.tasks / 1e3:.1f} / "
            sizes += f"{tally.received_bytes / tally.tasks / 1e3:.1f}"
            print(
                f"{words:<34}{tally.rate:>9.0f}{percentile(tally.dispatch_ms, 50):>8.2f}"
                f"{percentile(tally.dispatch_ms, 99):>8.2f}{used:>7.0%}"
                f"{stand.memory_mib():>6.0f}{sizes:>21}",
                flush=True,
            )


def deaths() -> None:
    """Print how soon a killed coordinator leases again, and has all its workers back."""
    print(f"\ncoordinator killed by SIGKILL under load and started again, {KILLS} times")
    print(f"{'':<18}{'first lease again':>26}{'all workers back':>26}")
    for workers, tasks in ((FEW, 1), (MANY, TASKS)):
        first, back = [], []
        with Stand(workers=workers, under_way=workers, tasks=tasks) as stand:
            for _ in range(KILLS):
                stand.swarm.serve(WARM_S)
                lease_s, all_s = stand.kill()
                first.append(lease_s)
                back.append(all_s)
        columns = [
            f"{statistics.median(values):.2f} s (worst {max(values):.2f})"
            for values in (first, back)
        ]
        print(f"{workers:>7,} workers{'':<3}{columns[0]:>26}{columns[1]:>26}", flush=True)


def report() -> None:
    """Print all of it; about four minutes."""
    compare()
    many()
    deaths()


if __name__ == "__main__":
    Parser(prog="python -m scripts.benchmarks.scale", description=__doc__).parse_args()
    print(machine() + "\n")
    report()
