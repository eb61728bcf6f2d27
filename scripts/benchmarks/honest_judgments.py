"""Judgments of honest candidates, a third of them beside another program: none may be rejected.

    python -m scripts.benchmarks.honest_judgments [--device cpu|cuda] [--count N] [--seconds S]
        [--share I/N] [--kernelbench ROOT]

The candidates are the honest kernels of `truth`, modules of `examples/` and of the corpus against
themselves, the corpus's honest candidates, and the rule book's first answers to the examples; with
`--kernelbench` also every tenth of a KernelBench folder's problems against itself.
Each is judged several times in a row, in fresh processes, so that there are N judgments (300); one
in three is beside the other program.  None begins after S seconds (450).  Candidates are built
while others are judged.  A module against itself takes as long as itself: an interval that excludes
that by more than 3 % is counted.  `--share 2/4` judges the second quarter of the candidates, and a
quarter of N: four cards share the work in four processes.  The exit status is 1 if one candidate is
not correct or one interval is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from actors.agents import recipes
from actors.agents.replies.replies import parse_reply
from actors.cli import OneLineParser
from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.devices import device_description as devices
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.ordered_judging import builds_ahead
from actors.work_context import STANDALONE
from protocol.messages import Lease, Solve
from protocol.values import AttemptView, Backend, DeviceKind, Outcome, Task, Value, Verdict
from scripts.benchmarks.honest_kernels import OWN_MODULE, honest_kernels
from scripts.benchmarks.machine_info import machine
from scripts.benchmarks.own_judge import with_own_judge

ROOT = Path(__file__).parents[2]
WANTED = 300  # judgments
EXCLUDED_BY = 0.03
BESIDE_EVERY = 3  # one judgment in three is beside the other program
MOST_TIMES = 9  # that one candidate is judged
TIME_S = 0.5  # of samples: many short judgments show more than few long ones
# What the other program does, again and again: on a card with a pause, as another user's would.
OTHER_PROGRAM = """
import sys, time, torch
device = sys.argv[1]
torch.set_num_threads(1)
x = torch.randn(1024 if device == "cpu" else 8192, 1024, device=device)
print("ready", flush=True)
while True:
    y = torch.relu(x @ x.T).sum()
    if device == "cuda":
        torch.cuda.synchronize()
        time.sleep(0.002)
"""


class HonestCandidate(Value, frozen=True, kw_only=True):
    """A candidate that must be correct."""

    name: str
    task: str
    candidate: str  # "": the rule book writes it

    @property
    def is_itself(self) -> bool:
        """Whether it is the task's own module, and so takes as long."""
        return self.candidate == self.task + OWN_MODULE


def main(arguments: list[str]) -> int:
    """Judge the candidates; print those that were judged falsely, and how many were judged."""
    parser: argparse.ArgumentParser = OneLineParser(
        prog="python -m scripts.benchmarks.honest_judgments"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--count", type=int, default=WANTED, help=f"judgments ({WANTED})")
    parser.add_argument("--seconds", type=float, default=450.0, help="at most (450)")
    parser.add_argument("--share", type=share, default=(1, 1), help="I/N: a part of them")
    parser.add_argument("--kernelbench", type=Path, help="a folder of KernelBench's problems")
    flags = parser.parse_args(arguments)
    print(f"{machine()}", flush=True)
    with other_program(flags.device) as other:

        def measure(judge: Judge) -> int:
            part, of = flags.share
            found = honest_candidates(flags.device, flags.kernelbench)
            chosen = share_of(found, part, of)
            count = min(-(-flags.count // of), MOST_TIMES * len(chosen))
            judgments = HonestJudgments(judge, flags.device, other)
            return judgments.judge_all(chosen, count, flags.seconds)

        return with_own_judge(flags.device, TIME_S, measure)


def share(text: str) -> tuple[int, int]:
    """Read `I/N`."""
    part, of = map(int, text.split("/"))
    if not 1 <= part <= of:
        raise ValueError(text)
    return part, of


def times_of(number: int, candidates: int, count: int) -> int:
    """Return how often one of the candidates is judged, so that there are `count` judgments."""
    return count // candidates + (number < count % candidates)


class HonestJudgments:
    """Judgments of honest candidates, and what went wrong in them."""

    def __init__(self, judge: Judge, device: DeviceKind, other: subprocess.Popen[bytes]) -> None:
        self._judge = judge
        self._device = device
        self._other = other
        self._written: dict[str, str] = {}  # by the rule book
        self._judged = Counter[str]()
        self._names = set[str]()  # of the tasks
        self._spent = dict.fromkeys(("all", "check", "timing"), 0.0)  # seconds of the judgments
        self._started = time.monotonic()  # once what all of them need was there

    def judge_all(self, chosen: Sequence[HonestCandidate], count: int, seconds: float) -> int:
        """Judge until the time is up; print what went wrong; return the exit status."""
        tasks = [self._task_of(each) for each in chosen]
        sources = [each.candidate for each in chosen]
        began = time.monotonic()
        with (
            suppress(KeyboardInterrupt),  # what there is until then is printed
            builds_ahead(self._judge, tasks[0], sources, STANDALONE) as builds,
        ):
            self._judge.judge(tasks[0], chosen[0].task + OWN_MODULE)
            self._started = time.monotonic()
            for number, (each, task) in enumerate(zip(chosen, tasks, strict=True)):
                build = builds.popleft()
                for turn in range(times_of(number, len(chosen), count)):
                    if time.monotonic() - began >= seconds:
                        break
                    is_beside = self._judged["all"] % BESIDE_EVERY == 0
                    os.kill(self._other.pid, signal.SIGCONT if is_beside else signal.SIGSTOP)
                    built = None if turn else build.result()
                    self._judge_one(each, task, built, " beside another program" * is_beside)
                    self._judged["beside"] += is_beside
                    self._names.add(each.name)
        print(self._summary(self._started - began, time.monotonic() - self._started), flush=True)
        return int(self._judged["not correct"] + self._judged["excluded"] > 0)

    def _summary(self, start_s: float, spent_s: float) -> str:
        judged, number = self._judged, max(self._judged["all"], 1)
        all_s = WANTED * spent_s / number
        parts = ", ".join(f"{name} {part_s / number:.1f} s" for name, part_s in self._spent.items())
        return (
            f"{judged['all']} judgments of {len(self._names)} tasks, {judged['beside']} beside "
            f"another program, in {spent_s:.0f} s, and {start_s:.0f} s until the first verdict; "
            f"a judgment: {parts} "
            f"({WANTED} of them: {all_s / 60:.0f} min at this rate, divided by the devices that "
            f"share them): {judged['not correct']} not correct; "
            f"of {judged['itself']} modules against themselves {judged['excluded']} intervals "
            "exclude 1 by more than 3 %"
        )

    def _task_of(self, each: HonestCandidate) -> Task:
        backend: Backend = "cuda" if self._device == "cuda" else "cpp"
        return Task(name=each.name, source=each.task, device=self._device, backend=backend)

    def _judge_one(
        self, each: HonestCandidate, task: Task, built: BuildResult | None, where: str
    ) -> None:
        candidate = each.candidate or self._written.get(each.name, "")
        if not candidate:
            candidate = self._written[each.name] = written_by_rule_book(self._judge, task)
        began = time.monotonic()
        verdict = self._judge.judge(task, candidate, built=built)
        self._spent["all"] += time.monotonic() - began
        if isinstance(verdict, Verdict):
            self._spent["check"] += verdict.seconds.check
            self._spent["timing"] += verdict.seconds.time
        self._judged["all"] += 1
        if not isinstance(verdict, Verdict) or not verdict.is_correct:
            self._judged["not correct"] += 1
            print(f"!! {each.name}{where}: {verdict}"[:400], flush=True)
        elif each.is_itself:
            self._judged["itself"] += 1
            low, high = verdict.speedup_ci95 or (0.0, 2.0)
            if low > 1 + EXCLUDED_BY or high < 1 - EXCLUDED_BY:
                self._judged["excluded"] += 1
                print(f"!! {each.name}{where}: {figures(verdict)}", flush=True)


def figures(verdict: Verdict) -> str:
    """Return a verdict's figures, with the times of its groups."""
    low, high = verdict.speedup_ci95 or (0.0, 0.0)
    groups = verdict.groups
    pairs = zip(groups.reference_us, groups.candidate_us, strict=True) if groups else ()
    shown = " ".join(f"{ours:.4g}/{theirs:.4g}" for ours, theirs in pairs)
    timing = (verdict.profile or {}).get("timing", "")
    return f"{verdict.speedup:.3f} ({low:.3f}-{high:.3f}); {timing}; groups in µs: {shown}"


# --- the candidates ------------------------------------------------------------------------------


def share_of(found: Sequence[HonestCandidate], part: int, of: int) -> list[HonestCandidate]:
    """Return a share of the candidates, of all kinds; those of one task are together."""
    names = list(dict.fromkeys(each.name for each in found))
    return [each for each in found if names.index(each.name) % of == part - 1]


def honest_candidates(device: DeviceKind, kernelbench: Path | None) -> list[HonestCandidate]:
    """Return all candidates for a device, each task's together: its reference is prepared once."""
    kernels = [
        HonestCandidate(name=each.name, task=each.task, candidate=each.candidate)
        for each in honest_kernels(device)
        if not each.gigabytes  # their preparation takes seconds
    ]
    problems = kernelbench_problems(kernelbench) if kernelbench else ()
    return [*kernels, *corpus(device), *examples(), *problems]


def corpus(device: DeviceKind) -> Iterator[HonestCandidate]:
    """Yield the corpus's honest candidates, and its task's own module."""
    root = ROOT / "tests" / "corpus" / ("cuda" if device == "cuda" else "")
    if not (root / "task.py").exists():  # an installed copy has no tests
        return
    task = (root / "task.py").read_text(encoding="utf-8")
    yield HonestCandidate(name="corpus", task=task, candidate=task + OWN_MODULE)
    for path in sorted((root / "honest").glob("*.py")):
        yield HonestCandidate(name="corpus", task=task, candidate=path.read_text(encoding="utf-8"))


def examples() -> Iterator[HonestCandidate]:
    """Yield the examples against themselves, and places for the rule book's answers to them."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        task = path.read_text(encoding="utf-8")
        yield HonestCandidate(name=path.stem, task=task, candidate=task + OWN_MODULE)
        yield HonestCandidate(name=path.stem, task=task, candidate="")


def kernelbench_problems(root: Path) -> Iterator[HonestCandidate]:
    """Yield every tenth problem of levels 1 to 3 of a KernelBench folder against itself."""
    for path in sorted(root.glob("level[123]/*.py"))[::10]:
        task = path.read_text(encoding="utf-8")
        name = f"{path.parent.name}_{path.stem}"
        yield HonestCandidate(name=name, task=task, candidate=task + OWN_MODULE)


def written_by_rule_book(judge: Judge, task: Task) -> str:
    """Return the rule book's first candidate for a task, or the task's own module."""
    reference = judge.measure(task, defer_baselines=True)
    if isinstance(reference, TaskProblem):
        raise SystemExit(f"{task.name} can't be judged here: {reference.reason}")
    root = AttemptView(
        node=0,
        source=task.source,
        verdict=Verdict(verdict=Outcome.NO_CANDIDATE),
        score_us=reference.eager_us,
    )
    lease = Lease(work=f"{task.name}/1/solve", epoch=1)
    solve = Solve(lease=lease, task=task, attempt=1, node=root, root=root, reference=reference)
    return (
        parse_reply(recipes.answer(solve)).code("Candidate", lambda _code: True)
        or task.source + OWN_MODULE
    )


@contextmanager
def other_program(device: DeviceKind) -> Iterator[subprocess.Popen[bytes]]:
    """Start another program that uses the device; it is stopped between its turns."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROGRAM, device], stdout=subprocess.PIPE
    ) as process:
        if process.stdout is not None:
            process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
