"""One candidate in many fresh processes, quiet and beside busy programs: figures that agree.

    python -m scripts.benchmarks.repeated_judgments [--device cpu|cuda] [--processes N] [--busy N]

The quiet figure is the median speed-up of N processes (ten) on a machine that has to be quiet.
Then the same candidate is judged N times beside busy programs (two), and each interval has to hold
the quiet figure.  The exit status is 1 if the quiet ones are not within 3 %, or an interval does
not hold.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from actors.cli import OneLineParser
from actors.evaluator.devices import device as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks import benchmark_candidates
from scripts.benchmarks.machine_info import machine

WITHIN = 0.03
BUSY_PROGRAM = "while True: sum(range(10000))"


def main(arguments: list[str]) -> int:
    """Judge the candidate; print each speed-up with its interval."""
    parser: argparse.ArgumentParser = OneLineParser(
        prog="python -m scripts.benchmarks.repeated_judgments"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--busy", type=int, default=2, help="busy programs (2)")
    parser.add_argument("--time-s", type=float, default=Limits().time_s, help="of samples each")
    flags = parser.parse_args(arguments)
    print(f"{machine()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(flags.device, Limits(time_s=flags.time_s), Path(folder) / "judge")
        try:
            return compare(judge, flags.device, flags.processes, flags.busy)
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4
        finally:
            judge.close()


def compare(judge: Judge, device: DeviceKind, processes: int, busy: int) -> int:
    """Judge the candidate quiet and beside busy programs; return the exit status."""
    quiet = [speedup for speedup, _interval in judged(judge, device, processes, "quiet")]
    middle = median(quiet)
    spread = (max(quiet) - min(quiet)) / middle
    print(f"quiet: {middle:.3f}×, all within {spread:.1%}", flush=True)
    with busy_programs(busy):
        beside = list(judged(judge, device, processes, f"beside {busy} busy programs"))
    held = sum(low <= middle <= high for _speedup, (low, high) in beside)
    print(f"beside {busy} busy programs: {held} of {len(beside)} intervals hold {middle:.3f}×")
    return int(spread > WITHIN or held < len(beside))


def judged(
    judge: Judge, device: DeviceKind, processes: int, how: str
) -> Iterator[tuple[float, tuple[float, float]]]:
    """Yield the speed-up of one candidate in each of some processes, and its interval."""
    task = Task(name="judged", source=benchmark_candidates.task(device), device=device)
    source = benchmark_candidates.unbuilt_candidate(device, 0)
    for number in range(processes):
        verdict = judge.judge(task, source)
        if not isinstance(verdict, Verdict) or not verdict.speedup:
            raise SystemExit(f"can't be judged here: {verdict.reason}")
        low, high = verdict.speedup_ci95 or (0.0, float("inf"))
        print(
            f"{how}, process {number + 1}: {verdict.speedup:.3f}× ({low:.3f}-{high:.3f}), "
            f"timing {verdict.seconds.time:.1f} s",
            flush=True,
        )
        yield verdict.speedup, (low, high)


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Run programs that each keep a processor busy."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY_PROGRAM]) for _program in range(count)]
    try:
        yield
    finally:
        for program in started:
            program.kill()
            program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
