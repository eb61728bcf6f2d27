"""How long verdicts take on a mix of candidates, in the order in which a search would judge them.

    python -m scripts.benchmarks.judge_mix [--device cpu|cuda] [--seconds S] [--stages]

Fourteen honest candidates of four tasks (10 to 800 µs on a card), each beside the best of its task
so far, once the toolkit of builds is prepared.  A candidate whose interval reaches that best is a
contender.  Builds go on while others are timed.  Then the time from another judge's start to its
first verdict, on a machine that has all of that.  Below the table is where the seconds of a verdict
went, on average: stages, and orders whose answer was waited for; with --stages below each row.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median

from actors.cli import OneLineParser
from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.devices import device_description as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks.honest_kernels import HonestKernel
from scripts.benchmarks.machine_info import machine
from scripts.benchmarks.mixed_candidates import mixed_candidates

BUILDERS = 4  # builds beside each other
FIRST_VERDICT_S = 20.0  # of the given seconds
SHOWN_STAGES = 15


def main(arguments: list[str]) -> int:
    """Judge the mix; print a row for each verdict, and the medians."""
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m scripts.benchmarks.judge_mix")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--seconds", type=float, default=math.inf, help="no judgment begins after")
    parser.add_argument("--stages", action="store_true", help="where each verdict's seconds went")
    flags = parser.parse_args(arguments)
    device: DeviceKind = flags.device
    kernels = mixed_candidates(device)
    until = time.monotonic() + flags.seconds
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(f"{machine()}", flush=True)
            end = until - FIRST_VERDICT_S
            result = MixResult(shows_stages=flags.stages)
            status = judged_mix(device, Path(folder) / "mix", kernels, end, result)
            print_first_verdict(device, Path(folder) / "first", kernels[0])
            return status
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4


def judged_mix(
    device: DeviceKind, folder: Path, kernels: list[HonestKernel], until: float, result: MixResult
) -> int:
    """Judge all kernels with one judge, on a prepared machine; print what it took."""
    judge = Judge(device, Limits(), folder)
    try:
        compiled = next((each for each in kernels if "load_inline" in each.candidate), kernels[0])
        judge.build(compiled.candidate)  # with the toolkit, if that is not stored
        judge.judge(task_of(kernels[0], device), kernels[0].candidate)
        return judge_all(judge, device, kernels, until, result)
    finally:
        judge.close()


def print_first_verdict(device: DeviceKind, folder: Path, kernel: HonestKernel) -> None:
    """Print how long a judge takes from its start to its first verdict."""
    began = time.monotonic()
    judge = Judge(device, Limits(), folder)
    try:
        judge.judge(task_of(kernel, device), kernel.candidate)
        print(f"first verdict {time.monotonic() - began:.1f} s after the judge's start", flush=True)
        print(f"of these {stages_line(judge.take_stage_seconds(), 1)}", flush=True)
    finally:
        judge.close()


class MixResult:
    """The verdicts of the mix so far."""

    def __init__(self, *, shows_stages: bool) -> None:
        self._shows_stages = shows_stages
        self._best: dict[str, float] = {}  # by task
        self._timing_s: dict[bool, list[float]] = {True: [], False: []}  # of contenders, of others
        self._spent_s: dict[str, float] = {}  # by stage
        self.judged = 0

    @property
    def correct(self) -> int:
        """How many candidates were correct."""
        return sum(map(len, self._timing_s.values()))

    def judge(
        self, judge: Judge, device: DeviceKind, kernel: HonestKernel, built: BuildResult | None
    ) -> None:
        """Judge a kernel beside the best of its task so far; print its row."""
        best = self._best.setdefault(kernel.task, 1.0)  # that of the task's own module
        judge.take_stage_seconds()
        verdict = judge.judge(
            task_of(kernel, device), kernel.candidate, built=built, best_speedup=best
        )
        spent_s = judge.take_stage_seconds()
        self.judged += 1
        for stage, seconds in spent_s.items():
            self._spent_s[stage] = self._spent_s.get(stage, 0.0) + seconds
        if not isinstance(verdict, Verdict) or not verdict.is_correct:
            print(f"{kernel.name:26} !! {verdict}"[:300], flush=True)
            return
        _low, high = verdict.speedup_ci95 or (0.0, math.inf)
        self._best[kernel.task] = max(best, verdict.speedup or 0.0)
        self._timing_s[high >= best].append(verdict.seconds.time)
        print(row(kernel.name, verdict, best), flush=True)
        if self._shows_stages:
            print(f"    {stages_line(spent_s, 1)}", flush=True)

    def summary(self, count: int, spent_s: float) -> str:
        """Return the rate of verdicts, what both kinds take, and where a verdict's seconds go."""
        left = f", {count - self.judged} not begun in time" if self.judged < count else ""
        rate = 60 * self.judged / spent_s
        parts = [f"{self.judged} candidates{left}: {rate:.1f} verdicts a minute"]
        for is_contender, what in ((True, "contenders"), (False, "behind the best")):
            seconds = self._timing_s[is_contender]
            if seconds:
                parts.append(
                    f"{len(seconds)} {what}: timing {median(seconds):.1f} s (median), "
                    f"{max(seconds):.1f} s (longest)"
                )
        return f"a verdict {stages_line(self._spent_s, self.judged)}\n{'; '.join(parts)}"


def judge_all(
    judge: Judge, device: DeviceKind, kernels: list[HonestKernel], until: float, result: MixResult
) -> int:
    """Judge each kernel; return the exit status."""
    began = time.monotonic()
    with ThreadPoolExecutor(BUILDERS) as builders, suppress(KeyboardInterrupt):
        built: list[Future[BuildResult | None]] = [
            builders.submit(judge.build, kernel.candidate) for kernel in kernels
        ]
        for kernel, build in zip(kernels, built, strict=True):
            if time.monotonic() >= until:
                break
            result.judge(judge, device, kernel, build.result())
    print(result.summary(len(kernels), time.monotonic() - began), flush=True)
    return int(result.correct < len(kernels))


def stages_line(spent_s: Mapping[str, float], verdicts: int) -> str:
    """Return the seconds of a verdict: of all stages, and of the longest ones."""
    ranked = sorted(spent_s.items(), key=lambda item: -item[1])[:SHOWN_STAGES]
    shown = [f"{stage} {seconds / max(1, verdicts):.2f}" for stage, seconds in ranked]
    return f"{sum(spent_s.values()) / max(1, verdicts):.2f} s: {', '.join(shown)}"


def task_of(kernel: HonestKernel, device: DeviceKind) -> Task:
    """Return a kernel's task; candidates of one task have one."""
    return Task(name=kernel.name.partition(":")[0], source=kernel.task, device=device)


def row(name: str, verdict: Verdict, best_speedup: float) -> str:
    """Return one verdict's row of the table."""
    low, high = verdict.speedup_ci95 or (0.0, 0.0)
    seconds = verdict.seconds
    return (
        f"{name:26} {verdict.median_us or 0:8.1f} µs  {verdict.speedup or 0:6.3f} "
        f"({low:.3f}-{high:.3f}), best {best_speedup:6.3f}; build {seconds.build:.1f} "
        f"check {seconds.check:.1f} timing {seconds.time:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
