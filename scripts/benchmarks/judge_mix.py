"""How long verdicts take on a mix of candidates: contenders, and candidates far behind the best.

    python -m scripts.benchmarks.judge_mix [--device cpu|cuda]

Honest kernels of 10 to 800 µs (on a card), each judged as a contender and as a candidate behind a
best node of ten times the speed.  Builds of the second candidate go on while the first is timed.
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
    "raw relu 16 MB",
    "triton relu 64 MB",
    "softmax 64 MB",
    "product 1024",
    "raw relu 256 MB",
    "small layers",
)
ON_HOST = ("relu 1 MB", "gelu 1 MB", "softmax 4 MB", "product 192", "product 512", "small layers")


def main(arguments: list[str]) -> int:
    """Judge the mix; print a row for each verdict, and the medians."""
    parser: argparse.ArgumentParser = OneLineParser(prog="python -m scripts.benchmarks.judge_mix")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    device: DeviceKind = parser.parse_args(arguments).device
    names = ON_CARD if device == "cuda" else ON_HOST
    kernels = [kernel for kernel in honest_kernels(device) if kernel.name in names]
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(device, Limits(), Path(folder) / "judge")
        try:
            judge.judge(Task(name="warm", source=kernels[0].task, device=device), "x")
            print(f"{machine()}; {judge.device.fingerprint}")
            judge_mix(judge, device, kernels)
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4
        finally:
            judge.close()
    return 0


def judge_mix(judge: Judge, device: DeviceKind, kernels: list[HonestKernel]) -> None:
    """Judge each kernel twice; print what it took."""
    work = [(kernel, behind) for kernel in kernels for behind in (False, True)]
    timing_s: dict[bool, list[float]] = {False: [], True: []}
    began = time.monotonic()
    with ThreadPoolExecutor(2) as builders:
        built: list[Future[BuildResult | None]] = [
            builders.submit(judge.build, kernel.candidate) for kernel, _behind in work
        ]
        for (kernel, behind), build in zip(work, built, strict=True):
            verdict = judge.judge(
                Task(name=kernel.name, source=kernel.task, device=device),
                kernel.candidate,
                built=build.result(),
                best_speedup=FAR_BEHIND if behind else 0.0,
            )
            if not isinstance(verdict, Verdict) or not verdict.is_correct:
                print(f"{kernel.name:20} !! {verdict}"[:300])
                continue
            timing_s[behind].append(verdict.seconds.time)
            low, high = verdict.speedup_ci95 or (0.0, 0.0)
            print(
                f"{kernel.name:20} {'behind' if behind else 'contender':10} "
                f"{verdict.median_us or 0:8.1f} µs  {verdict.speedup or 0:6.3f} "
                f"({low:.3f}-{high:.3f})  build {verdict.seconds.build:.1f} check "
                f"{verdict.seconds.check:.1f} timing {verdict.seconds.time:.1f} s",
                flush=True,
            )
    minutes = (time.monotonic() - began) / 60
    print(
        f"{len(work)} verdicts, {len(work) / minutes:.1f} a minute; timing, median: "
        + ", ".join(
            f"{'behind' if behind else 'contenders'} {median(seconds):.1f} s"
            for behind, seconds in timing_s.items()
            if seconds
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
