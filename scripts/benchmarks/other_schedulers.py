"""Other schedulers, measured like the coordinator: Parsl HTEX, ipyparallel, dask.distributed.

Each gets 20 KB tasks that take no time and return 1 KB, on workers of this machine.  A dispatch is
the time from a task's submission (or its place in the schedule) to its start on a worker; both are
read from the machine's one monotonic clock.  None of the three stores a task on disk.  They are
installed by `pip install -e .[bench]`; a scheduler that is not installed is left out with a line
that says so.  `scale` runs each in a process of its own:
`python -m scripts.benchmarks.other_schedulers NAME WORKERS`.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from protocol.values import Value
from scripts.benchmarks.machine_info import percentile

TASK_BYTES = 20_000
RESULT_BYTES = 1_000
SINGLE_TASKS = 200  # tasks, one at a time
FLOOD_TASKS = 2_000  # tasks, all at once
OFFERED = 1_000.0  # tasks a second
OFFERED_S = 3.0
LIMIT_S = 300.0
ROOT = Path(__file__).resolve().parents[2]


class SchedulerFigures(Value, frozen=True, kw_only=True):
    """The figures of one scheduler."""

    alone_p50_ms: float  # one task at a time
    alone_p99_ms: float
    flood_rate: float  # tasks a second, when there is always one more
    offered_rate: float  # begun a second, of those that were offered
    offered_p50_ms: float
    offered_p99_ms: float


class SchedulerAdapter(Value, frozen=True, kw_only=True):
    """How to submit tasks to one scheduler and collect their results."""

    submit: Callable[[bytes], Any]
    gather: Callable[[list[Any]], list[Any]]  # its fastest way


def work(payload: bytes) -> bytes:
    """Run as the task: return the time of its start."""
    return struct.pack("d", time.monotonic()).ljust(RESULT_BYTES, b".")


def start_times(answers: list[Any]) -> list[float]:
    """Return the time of each task's start."""
    times = []
    for answer in answers:
        if not isinstance(answer, bytes):
            raise TypeError(f"a task returned {type(answer).__name__}")
        times.append(struct.unpack("d", answer[:8])[0])
    return times


def figures(scheduler: SchedulerAdapter) -> SchedulerFigures:
    """Measure one scheduler after a warm-up."""
    payload = b"#" * TASK_BYTES
    scheduler.gather([scheduler.submit(payload) for _ in range(500)])
    alone = []
    for _ in range(SINGLE_TASKS):
        submitted_at = time.monotonic()
        (started_at,) = start_times(scheduler.gather([scheduler.submit(payload)]))
        alone.append((started_at - submitted_at) * 1000)
    begun_at = time.monotonic()
    scheduler.gather([scheduler.submit(payload) for _ in range(FLOOD_TASKS)])
    flood_rate = FLOOD_TASKS / (time.monotonic() - begun_at)
    count = int(OFFERED * OFFERED_S)
    start = time.monotonic() + 0.1
    futures = []
    for number in range(count):
        time.sleep(max(0.0, start + number / OFFERED - time.monotonic()))
        futures.append(scheduler.submit(payload))
    started = start_times(scheduler.gather(futures))
    late_ms = [(at - start - n / OFFERED) * 1000 for n, at in enumerate(started)]
    return SchedulerFigures(
        alone_p50_ms=percentile(alone, 50),
        alone_p99_ms=percentile(alone, 99),
        flood_rate=flood_rate,
        offered_rate=count / (max(started) - start),
        offered_p50_ms=percentile(late_ms, 50),
        offered_p99_ms=percentile(late_ms, 99),
    )


# --- adapters ---------------------------------------------------------------------------------


@contextmanager
def parsl_htex(workers: int, place: Path) -> Iterator[SchedulerAdapter]:
    """Parsl's high-throughput executor, without the data-flow kernel above it."""
    import parsl
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    executor = HighThroughputExecutor(
        label="htex",
        address="127.0.0.1",
        max_workers_per_node=workers,
        cpu_affinity="none",
        encrypted=False,
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    config = parsl.Config(executors=[executor], run_dir=str(place), initialize_logging=False)
    with parsl.load(config):
        yield SchedulerAdapter(
            submit=lambda payload: executor.submit(work, {}, payload),
            gather=lambda futures: [future.result() for future in futures],
        )


@contextmanager
def ipyparallel(workers: int, place: Path) -> Iterator[SchedulerAdapter]:
    """ipyparallel's load-balanced view."""
    import ipyparallel as ipp

    with ipp.Cluster(n=workers, profile_dir=str(place), log_level=40) as client:
        client.wait_for_engines(workers, timeout=LIMIT_S)
        view = client.load_balanced_view()
        yield SchedulerAdapter(
            submit=lambda payload: view.apply_async(work, payload),
            gather=lambda futures: [future.get() for future in futures],
        )


@contextmanager
def dask_distributed(workers: int, place: Path) -> Iterator[SchedulerAdapter]:
    """dask.distributed on a local cluster of two processes."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=max(1, workers // 2),
            dashboard_address=None,
            local_directory=str(place),
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield SchedulerAdapter(
            submit=lambda payload: client.submit(work, payload, pure=False),
            gather=client.gather,
        )


SCHEDULERS = {
    "Parsl HTEX": ("parsl", parsl_htex),
    "ipyparallel": ("ipyparallel", ipyparallel),
    "dask.distributed": ("distributed", dask_distributed),
}


def measured(name: str, workers: int) -> SchedulerFigures | str:
    """Return a scheduler's figures, or one line with the reason why there are none."""
    package, _ = SCHEDULERS[name]
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed: pip install -e .[bench]"
    with tempfile.TemporaryDirectory() as place:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
        argv = [
            sys.executable,
            "-m",
            "scripts.benchmarks.other_schedulers",
            name,
            str(workers),
            place,
        ]
        try:
            done = subprocess.run(
                argv, env=environment, cwd=place, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return f"not done after {LIMIT_S:.0f} s"
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            return f"failed: {lines[-1][:200]}"
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=SchedulerFigures)


def main() -> None:
    """Measure the scheduler that the command line names; print its figures as JSON."""
    name, workers, place = sys.argv[1:]
    with SCHEDULERS[name][1](int(workers), Path(place)) as scheduler:
        measured_figures = figures(scheduler)
    print(msgspec.json.encode(measured_figures).decode())


if __name__ == "__main__":
    # Under its own name: as `__main__` its functions could not be found by a worker.
    from scripts.benchmarks import other_schedulers

    other_schedulers.main()
