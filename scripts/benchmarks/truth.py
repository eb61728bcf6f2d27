"""The judge's figures of honest kernels beside those of an ordinary clock, in one run.

    python -m scripts.benchmarks.truth [--device cpu|cuda] [--time-s S] [--seconds S] [--draw TEXT]
        [NAME …]

Each kernel (in the order of the NAMEs, if there are any) is judged, and after each of the judge's
groups it is timed in this process over inputs in turn: by CUDA events on a card, by the clock on a
host, which has to be quiet.  Both launch their calls on the same processor.  How far the judge is
off is the median over the groups, and its 95 % interval is printed.  With --draw the kernels come
in an order that the text decides, those bound by launches, by memory, by arithmetic and those of
gigabytes in turn: with too few --seconds for all, the choice is nobody's.  The exit status is 1 if
the median kernel is off by more than 1 %, or one kernel by more than 3 % (of calls under 5 µs, by
more than 0.5 µs).
"""

from __future__ import annotations

import gc
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean, median
from types import ModuleType
from typing import Any
from unittest import mock

from actors.cli import OneLineParser
from actors.evaluator import evaluation
from actors.evaluator.devices import device as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from actors.evaluator.sandbox.child_failures import CandidateFault
from actors.evaluator.timing import timing_statistics
from actors.evaluator.timing.paired_benchmark import PairedBenchmark
from actors.evaluator.timing.timing_statistics import Timing
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Value, Verdict
from scripts.benchmarks.honest_kernels import (
    HonestKernel,
    corner_kernels,
    honest_kernels,
    in_drawn_order,
)
from scripts.benchmarks.machine_info import machine

Clock = Callable[[int | None], float]  # by the processor that launches the calls

MEDIAN_LIMIT, EACH_LIMIT = 0.01, 0.03
SHORT_US, SHORT_LIMIT_US = 5.0, 0.5  # calls that launch nothing: the judge's resolution
BLOCK_S = {"cpu": 0.02, "cuda": 0.02}  # of calls that are timed together
MOST_INPUTS = 2048
HOST_BYTES, CARD_SHARE = 1 << 25, 8  # of inputs and outputs in turn
WARM_UPS = 3
LAUNCH_S, LONGER = 3e-5, 2.5  # calls that are little more than a launch vary by a tenth
WAKING_S = 0.002  # of calls before the first event, after which a card has no pause


def main(arguments: list[str]) -> int:
    """Judge and time the kernels; print the table."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.truth")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--time-s", type=float, default=3.0, help="of samples a kernel (3)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no kernel begins after")
    parser.add_argument("--draw", default="", help="the kernels in an order drawn by this text")
    parser.add_argument("names", nargs="*", help="only these kernels (also: corner_kernels)")
    flags = parser.parse_args(arguments)
    standard = honest_kernels(flags.device)
    by_name = {kernel.name: kernel for kernel in [*standard, *corner_kernels(flags.device)]}
    unknown = [name for name in flags.names if name not in by_name]
    if unknown:
        print(f"no kernel is called {', '.join(unknown)}")
        return 2
    kernels = [by_name[name] for name in flags.names] or standard
    if flags.draw:
        kernels = in_drawn_order(kernels, flags.draw)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(flags.device, Limits(time_s=flags.time_s), Path(folder) / "judge")
        try:
            return compare_all(judge, flags.device, kernels, flags.time_s, flags.seconds)
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4
        finally:
            judge.close()


def compare_all(
    judge: Judge, device: DeviceKind, kernels: list[HonestKernel], time_s: float, seconds: float
) -> int:
    """Print a row for each kernel that begins in time, and how far off the judge is."""
    began = time.monotonic()
    print(f"{machine()}; {len(kernels)} kernels")
    print(
        f"{'kernel':26} {'judged µs':>10} {'clock µs':>10} {'off %':>7}  {'95 %':15} "
        f"{'ratio':>6}  95 %"
    )
    deviations: list[Deviation] = []
    failed = 0
    with suppress(KeyboardInterrupt):  # what there is until then is summed up
        for kernel in kernels:
            if time.monotonic() - began >= seconds:
                break
            deviation = compared(judge, device, kernel, time_s)
            failed += deviation is None
            deviations += [] if deviation is None else [deviation]
    left = len(kernels) - len(deviations) - failed
    spent_s = time.monotonic() - began
    print(f"{summary(deviations)}; {failed} not timed, {left} not begun in time; {spent_s:.0f} s")
    sizes = [abs(each.share) for each in deviations] or [math.inf]
    is_off = any(not each.is_within for each in deviations)
    return int(failed > 0 or median(sizes) > MEDIAN_LIMIT or is_off)


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
    low, high = timing_statistics.median_interval(shares) or (-math.inf, math.inf)
    clock_us = median(clocked for _judged, clocked in pairs)
    return Deviation(clock_us=clock_us, share=median(shares), low=low, high=high)


def compared(
    judge: Judge, device: DeviceKind, kernel: HonestKernel, time_s: float
) -> Deviation | None:
    """Print a kernel's row; return how far off the judge is; None: it was not timed."""
    started = time.monotonic()
    with (
        ordinary_clock(kernel, device) as clock,
        timed_by_both(clock, sampled_s(kernel, clock, time_s)) as pairs,
    ):
        task = Task(name=kernel.name, source=kernel.task, device=device)
        verdict = judge.judge(task, kernel.candidate)
    if not isinstance(verdict, Verdict) or not verdict.is_correct or not pairs:
        print(f"{kernel.name:26} !! {verdict}"[:600], flush=True)
        return None
    deviation = deviation_of(pairs)
    low, high = verdict.speedup_ci95 or (0.0, 0.0)
    print(
        f"{kernel.name:26} {verdict.median_us or 0.0:10.2f} "
        f"{deviation.clock_us:10.2f} {deviation.share:+7.2%}"
        f"  {f'{deviation.low:+.1%} {deviation.high:+.1%}':15}"
        f" {verdict.speedup or 0:6.3f}  {low:.3f}-{high:.3f}  {len(pairs)} groups, timing "
        f"{verdict.seconds.time:.1f} s of {time.monotonic() - started:.1f} s; "
        f"{(verdict.profile or {}).get('timing', '')}",
        flush=True,
    )
    return deviation


def summary(deviations: Sequence[Deviation]) -> str:
    """Return how far off the judge is, over all kernels."""
    if not deviations:
        return "no kernel"
    shares = [each.share for each in deviations]
    beyond = [each for each in deviations if not each.is_within]
    return (
        f"{len(deviations)} kernels: median deviation {median(map(abs, shares)):.2%} "
        f"(signed {median(shares):+.2%}), worst {max(map(abs, shares)):.2%}, "
        f"{len(beyond)} beyond 3 % (0.5 µs of calls under 5 µs), "
        f"{sum(each.is_surely_beyond for each in beyond)} of these with their whole interval"
    )


def sampled_s(kernel: HonestKernel, clock: Clock, time_s: float) -> float:
    """Return for how many seconds a kernel is sampled: longer where passes differ, or are long."""
    is_launch = clock(None) < LAUNCH_S
    return LONGER * time_s if is_launch or kernel.gigabytes else time_s


@contextmanager
def timed_by_both(clock: Clock, time_s: float) -> Iterator[list[tuple[float, float]]]:
    """Have the ordinary clock time a pass after each group of the judge; yield the pairs of µs.

    A machine's speed drifts: calls that are little more than a launch took 8 to 16 µs within two
    seconds on a virtual machine.
    """
    pairs: list[tuple[float, float]] = []

    class Interleaved(PairedBenchmark):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **{**named, "time_s": time_s})

        def run(
            self, on_group: Callable[[int], None] = lambda _groups: None
        ) -> Timing | CandidateFault:
            def both(number: int) -> None:
                on_group(number)
                judged_us = mean(self.groups[-1].candidate)
                pairs.append((judged_us, clock(self.processor) * 1e6))

            return super().run(both)

    with mock.patch.object(evaluation, "PairedBenchmark", Interleaved):
        yield pairs


# --- the ordinary clock --------------------------------------------------------------------------


@contextmanager
def ordinary_clock(kernel: HonestKernel, device: DeviceKind) -> Iterator[Clock]:
    """Yield what times a call over inputs in turn, in seconds, as an honest engineer would."""
    import torch  # here: the judge's process does without it otherwise

    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        module = _imported(kernel.candidate, Path(folder))
        model = module.ModelNew(*module.get_init_inputs()).to(device)
        inputs = [_inputs(torch, module, device)]
        size = _bytes(torch, inputs) + 2 * _bytes(torch, model(*inputs[0]))
        call_s = min(_pass_s(torch, model, inputs * 3, [], device) / 3 for _pass in range(3))
        budget = HOST_BYTES if device == "cpu" else torch.cuda.mem_get_info()[0] // CARD_SHARE
        most = min(MOST_INPUTS, int(BLOCK_S[device] / call_s), int(budget // size))
        while len(inputs) < most:
            inputs.append(_inputs(torch, module, device))
        waking = inputs[: max(1, int(WAKING_S / call_s))] if device == "cuda" else []
        outputs: list[object] = []

        def clock(processor: int | None) -> float:
            with torch.no_grad(), only_on(processor):
                return _pass_s(torch, model, inputs, outputs, device, waking) / len(inputs)

        for _pass in range(WARM_UPS):
            clock(None)
        yield clock
        for held in (inputs, outputs, waking):
            held.clear()
    if device == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def only_on(processor: int | None) -> Iterator[None]:
    """Have this thread run on one processor."""
    allowed = os.sched_getaffinity(0)
    try:
        if processor is not None:
            os.sched_setaffinity(0, {processor})
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _imported(source: str, folder: Path) -> ModuleType:
    import importlib.util

    path = folder / "kernel.py"  # a file: Triton reads the source of its kernels
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernel", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _inputs(torch: Any, module: ModuleType, device: str) -> list[object]:
    with torch.device(device):
        return list(module.get_inputs())


def _bytes(torch: Any, value: object) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.nbytes)
    return sum(_bytes(torch, each) for each in value) if isinstance(value, list | tuple) else 0


def _pass_s(
    torch: Any,
    model: Any,
    inputs: list[list[object]],
    outputs: list[object],
    device: str,
    waking: Sequence[list[object]] = (),
) -> float:
    """Return the seconds of one call on each of the inputs; each output replaces its last one.

    `waking`: inputs of calls that wake a card before.  Python's garbage collector rests, as in
    `timeit`: it has much to look at in this process.
    """
    gc.disable()
    try:
        return _pass_with_events_s(torch, model, inputs, outputs, device, waking)
    finally:
        gc.enable()


def _pass_with_events_s(
    torch: Any,
    model: Any,
    inputs: list[list[object]],
    outputs: list[object],
    device: str,
    waking: Sequence[list[object]],
) -> float:
    outputs += [None] * (len(inputs) - len(outputs))
    if device == "cpu":
        began = time.perf_counter()
        for number, given in enumerate(inputs):
            outputs[number] = model(*given)
        return time.perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _event in range(2))
    torch.cuda.synchronize()
    for given in waking:
        model(*given)
    first.record()
    for number, given in enumerate(inputs):
        outputs[number] = model(*given)
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
