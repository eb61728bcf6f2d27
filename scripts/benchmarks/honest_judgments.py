"""Judgments of honest candidates, a third of them beside another program: none may be rejected.

    python -m scripts.benchmarks.honest_judgments [--device cpu|cuda] [--count N] [--seconds S]
        [--share I/N] [--kernelbench ROOT] [--details FILE]

The candidates are those of `honest_candidates`; with `--kernelbench` also every tenth of a
KernelBench folder's problems against itself.  Each is judged several times in a row, in fresh
processes, so that there are N judgments (300); one in three is beside the other program.  None
begins after S seconds (450); a candidate whose judgments take long has fewer of them, so that every
task has some.  Candidates are built while others are judged.  A module against itself takes as long
as itself: an interval that excludes that by more than 3 % is counted, and how far apart processes
of one module are is told.  `--share 2/4` judges the second quarter of the candidates, and a quarter
of N: four cards share the work in four processes.  `--details` writes down every block.  The exit
status is 1 if one candidate is not correct or one interval is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from protocol.values import AttemptView, Backend, DeviceKind, Outcome, Task, Verdict
from scripts.benchmarks.honest_candidates import HonestCandidate, honest_candidates, share_of
from scripts.benchmarks.honest_kernels import OWN_MODULE
from scripts.benchmarks.judgment_details import DetailsFile, RecordedProcess, recorded_processes
from scripts.benchmarks.judgment_spread import EXCLUDED_BY, JudgedModule, spread_lines
from scripts.benchmarks.machine_info import machine
from scripts.benchmarks.own_judge import with_own_judge

WANTED = 300  # judgments
BESIDE_EVERY = 3  # one judgment in three is beside the other program
MOST_TIMES = 9  # that one candidate is judged
OVER_SHARE = 1.5  # times its share of the time a candidate may take
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
    parser.add_argument("--details", type=Path, help="a file for all that is measured")
    flags = parser.parse_args(arguments)
    print(f"{machine()}", flush=True)
    with other_program(flags.device) as other, recorded_processes() as processes:

        def measure(judge: Judge) -> int:
            part, of = flags.share
            found = honest_candidates(flags.device, flags.kernelbench)
            chosen = share_of(found, part, of)
            details = DetailsFile(flags.details)
            judgments = HonestJudgments(judge, flags.device, other, processes, details)
            return judgments.judge_all(chosen, -(-flags.count // of), flags.seconds)

        return with_own_judge(flags.device, TIME_S, measure)


def share(text: str) -> tuple[int, int]:
    """Read `I/N`."""
    part, of = map(int, text.split("/"))
    if not 1 <= part <= of:
        raise ValueError(text)
    return part, of


class Pace:
    """How often each candidate is judged, so that all have their turn in the time."""

    def __init__(self, candidates: int, count: int, until: float) -> None:
        """`until`: the moment after which no judgment begins."""
        self._candidates, self._count, self._until = candidates, count, until

    def turns(self, clock: Callable[[], float] = time.monotonic) -> Iterator[int]:
        """Yield the turns of the next candidate: one at least, unless the time is up.

        The others follow as long as it has taken no more than its share of what is left of the
        time.  What it leaves out, the later ones have more of.
        """
        most = min(MOST_TIMES, -(-self._count // self._candidates))
        began = clock()
        share_s = OVER_SHARE * (self._until - began) / self._candidates
        self._candidates -= 1
        for turn in range(most):
            if clock() >= self._until or (turn and clock() - began >= share_s):
                return
            self._count -= 1
            yield turn


class HonestJudgments:
    """Judgments of honest candidates, and what went wrong in them."""

    def __init__(
        self,
        judge: Judge,
        device: DeviceKind,
        other: subprocess.Popen[bytes],
        processes: list[RecordedProcess],
        details: DetailsFile,
    ) -> None:
        """`processes`: what is measured is written there."""
        self._judge = judge
        self._device = device
        self._other = other
        self._processes = processes
        self._details = details
        self._written: dict[str, str] = {}  # by the rule book, and its builds
        self._builds: dict[str, Future[BuildResult | None]] = {}
        self._judged = Counter[str]()
        self._names = set[str]()  # of the tasks
        self._modules: list[JudgedModule] = []  # that were judged against themselves
        self._stages_s = Counter[str]()  # seconds of the judgments

    def judge_all(self, chosen: Sequence[HonestCandidate], count: int, seconds: float) -> int:
        """Judge until the time is up; print what went wrong; return the exit status."""
        tasks = [self._task_of(each) for each in chosen]
        sources = [each.candidate for each in chosen]
        began = started = time.monotonic()
        with (
            suppress(KeyboardInterrupt),  # what there is until then is printed
            builds_ahead(self._judge, tasks[0], sources, STANDALONE) as builds,
            ThreadPoolExecutor(1) as builder,
        ):
            first = self._judge.judge(tasks[0], chosen[0].task + OWN_MODULE)
            if isinstance(first, TaskProblem):
                raise SystemExit(f"{tasks[0].name} can't be judged here: {first.reason}")
            self._judge.take_stage_seconds()
            started = time.monotonic()
            pace = Pace(len(chosen), count, began + seconds)
            for number, each in enumerate(chosen):
                build = builds.popleft()
                for turn in pace.turns():
                    candidate, ahead = self._candidate(each, build)
                    built = None if turn else ahead.result()
                    self._judge_one(each, candidate, turn, built)
                    if not turn:
                        self._build_next(chosen[number + 1 : number + 2], builder)
        print(self._summary(started - began, time.monotonic() - started), flush=True)
        is_false = self._judged["not correct"] + self._judged["excluded"] > 0
        return int(is_false or not self._judged["all"])

    def _candidate(
        self, each: HonestCandidate, build: Future[BuildResult | None]
    ) -> tuple[str, Future[BuildResult | None]]:
        """Return a candidate's text, which the rule book may write, and its build."""
        if each.candidate:
            return each.candidate, build
        if each.name not in self._written:
            self._written[each.name] = written_by_rule_book(self._judge, self._task_of(each))
        return self._written[each.name], self._builds.get(each.name, build)

    def _build_next(
        self, following: Sequence[HonestCandidate], builder: ThreadPoolExecutor
    ) -> None:
        """Have the rule book write the next candidate, if it is its; build that meanwhile."""
        for each in following:
            if not each.candidate:
                text = written_by_rule_book(self._judge, self._task_of(each))
                self._written[each.name] = text
                self._builds[each.name] = builder.submit(self._judge.build, text)

    def _summary(self, start_s: float, spent_s: float) -> str:
        judged, number = self._judged, max(self._judged["all"], 1)
        stages = ", ".join(
            f"{stage} {part_s / number:.2f}" for stage, part_s in self._stages_s.most_common(14)
        )
        return "\n".join(
            [
                f"{judged['all']} judgments of {len(self._names)} tasks, {judged['beside']} beside "
                f"another program, in {spent_s:.0f} s, and {start_s:.0f} s until the first "
                f"verdict; a judgment {spent_s / number:.2f} s: {stages}",
                *spread_lines(self._modules),
                f"{judged['not correct']} of {judged['all']} not correct; of {judged['itself']} "
                f"modules against themselves {judged['excluded']} intervals exclude 1 by more than "
                "3 %",
            ]
        )

    def _task_of(self, each: HonestCandidate) -> Task:
        backend: Backend = "cuda" if self._device == "cuda" else "cpp"
        return Task(name=each.name, source=each.task, device=self._device, backend=backend)

    def _judge_one(
        self, each: HonestCandidate, candidate: str, turn: int, built: BuildResult | None
    ) -> None:
        is_beside = self._judged["all"] % BESIDE_EVERY == 0
        os.kill(self._other.pid, signal.SIGCONT if is_beside else signal.SIGSTOP)
        self._processes.clear()
        verdict = self._judge.judge(self._task_of(each), candidate, built=built)
        stages_s = self._judge.take_stage_seconds()
        kind = "module" if each.is_itself else "other"
        about = {"task": each.name, "candidate": kind, "turn": turn, "beside": is_beside}
        self._details.add(about, verdict, stages_s, self._processes)
        self._stages_s.update(stages_s)
        self._judged["all"] += 1
        self._judged["beside"] += is_beside
        self._names.add(each.name)
        self._note(each, verdict, is_beside=is_beside)

    def _note(
        self, each: HonestCandidate, verdict: Verdict | TaskProblem, *, is_beside: bool
    ) -> None:
        """Count a verdict; print it if it is false."""
        where = " beside another program" * is_beside
        if not isinstance(verdict, Verdict) or not verdict.is_correct:
            self._judged["not correct"] += 1
            print(f"!! {each.name}{where}: {verdict}"[:600], flush=True)
        elif each.is_itself:
            low, high = verdict.speedup_ci95 or (0.0, 2.0)
            judged = JudgedModule(
                name=each.name,
                is_beside=is_beside,
                speedup=verdict.speedup or 0.0,
                low=low,
                high=high,
            )
            self._modules.append(judged)
            self._judged["itself"] += 1
            if judged.excludes(EXCLUDED_BY):
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
