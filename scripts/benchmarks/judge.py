"""The judge: candidates a minute, seconds a stage, the field's way beside it, steadiness, faults.

    python -m scripts.benchmarks.judge [--device cpu|cuda] [--field N] [--repeats N]

A dozen candidates (`benchmark_candidates.py`) on one warm judge; one new candidate alone on it,
three times; the same with plain `load_inline` in a fresh process each, `--field` of the dozen, in
the same run; the first candidate `--repeats` times; and what passes from a fault to the next
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
from actors.evaluator.devices import device as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError, TaskProblem
from actors.evaluator.judge_cli import judge_in_order
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks import benchmark_candidates
from scripts.benchmarks.machine_info import machine

LIMITS = Limits(time_s=5.0)
FIELD_S = 600.0
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


def verdict_or_exit(found: Verdict | TaskProblem) -> Verdict:
    """Return the verdict; leave when the benchmark's own task can't be judged here."""
    if isinstance(found, TaskProblem):
        raise SystemExit(f"can't be judged here: {found.reason}")
    return found


def ours(judge: Judge, task: Task, sources: dict[str, str]) -> float:
    """Judge all of them on one warm judge; print a table; return the seconds of the whole."""
    began = time.monotonic()
    verdicts = judge_in_order(judge, task, list(sources.values()))
    rows: list[Verdict] = []
    print(f"{'candidate':10} {'verdict':14} {'speedup':>8}  build  check   time  s")
    for name, found in zip(sources, verdicts, strict=True):
        verdict = verdict_or_exit(found)
        rows.append(verdict)
        spent = verdict.seconds
        speedup = f"{verdict.speedup:.2f}" if verdict.speedup else "-"
        print(
            f"{name:10} {verdict.verdict:14} {speedup:>8} {spent.build:6.2f} {spent.check:6.2f} "
            f"{spent.time:6.2f}",
            flush=True,
        )
    whole = time.monotonic() - began
    alone = [row.seconds.build + row.seconds.check + row.seconds.time for row in rows]
    print(
        f"{len(rows)} candidates in {whole:.1f} s: {60 * len(rows) / whole:.1f} a minute; "
        f"source to verdict, median {median(alone):.2f} s (build "
        f"{median([row.seconds.build for row in rows]):.2f} s)"
    )
    return whole


def kernelbench_style(task: Task, sources: dict[str, str], count: int) -> float:
    """Judge some the field's way; return the mean seconds of one."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        task_path = Path(folder) / "task.py"
        task_path.write_text(task.source, encoding="utf-8")
        for name, source in list(sources.items())[:count]:
            path = Path(folder) / f"{name.replace(' ', '_')}.py"
            path.write_text(source, encoding="utf-8")
            environment = {**os.environ, "TORCH_EXTENSIONS_DIR": f"{folder}/{path.stem}"}
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "scripts.benchmarks.kernelbench_style", task_path, path,
                task.device],
                capture_output=True, text=True, check=False, env=environment, timeout=FIELD_S,
            )  # fmt: skip
            spent.append(time.monotonic() - began)
            said = json.loads(done.stdout) if not done.returncode else {}
            print(f"{name:10} the field's way: {spent[-1]:.1f} s  {said}", flush=True)
    return mean(spent)


def alone(judge: Judge, task: Task) -> None:
    """Print what passes from a new candidate's source to its verdict while nothing else goes on."""
    began = time.time_ns()  # as text that no store knows, whoever ran this before
    found, whole = [], []
    for number in range(began, began + 3):
        source = benchmark_candidates.unbuilt_candidate(task.device, number)
        start = time.monotonic()
        found.append(verdict_or_exit(judge.judge(task, source)).seconds)
        whole.append(time.monotonic() - start)
    print(
        f"one candidate alone, source to verdict: {median(whole):.2f} s "
        f"(build {median(spent.build for spent in found):.2f}, "
        f"check {median(spent.check for spent in found):.2f}, "
        f"time {median(spent.time for spent in found):.2f}), median of {len(found)}"
    )


def steadiness(judge: Judge, task: Task, source: str, repeats: int) -> None:
    """Print how far apart the reported speedups of one candidate are."""
    found = []
    for _ in range(repeats):
        found.append(verdict_or_exit(judge.judge(task, source)).speedup or 0.0)
    middle = median(found)
    spread = (max(found) - min(found)) / middle * 100
    print(
        f"one candidate {repeats} times: {middle:.3f}×, all within {spread:.2f} % "
        f"({', '.join(f'{each:.3f}' for each in found)})"
    )


def faults(judge: Judge, task: Task) -> None:
    """Print what a fault costs: until it is a verdict, until the next candidate runs."""
    source = PLAIN + FAULTY.format(fault=FAULTS[task.device])
    plain = PLAIN + FAULTY.format(fault="pass")
    lost = []
    for _ in range(3):
        whole = time.monotonic()
        verdict = verdict_or_exit(judge.judge(task, source))
        began = time.monotonic()
        following = verdict_or_exit(judge.judge(task, plain))
        spent = following.seconds
        start = time.monotonic() - began - spent.time - spent.check
        lost.append((began - whole, max(start, 0.0), verdict.verdict))
    print(
        "a fault, judged and cleared up, s: "
        + ", ".join(f"{first:.2f} ({word})" for first, _next, word in lost)
        + "; from its verdict to the next candidate's start, s: "
        + ", ".join(f"{then:.2f}" for _first, then, _word in lost)
    )


def main() -> None:
    """Run all parts on one machine."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.judge")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--field", type=int, default=2, help="how many the field's way (default 2)")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    device: DeviceKind = options.device
    task = Task(name="judged", source=benchmark_candidates.task(device), device=device)
    sources = benchmark_candidates.twelve_candidates(device)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(device, LIMITS, Path(folder) / "judge", log_line=print)
        try:
            began = time.monotonic()
            judge.prepare(list(sources.values()))
            reference = judge.measure(task)
            if isinstance(reference, TaskProblem):
                raise SystemExit(reference.reason)
            judge.judge(task, benchmark_candidates.unbuilt_candidate(device, 0))
            print(f"{machine()}; {judge.device.fingerprint}; sandbox level {judge.level}")
            print(f"warm after {time.monotonic() - began:.1f} s (toolkit, zygote, reference)")
            whole = ours(judge, task, sources)
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
        each = kernelbench_style(task, sources, options.field)
        print(f"the field's way takes {each / (whole / len(sources)):.1f} times as long")


if __name__ == "__main__":
    main()
