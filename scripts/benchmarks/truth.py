"""The judge's figures of honest kernels beside those of an ordinary clock, in one run.

    python -m scripts.benchmarks.truth [--device cpu|cuda] [--time-s S] [--seconds S] [--draw TEXT]
        [NAME …] [--pair TASK CANDIDATE]…

Each kernel (in the order of the NAMEs, if there are any, or of the files of each --pair) is judged,
and two other clocks time it:

- its own process, by CUDA events (on a host by its clock) around the second half of the calls of
  each block that the judge times.  These are the same calls at the same moment, on inputs in turn.
- a process apart that does nothing else (`ordinary_clock`), on the same processor after each of the
  judge's groups.  It tells whether the judge's processes make a kernel slower than others do.  A
  host's processors may change their speed by a half within milliseconds, so that calls which are
  little more than a launch differ from one moment to the next: the interval says by how much.

How far the judge is off is the median over the groups; kernels that launches bound get more of
them.  With --draw the kernels come in an order
that the text decides, those bound by launches, by memory, by arithmetic and those of gigabytes in
turn: with too few --seconds for all, no person chooses.  The exit status is 1 if the judge is
off by more than 1 % for the median kernel or by more than 3 % for one (of calls under 5 µs, by more
than 0.5 µs), or if the whole interval of the process apart is beyond 3 %.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple
from unittest import mock

from actors.cli import OneLineParser
from actors.evaluator import evaluation
from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.devices import device_description as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from actors.evaluator.sandbox.child_failures import CandidateFault
from actors.evaluator.timing import intervals
from actors.evaluator.timing.paired_benchmark import PairedBenchmark
from actors.evaluator.timing.timing_statistics import TimedGroup, Timing
from protocol.values import DeviceKind, Task, Value, Verdict
from scripts.benchmarks.honest_kernels import (
    HonestKernel,
    corner_kernels,
    honest_kernels,
    in_drawn_order,
)
from scripts.benchmarks.machine_info import machine
from scripts.benchmarks.ordinary_clock import ClockError, OrdinaryClock
from scripts.benchmarks.own_judge import with_own_judge

MEDIAN_LIMIT, EACH_LIMIT = 0.01, 0.03
SHORT_US, SHORT_LIMIT_US = 5.0, 0.5  # calls that launch nothing: the judge's resolution
LAUNCHES_TIME = 3  # times the samples for what launches bound: it varies by a tenth
BUILDERS = 4


def main(arguments: list[str]) -> int:
    """Judge and time the kernels; print the table."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.truth")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument(
        "--time-s",
        type=float,
        default=3.0,
        help="of samples a kernel (3); three times as long for what launches bound",
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="no kernel begins after")
    parser.add_argument("--draw", default="", help="the kernels in an order drawn by this text")
    parser.add_argument("names", nargs="*", help="only these kernels (also: corner_kernels)")
    parser.add_argument(
        "--pair", nargs=2, type=Path, action="append", default=[], metavar=("TASK", "CANDIDATE")
    )
    flags = parser.parse_args(arguments)
    standard = honest_kernels(flags.device)
    by_name = {kernel.name: kernel for kernel in [*standard, *corner_kernels(flags.device)]}
    unknown = [name for name in flags.names if name not in by_name]
    if unknown:
        print(f"no kernel is called {', '.join(unknown)}")
        return 2
    try:
        pairs = [kernel_of(*pair) for pair in flags.pair]
    except (OSError, UnicodeDecodeError) as error:
        print(f"a file of --pair can't be read: {error}")
        return 2
    kernels = [by_name[name] for name in flags.names] + pairs or standard
    if flags.draw:
        kernels = in_drawn_order(kernels, flags.draw)

    def measure(judge: Judge) -> int:
        with OrdinaryClock(flags.device) as clock:
            comparison = ClockComparison(judge, clock, flags.device, flags.time_s)
            return comparison.compare_all(kernels, flags.seconds)

    return with_own_judge(flags.device, flags.time_s, measure)


def kernel_of(task: Path, candidate: Path) -> HonestKernel:
    """Return the kernel of two files; another clock takes the task's inputs."""
    task_source, source = (path.read_text(encoding="utf-8") for path in (task, candidate))
    return HonestKernel(name=candidate.stem, task=task_source, candidate=source, task_in_front=True)


class ClockComparison:
    """The judge beside ordinary clocks, kernel by kernel."""

    def __init__(
        self, judge: Judge, clock: OrdinaryClock, device: DeviceKind, time_s: float
    ) -> None:
        """`time_s`: of samples a kernel."""
        self._judge = judge
        self._clock = clock
        self._device = device
        self._time_s = time_s
        self._built: dict[str, BuildResult | None] = {}  # by the candidate

    def compare_all(self, kernels: Sequence[HonestKernel], seconds: float) -> int:
        """Print a row for each kernel that begins in time; return the exit status."""
        began = time.monotonic()
        self._prepare(kernels)
        print(f"{machine()}; {len(kernels)} kernels")
        print(
            f"{'kernel':18} {'judged µs':>10} {'same calls':>10} {'off %':>7} {'apart µs':>10} "
            f"{'off %':>7} {'95 %':16} {'ratio':>6} 95 %"
        )
        found: list[Deviations] = []
        failed = 0
        with suppress(KeyboardInterrupt):  # what there is until then is summed up
            for kernel in kernels:
                if time.monotonic() - began >= seconds:
                    break
                compared = self._compared(kernel)
                failed += compared is None
                found += [] if compared is None else [compared]
        left = len(kernels) - len(found) - failed
        spent_s = time.monotonic() - began
        print(f"{summary(found)}; {failed} not timed, {left} not begun in time; {spent_s:.0f} s")
        return int(failed > 0 or not found or is_off(found))

    def _prepare(self, kernels: Sequence[HonestKernel]) -> None:
        """Start everything, and build what is compiled, before the first kernel is timed."""
        built_kernels = [each for each in kernels if "load_inline(" in each.candidate]
        compiled = [each.candidate for each in built_kernels]
        self._clock.build([each.clocked for each in built_kernels])
        with ThreadPoolExecutor(BUILDERS) as builders:
            built = [builders.submit(self._judge.build, each) for each in compiled]
            self._judge.measure(self._task_of(kernels[0]), defer_baselines=True)
        self._built = {source: each.result() for source, each in zip(compiled, built, strict=True)}
        self._clock.wait()

    def _task_of(self, kernel: HonestKernel) -> Task:
        return Task(name=kernel.name, source=kernel.task, device=self._device)

    def _compared(self, kernel: HonestKernel) -> Deviations | None:
        """Print a kernel's row; return how far off the judge is; None: it was not timed."""
        started = time.monotonic()
        built = self._built.get(kernel.candidate)
        time_s = self._time_s * (LAUNCHES_TIME if kernel.kind == "launches" else 1)
        try:
            with (
                self._clock.holding(kernel.clocked),
                timed_by_all(self._clock, time_s) as times,
            ):
                if kernel.gigabytes:
                    self._clock.wait()  # the judge then plans with what is left of the card
                verdict = self._judge.judge(self._task_of(kernel), kernel.candidate, built=built)
        except (ClockError, JudgeUnavailableError) as error:
            print(f"{kernel.name:18} !! {error}"[:600], flush=True)
            return None
        if not isinstance(verdict, Verdict) or not verdict.is_correct or not times:
            print(f"{kernel.name:18} !! {verdict}"[:600], flush=True)
            return None
        same = deviation_of([(each.judged_us, each.same_us) for each in times])
        apart = deviation_of([(each.judged_us, each.apart_us) for each in times])
        low, high = verdict.speedup_ci95 or (0.0, 0.0)
        print(
            f"{kernel.name:18} {verdict.median_us or 0.0:10.2f} {same.clock_us:10.2f} "
            f"{same.share:+7.2%} {apart.clock_us:10.2f} {apart.share:+7.2%} "
            f"{f'({apart.low:+.1%} {apart.high:+.1%})':16} "
            f"{verdict.speedup or 0:6.3f} {low:.3f}-{high:.3f}  {len(times)} groups, timing "
            f"{verdict.seconds.time:.1f} s of {time.monotonic() - started:.1f} s; "
            f"{(verdict.profile or {}).get('timing', '')}",
            flush=True,
        )
        return Deviations(same=same, apart=apart)


class Deviation(Value, frozen=True, kw_only=True):
    """How far the judge is off for one kernel, as a share of the ordinary clock's figure."""

    clock_us: float
    share: float
    low: float  # of the 95 % interval
    high: float

    @property
    def limit(self) -> float:
        """The share that is allowed."""
        return SHORT_LIMIT_US / self.clock_us if self.clock_us < SHORT_US else EACH_LIMIT

    @property
    def is_within(self) -> bool:
        """Whether it is allowed."""
        return abs(self.share) <= self.limit

    @property
    def is_surely_beyond(self) -> bool:
        """Whether the whole interval is beyond what is allowed."""
        return self.low > self.limit or self.high < -self.limit


def deviation_of(pairs: Sequence[tuple[float, float]]) -> Deviation:
    """Return how far off the judge is, from its microseconds and the clock's, group by group."""
    shares = [judged / clocked - 1 for judged, clocked in pairs]
    low, high = intervals.median_interval(shares) or (-math.inf, math.inf)
    clock_us = median(clocked for _judged, clocked in pairs)
    return Deviation(clock_us=clock_us, share=median(shares), low=low, high=high)


class Deviations(Value, frozen=True, kw_only=True):
    """How far the judge is off for one kernel, from each of both clocks."""

    same: Deviation  # calls, timed by their own process
    apart: Deviation  # calls of another process


def is_off(found: Sequence[Deviations]) -> bool:
    """Whether the judge is off by more than it may be."""
    return (
        median(abs(each.same.share) for each in found) > MEDIAN_LIMIT
        or any(not each.same.is_within for each in found)
        or any(each.apart.is_surely_beyond for each in found)
    )


def summary(found: Sequence[Deviations]) -> str:
    """Return how far off the judge is, over all kernels."""
    if not found:
        return "no kernel"
    shares = [each.same.share for each in found]
    apart = [each.apart for each in found]
    return (
        f"{len(found)} kernels: from the same calls median {median(map(abs, shares)):.2%} "
        f"(signed {median(shares):+.2%}), worst {max(map(abs, shares)):.2%}, "
        f"{sum(not each.same.is_within for each in found)} beyond 3 % (0.5 µs of calls under 5 µs);"
        f" from a process apart median {median(abs(each.share) for each in apart):.2%}, "
        f"{sum(not each.is_within for each in apart)} beyond 3 %, "
        f"{sum(each.is_surely_beyond for each in apart)} with their whole interval"
    )


class GroupTimes(NamedTuple):
    """Microseconds a call of the candidate in one group, by three clocks."""

    judged_us: float
    same_us: float
    apart_us: float


@contextmanager
def timed_by_all(clock: OrdinaryClock, time_s: float) -> Iterator[list[GroupTimes]]:
    """Have the other clocks time what the judge times, group by group; yield the times."""
    times: list[GroupTimes] = []

    class BenchmarkBesideClocks(PairedBenchmark):
        told_s = 0.0

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **{**named, "time_s": time_s})
            clock.wait()  # until it is prepared: a card works for one at a time

        def _group(self) -> TimedGroup:
            self._sides.told_call_s.clear()
            group = super()._group()
            self.told_s = mean(self._sides.told_call_s)
            return group

        def run(
            self, on_group: Callable[[int], None] = lambda _groups: None
        ) -> Timing | CandidateFault:
            def all_clocks(number: int) -> None:
                on_group(number)
                judged_us = mean(self.groups[-1].candidate)
                apart_us = clock.call_s(self.processor) * 1e6
                times.append(GroupTimes(judged_us, self.told_s * 1e6, apart_us))

            return super().run(all_clocks)

    with mock.patch.object(evaluation, "PairedBenchmark", BenchmarkBesideClocks):
        yield times


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
