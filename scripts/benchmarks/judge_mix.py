"""How long verdicts take on a mix of candidates: contenders, and candidates far behind the best.

    python -m scripts.benchmarks.judge_mix [--device cpu|cuda] [NAME …]

First the time from a judge's start to its first verdict, on a machine whose toolkit is prepared.
Then fourteen honest candidates (10 to 800 µs on a card) as contenders, and all of them again as
candidates behind a best node of ten times the speed.  Their builds go on while others are timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import median

from actors.cli import OneLineParser
from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.devices import device as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks.honest_kernels import HonestKernel, honest_kernels
from scripts.benchmarks.machine_info import machine

FAR_BEHIND = 10.0  # the best node's speed-up beside one that is not near it
ON_CARD = (
    "gelu 1 MB",
    "gelu 64 MB",
    "gelu 256 MB",
    "raw relu 16 MB",
    "raw relu 256 MB",
    "raw sines 16 MB",
    "triton relu 64 MB",
    "add 64 MB",
    "softmax 64 MB",
    "layer norm 128 MB",
    "sum 256 MB",
    "product 1024",
    "attention bf16",
    "small layers",
)
ON_HOST = ("relu 1 MB", "gelu 1 MB", "softmax 4 MB", "product 192", "product 512", "small layers")
BUILDERS = 4  # builds beside each other


def main(arguments: list[str]) -> int:
    """Judge the mix; print a row for each verdict, and the medians."""
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m scripts.benchmarks.judge_mix")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("names", nargs="*", help="only these kernels of `truth`")
    flags = parser.parse_args(arguments)
    device: DeviceKind = flags.device
    names = flags.names or (ON_CARD if device == "cuda" else ON_HOST)
    kernels = [kernel for kernel in honest_kernels(device) if kernel.name in names]
    with tempfile.TemporaryDirectory() as folder:
        try:
            prepared(device, Path(folder) / "first", kernels)
            print(f"{machine()}", flush=True)
            return judged_mix(device, Path(folder) / "judge", kernels)
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4


def prepared(device: DeviceKind, folder: Path, kernels: list[HonestKernel]) -> None:
    """Have the toolkit of builds and the measured rates stored, as on a machine in use."""
    judge = Judge(device, Limits(time_s=0.2), folder)
    try:
        compiled = next((each for each in kernels if "load_inline" in each.candidate), kernels[0])
        judge.judge(task_of(compiled, device), compiled.candidate)
    finally:
        judge.close()


def judged_mix(device: DeviceKind, folder: Path, kernels: list[HonestKernel]) -> int:
    """Judge all kernels twice with one judge; print what it took."""
    began = time.monotonic()
    judge = Judge(device, Limits(), folder)
    try:
        judge.judge(task_of(kernels[0], device), kernels[0].candidate)
        print(f"first verdict {time.monotonic() - began:.1f} s after the judge's start", flush=True)
        judged = [
            judge_all(judge, device, kernels, is_behind=is_behind) for is_behind in (False, True)
        ]
    finally:
        judge.close()
    return int(not all(judged))


def judge_all(
    judge: Judge, device: DeviceKind, kernels: list[HonestKernel], *, is_behind: bool
) -> bool:
    """Judge each kernel; return whether all are correct."""
    timing_s: list[float] = []
    began = time.monotonic()
    with ThreadPoolExecutor(BUILDERS) as builders:
        built: list[Future[BuildResult | None]] = [
            builders.submit(judge.build, kernel.candidate) for kernel in kernels
        ]
        for kernel, build in zip(kernels, built, strict=True):
            verdict = judge.judge(
                task_of(kernel, device),
                kernel.candidate,
                built=build.result(),
                best_speedup=FAR_BEHIND if is_behind else 0.0,
            )
            if not isinstance(verdict, Verdict) or not verdict.is_correct:
                print(f"{kernel.name:20} !! {verdict}"[:300], flush=True)
                continue
            timing_s.append(verdict.seconds.time)
            print(row(kernel.name, verdict, is_behind=is_behind), flush=True)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{len(kernels)} {'far behind' if is_behind else 'contenders'}: "
        f"{len(kernels) / minutes:.1f} verdicts a minute, each of another task; timing, median: "
        f"{median(timing_s or [0.0]):.1f} s, longest {max(timing_s, default=0.0):.1f} s",
        flush=True,
    )
    return len(timing_s) == len(kernels)


def task_of(kernel: HonestKernel, device: DeviceKind) -> Task:
    """Return a kernel's task."""
    return Task(name=kernel.name, source=kernel.task, device=device)


def row(name: str, verdict: Verdict, *, is_behind: bool) -> str:
    """Return one verdict's row of the table."""
    low, high = verdict.speedup_ci95 or (0.0, 0.0)
    seconds = verdict.seconds
    return (
        f"{name:20} {'far behind' if is_behind else 'contender':10} "
        f"{verdict.median_us or 0:8.1f} µs  {verdict.speedup or 0:6.3f} ({low:.3f}-{high:.3f})  "
        f"build {seconds.build:.1f} check {seconds.check:.1f} timing {seconds.time:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
