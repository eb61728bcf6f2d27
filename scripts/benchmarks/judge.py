"""The judge: candidates a minute, seconds a stage, a comparison, steadiness, faults.

    python -m scripts.benchmarks.judge [--device cpu|cuda] [--field N] [--repeats N]

It measures twelve candidates (`benchmark_candidates.py`) on one warm judge; one new candidate alone
on it, three times; `--field` of the twelve KernelBench-style (plain `load_inline`, a fresh process
each) in the same run; the first candidate `--repeats` times; and the time from a fault to the next
candidate's start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

from actors.cli import OneLineParser
from actors.evaluator.devices import device_description as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError, TaskProblem
from actors.evaluator.ordered_judging import judge_in_order
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks import benchmark_candidates
from scripts.benchmarks.machine_info import machine

LIMITS = Limits(time_s=5.0)
FIELD_TIMEOUT_S = 600.0
PLAIN = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
FAULTS = {
    "cpu": "import ctypes\n        ctypes.string_at(0)",
    "cuda": "torch.ones(4, device='cuda')[torch.tensor([1 << 40], device='cuda')]\n"
    "        torch.cuda.synchronize()",
}
FAULTY = """\
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.b = nn.Parameter(torch.randn(width))
        self.g = nn.Parameter(torch.rand(width))

    def forward(self, x, r):
        {fault}
        return F.gelu((x + self.b) * self.g) + r
"""


def verdict_or_exit(result: Verdict | TaskProblem) -> Verdict:
    """Return the verdict; exit when the benchmark's own task can't be judged here."""
    if isinstance(result, TaskProblem):
        raise SystemExit(f"can't be judged here: {result.reason}")
    return result


def ours(judge: Judge, task: Task, sources: dict[str, str]) -> float:
    """Judge all sources on one warm judge; print a table; return the total seconds."""
    begun_at = time.monotonic()
    verdicts = judge_in_order(judge, task, list(sources.values()))
    rows: list[Verdict] = []
    print(f"{'candidate':10} {'verdict':14} {'speedup':>8}  build  check   time  s")
    for name, result in zip(sources, verdicts, strict=True):
        verdict = verdict_or_exit(result)
        rows.append(verdict)
        spent = verdict.seconds
        speedup = f"{verdict.speedup:.2f}" if verdict.speedup else "-"
        print(
            f"{name:10} {verdict.verdict:14} {speedup:>8} {spent.build:6.2f} {spent.check:6.2f} "
            f"{spent.time:6.2f}",
            flush=True,
        )
    total_s = time.monotonic() - begun_at
    alone = [row.seconds.build + row.seconds.check + row.seconds.time for row in rows]
    print(
        f"{len(rows)} candidates in {total_s:.1f} s: {60 * len(rows) / total_s:.1f} a minute; "
        f"source to verdict, median {median(alone):.2f} s (build "
        f"{median([row.seconds.build for row in rows]):.2f} s)"
    )
    return total_s


def kernelbench_style(task: Task, sources: dict[str, str], count: int) -> float:
    """Judge the first `count` sources KernelBench-style; return the mean seconds of one."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        task_path = Path(folder) / "task.py"
        task_path.write_text(task.source, encoding="utf-8")
        for name, source in list(sources.items())[:count]:
            path = Path(folder) / f"{name.replace(' ', '_')}.py"
            path.write_text(source, encoding="utf-8")
            environment = {**os.environ, "TORCH_EXTENSIONS_DIR": f"{folder}/{path.stem}"}
            begun_at = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "scripts.benchmarks.kernelbench_style", task_path, path,
                task.device],
                capture_output=True, text=True, check=False, env=environment,
                timeout=FIELD_TIMEOUT_S,
            )  # fmt: skip
            spent.append(time.monotonic() - begun_at)
            result = json.loads(done.stdout) if not done.returncode else {}
            print(f"{name:10} KernelBench-style: {spent[-1]:.1f} s  {result}", flush=True)
    return mean(spent)


def alone(judge: Judge, task: Task) -> None:
    """Print the seconds from a new candidate's source to its verdict, without other work."""
    first_number = time.time_ns()  # makes a text that the result cache has of no earlier run
    stages, totals_s = [], []
    for number in range(first_number, first_number + 3):
        source = benchmark_candidates.unbuilt_candidate(task.device, number)
        begun_at = time.monotonic()
        stages.append(verdict_or_exit(judge.judge(task, source)).seconds)
        totals_s.append(time.monotonic() - begun_at)
    print(
        f"one candidate alone, source to verdict: {median(totals_s):.2f} s "
        f"(build {median(spent.build for spent in stages):.2f}, "
        f"check {median(spent.check for spent in stages):.2f}, "
        f"time {median(spent.time for spent in stages):.2f}), median of {len(stages)}"
    )


def steadiness(judge: Judge, task: Task, source: str, repeats: int) -> None:
    """Print the spread of the reported speed-ups of one candidate."""
    speedups = []
    for _ in range(repeats):
        speedups.append(verdict_or_exit(judge.judge(task, source)).speedup or 0.0)
    middle = median(speedups)
    spread = (max(speedups) - min(speedups)) / middle * 100
    print(
        f"one candidate {repeats} times: {middle:.3f}×, all within {spread:.2f} % "
        f"({', '.join(f'{each:.3f}' for each in speedups)})"
    )


def faults(judge: Judge, task: Task) -> None:
    """Print the cost of a fault: seconds to its verdict, and from there to the next candidate."""
    source = PLAIN + FAULTY.format(fault=FAULTS[task.device])
    plain = PLAIN + FAULTY.format(fault="pass")
    costs = []
    for _ in range(3):
        begun_at = time.monotonic()
        verdict = verdict_or_exit(judge.judge(task, source))
        judged_at = time.monotonic()
        spent = verdict_or_exit(judge.judge(task, plain)).seconds
        start_s = time.monotonic() - judged_at - spent.time - spent.check
        costs.append((judged_at - begun_at, max(start_s, 0.0), verdict.verdict))
    print(
        "a fault, judged and its device cleared, s: "
        + ", ".join(f"{judged_s:.2f} ({outcome})" for judged_s, _, outcome in costs)
        + "; from its verdict to the next candidate's start, s: "
        + ", ".join(f"{start_s:.2f}" for _, start_s, _ in costs)
    )


def main() -> None:
    """Run all parts of the benchmark."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.judge")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument(
        "--field", type=int, default=2, metavar="N", help="candidates KernelBench-style (default 2)"
    )
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    device: DeviceKind = options.device
    task = Task(name="judged", source=benchmark_candidates.task(device), device=device)
    sources = benchmark_candidates.twelve_candidates(device)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(device, LIMITS, Path(folder) / "judge", log_line=print)
        try:
            begun_at = time.monotonic()
            judge.prepare(list(sources.values()))
            reference = judge.measure(task)
            if isinstance(reference, TaskProblem):
                raise SystemExit(reference.reason)
            judge.judge(task, benchmark_candidates.unbuilt_candidate(device, 0))
            print(f"{machine()}; {judge.device.fingerprint}; sandbox level {judge.level}")
            print(f"warm after {time.monotonic() - begun_at:.1f} s (toolkit, zygote, reference)")
            total_s = ours(judge, task, sources)
            alone(judge, task)
            if options.repeats:
                steadiness(
                    judge, task, benchmark_candidates.unbuilt_candidate(device, 0), options.repeats
                )
            faults(judge, task)
        except JudgeUnavailableError as error:
            raise SystemExit(f"could not judge: {error}") from None
        finally:
            judge.close()
    if options.field:
        one_s = kernelbench_style(task, sources, options.field)
        print(f"KernelBench-style takes {one_s / (total_s / len(sources)):.1f} times as long")


if __name__ == "__main__":
    main()
