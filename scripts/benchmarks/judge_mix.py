"""How long verdicts take on a mix of candidates, in the order in which a search would judge them.

    python -m scripts.benchmarks.judge_mix [--device cpu|cuda] [--seconds S] [--stages]

Fourteen honest candidates of four tasks (10 to 800 µs on a card), each beside the best of its task
so far, once the toolkit of builds is prepared.  A candidate whose interval reaches that best is a
contender.  Builds go on while others are timed.  Then the time from another judge's start to its
first verdict, on a machine that has all of that.  `--stages` prints where the seconds of each
verdict went, and those of all of them.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median

from actors.cli import OneLineParser
from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.devices import device as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks.honest_kernels import HonestKernel
from scripts.benchmarks.machine_info import machine
from scripts.benchmarks.mixed_candidates import mixed_candidates

BUILDERS = 4  # builds beside each other
FIRST_VERDICT_S = 20.0  # of the given seconds
SHOWN_S = 0.01  # a stage that takes less is left out


def main(arguments: list[str]) -> int:
    """Judge the mix; print a row for each verdict, and the medians."""
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m scripts.benchmarks.judge_mix")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--seconds", type=float, default=math.inf, help="no judgment begins after")
    parser.add_argument("--stages", action="store_true", help="print where the seconds go")
    flags = parser.parse_args(arguments)
    device: DeviceKind = flags.device
    stages: dict[str, float] | None = {} if flags.stages else None
    kernels = mixed_candidates(device)
    until = time.monotonic() + flags.seconds
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(f"{machine()}", flush=True)
            end = until - FIRST_VERDICT_S
            status = judged_mix(device, Path(folder) / "mix", kernels, end, stages)
            print_first_verdict(device, Path(folder) / "first", kernels[0])
            return status
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4


def judged_mix(
    device: DeviceKind,
    folder: Path,
    kernels: list[HonestKernel],
    until: float,
    stages: dict[str, float] | None,
) -> int:
    """Judge all kernels with one judge, on a prepared machine; print what it took."""
    judge = Judge(device, Limits(), folder)
    try:
        compiled = next((each for each in kernels if "load_inline" in each.candidate), kernels[0])
        judge.build(compiled.candidate)  # with the toolkit, if that is not stored
        judge.judge(task_of(kernels[0], device), kernels[0].candidate)
        return judge_all(judge, device, kernels, until, stages)
    finally:
        judge.close()


def print_first_verdict(device: DeviceKind, folder: Path, kernel: HonestKernel) -> None:
    """Print how long a judge takes from its start to its first verdict."""
    began = time.monotonic()
    judge = Judge(device, Limits(), folder)
    try:
        judge.judge(task_of(kernel, device), kernel.candidate)
        print(f"first verdict {time.monotonic() - began:.1f} s after the judge's start", flush=True)
    finally:
        judge.close()


def judge_all(
    judge: Judge,
    device: DeviceKind,
    kernels: list[HonestKernel],
    until: float,
    stages: dict[str, float] | None,
) -> int:
    """Judge each kernel beside the best of its task so far; return the exit status.

    `stages`: where to add up where the seconds go, which is printed; None: nowhere.
    """
    timing_s: dict[bool, list[float]] = {True: [], False: []}  # of contenders, of others
    best: dict[str, float] = {}  # by task
    began, judged = time.monotonic(), 0
    with ThreadPoolExecutor(BUILDERS) as builders, suppress(KeyboardInterrupt):
        built: list[Future[BuildResult | None]] = [
            builders.submit(judge.build, kernel.candidate) for kernel in kernels
        ]
        for kernel, build in zip(kernels, built, strict=True):
            if time.monotonic() >= until:
                break
            best_speedup = best.setdefault(kernel.task, 1.0)  # that of the task's own module
            built_now = build.result()
            judge.take_stage_seconds()
            verdict = judge.judge(
                task_of(kernel, device),
                kernel.candidate,
                built=built_now,
                best_speedup=best_speedup,
            )
            judged += 1
            if not isinstance(verdict, Verdict) or not verdict.is_correct:
                print(f"{kernel.name:26} !! {verdict}"[:300], flush=True)
                continue
            _low, high = verdict.speedup_ci95 or (0.0, math.inf)
            best[kernel.task] = max(best_speedup, verdict.speedup or 0.0)
            timing_s[high >= best_speedup].append(verdict.seconds.time)
            print(row(kernel.name, verdict, best_speedup), flush=True)
            if stages is not None:
                print_stages(judge.take_stage_seconds(), stages)
    if stages is not None:
        print(f"all: {stages_line(stages)}", flush=True)
    print(summary(timing_s, judged, len(kernels), time.monotonic() - began), flush=True)
    return int(sum(map(len, timing_s.values())) < len(kernels))


def print_stages(spent: dict[str, float], stages: dict[str, float]) -> None:
    """Print where the seconds of one verdict went, and add them to those of all."""
    print(f"    {stages_line(spent)}", flush=True)
    for stage, seconds in spent.items():
        stages[stage] = stages.get(stage, 0.0) + seconds


def stages_line(spent: dict[str, float]) -> str:
    """Return stages with their seconds, the longest first."""
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    parts = [f"{stage} {seconds:.2f}" for stage, seconds in ranked if seconds >= SHOWN_S]
    return f"{sum(spent.values()):.2f} s: {', '.join(parts)}"


def summary(timing_s: dict[bool, list[float]], judged: int, count: int, spent_s: float) -> str:
    """Return the rate of verdicts, and what the timing of both kinds takes."""
    left = f", {count - judged} not begun in time" if judged < count else ""
    parts = [f"{judged} candidates{left}: {60 * judged / spent_s:.1f} verdicts a minute"]
    for is_contender, what in ((True, "contenders"), (False, "behind the best")):
        seconds = timing_s[is_contender]
        if seconds:
            parts.append(
                f"{len(seconds)} {what}: timing {median(seconds):.1f} s (median), "
                f"{max(seconds):.1f} s (longest)"
            )
    return "; ".join(parts)


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
