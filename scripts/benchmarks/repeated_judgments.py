"""One candidate in many fresh processes, quiet and beside busy programs: figures that agree.

    python -m scripts.benchmarks.repeated_judgments [--device cpu|cuda] [--processes N] [--busy N]
        [--bound memory|arithmetic]

The candidate and its reference are bound by memory (the candidate less), or both by arithmetic.  On
a machine that shares its memory with others the first speed-up is that of the moment: the times of
both sides say so.  The quiet figure is the median speed-up of N processes (ten) on a machine that
has to be quiet.  Then the same candidate is judged N times beside busy programs (two; 0: not at
all), and each interval has to hold the quiet figure.  The exit status is 1 if the quiet ones are
not within 3 %, or an interval does not hold.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from actors.cli import OneLineParser
from actors.evaluator.devices import device_description as devices
from actors.evaluator.judge import Judge
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks import benchmark_candidates
from scripts.benchmarks.machine_info import machine
from scripts.benchmarks.own_judge import with_own_judge

ARITHMETIC_TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.sin(torch.exp(torch.cos(x))))


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
"""
ARITHMETIC_CANDIDATE = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.cos().exp_().sin_().tanh_()
"""
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
    parser.add_argument("--bound", choices=("memory", "arithmetic"), default="memory")
    parser.add_argument("--time-s", type=float, default=Limits().time_s, help="of samples each")
    flags = parser.parse_args(arguments)
    print(f"{machine()}", flush=True)

    def measure(judge: Judge) -> int:
        judgments = RepeatedJudgments(judge, flags.device, is_by_memory=flags.bound == "memory")
        return compare(judgments, flags.processes, flags.busy)

    return with_own_judge(flags.device, flags.time_s, measure)


def compare(judgments: RepeatedJudgments, processes: int, busy: int) -> int:
    """Judge the candidate quiet and beside busy programs; return the exit status."""
    quiet = [speedup for speedup, _interval in judgments.of(processes, "quiet")]
    middle = median(quiet)
    spread = (max(quiet) - min(quiet)) / middle
    print(f"quiet: {middle:.3f}×, all within {spread:.1%}; {judgments.spread()}", flush=True)
    if not busy:
        return int(spread > WITHIN)
    with busy_programs(busy):
        beside = list(judgments.of(processes, f"beside {busy} busy programs"))
    held = sum(low <= middle <= high for _speedup, (low, high) in beside)
    print(f"beside {busy} busy programs: {held} of {len(beside)} intervals hold {middle:.3f}×")
    return int(spread > WITHIN or held < len(beside))


class RepeatedJudgments:
    """Judgments of one candidate, each in a fresh process."""

    def __init__(self, judge: Judge, device: DeviceKind, *, is_by_memory: bool) -> None:
        self._judge = judge
        source = benchmark_candidates.task(device) if is_by_memory else ARITHMETIC_TASK
        self._task = Task(name="judged", source=source, device=device)
        self._candidate = (
            benchmark_candidates.unbuilt_candidate(device, 0)
            if is_by_memory
            else ARITHMETIC_CANDIDATE
        )
        self._reference_us: list[float] = []
        self._candidate_us: list[float] = []

    def of(self, processes: int, how: str) -> Iterator[tuple[float, tuple[float, float]]]:
        """Yield the speed-up in each of some processes, and its interval."""
        for number in range(processes):
            verdict = self._judge.judge(self._task, self._candidate)
            if not isinstance(verdict, Verdict) or not verdict.speedup:
                raise SystemExit(f"can't be judged here: {verdict.reason}")
            low, high = verdict.speedup_ci95 or (0.0, float("inf"))
            self._reference_us.append(verdict.reference_us or 0.0)
            self._candidate_us.append(verdict.median_us or 0.0)
            print(
                f"{how}, process {number + 1}: {verdict.speedup:.3f}× ({low:.3f}-{high:.3f}), "
                f"{self._reference_us[-1]:.1f} and {self._candidate_us[-1]:.1f} µs, "
                f"timing {verdict.seconds.time:.1f} s",
                flush=True,
            )
            yield verdict.speedup, (low, high)

    def spread(self) -> str:
        """Return how far both sides' times were apart."""
        return "; ".join(
            f"the {side}'s time {min(us):.1f} to {max(us):.1f} µs"
            for side, us in (("reference", self._reference_us), ("candidate", self._candidate_us))
        )


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
