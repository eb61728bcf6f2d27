"""The judge's figures of honest kernels beside those of an ordinary clock, in one run.

    python -m scripts.benchmarks.truth [--device cpu|cuda] [--time-s S] [NAME …]

Each kernel is judged, and then timed in this process over inputs in turn: by CUDA events on a card,
by the clock on a host, which has to be quiet.  A card rests between two passes, so that it does not
lower its clocks, and calls before the first event wake it.  Calls that are little more than a
launch depend on the processor: this process uses a quick one, as the judge does.  The exit status
is 1 if the median deviation is above 1 % or one kernel deviates by more than 3 %.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from actors.cli import OneLineParser
from actors.evaluator.devices import device as devices
from actors.evaluator.judge import Judge, JudgeUnavailableError
from actors.evaluator.timing import clock_priority
from protocol.settings import Limits
from protocol.values import DeviceKind, Task, Verdict
from scripts.benchmarks.honest_kernels import HonestKernel, honest_kernels
from scripts.benchmarks.machine_info import machine

MEDIAN_LIMIT, EACH_LIMIT = 0.01, 0.03
BLOCK_S = {"cpu": 0.02, "cuda": 0.015}  # of calls that are timed together
MOST_INPUTS = 2048
HOST_BYTES, CARD_SHARE = 1 << 25, 2  # of inputs and outputs in turn
PASSES = 9
WARM_UP_S = 0.3  # a card that was idle takes that long to its full clock
REST_S = {"cpu": 0.0, "cuda": 0.03}  # between passes
WAKING_S = 0.002  # of calls before the first event


def main(arguments: list[str]) -> int:
    """Judge and time the kernels; print the table."""
    parser = OneLineParser(prog="python -m scripts.benchmarks.truth")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.default_kind())
    parser.add_argument("--time-s", type=float, default=3.0, help="of samples a kernel (3)")
    parser.add_argument("names", nargs="*", help="only these kernels")
    flags = parser.parse_args(arguments)
    kernels = [
        kernel
        for kernel in honest_kernels(flags.device)
        if not flags.names or kernel.name in flags.names
    ]
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(flags.device, Limits(time_s=flags.time_s), Path(folder) / "judge")
        try:
            return compare_all(judge, flags.device, kernels)
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return 4
        finally:
            judge.close()


def compare_all(judge: Judge, device: DeviceKind, kernels: list[HonestKernel]) -> int:
    """Print a row for each kernel, and how far off the judge is."""
    began = time.monotonic()
    print(f"{machine()}; {len(kernels)} kernels")
    print(f"{'kernel':26} {'judged µs':>10} {'clock µs':>10} {'off %':>7}  {'ratio':>6}  95 %")
    deviations, failed = [], 0
    for kernel in kernels:
        task = Task(name=kernel.name, source=kernel.task, device=device)
        started = time.monotonic()
        verdict = judge.judge(task, kernel.candidate)
        if not isinstance(verdict, Verdict) or not verdict.is_correct or not verdict.median_us:
            failed += 1
            print(f"{kernel.name:26} !! {verdict}"[:600], flush=True)
            continue
        seconds = verdict.seconds
        clock_us = clocked_us(kernel, device)
        deviations.append(verdict.median_us / clock_us - 1)
        low, high = verdict.speedup_ci95 or (0.0, 0.0)
        print(
            f"{kernel.name:26} {verdict.median_us:10.2f} {clock_us:10.2f} {deviations[-1]:+7.2%}"
            f"  {verdict.speedup or 0:6.3f}  {low:.3f}-{high:.3f}  check {seconds.check:.1f} s, "
            f"timing {seconds.time:.1f} s of {time.monotonic() - started:.1f} s; "
            f"{(verdict.profile or {}).get('timing', '')}",
            flush=True,
        )
    if not deviations:
        return 1
    sizes = [abs(each) for each in deviations]
    print(
        f"{len(deviations)} kernels, {failed} not timed: median deviation {median(sizes):.2%} "
        f"(signed {median(deviations):+.2%}), worst {max(sizes):.2%}, "
        f"{sum(size > EACH_LIMIT for size in sizes)} beyond 3 %; "
        f"{time.monotonic() - began:.0f} s"
    )
    return int(failed > 0 or median(sizes) > MEDIAN_LIMIT or max(sizes) > EACH_LIMIT)


# --- the ordinary clock --------------------------------------------------------------------------


def clocked_us(kernel: HonestKernel, device: DeviceKind) -> float:
    """Return what a call takes over inputs in turn, as an honest engineer would time it."""
    import torch  # here: the judge's process does without it otherwise

    quick = clock_priority.quickest_processor() if device == "cuda" else None
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, only_on(quick):
        module = _imported(kernel.candidate, Path(folder))
        model = module.ModelNew(*module.get_init_inputs()).to(device)
        first = _inputs(torch, module, device)
        model(*first)
        call_s = _pass_s(torch, model, [first] * 3, [], device) / 3
        wanted = min(MOST_INPUTS, max(1, int(BLOCK_S[device] / call_s)))
        size = _bytes(torch, first) + 2 * _bytes(torch, model(*first))
        budget = HOST_BYTES if device == "cpu" else torch.cuda.mem_get_info()[0] // CARD_SHARE
        inputs = [first]
        while len(inputs) < min(wanted, max(1, int(budget // size))):
            inputs.append(_inputs(torch, module, device))
        outputs: list[object] = []
        until = time.monotonic() + WARM_UP_S
        while time.monotonic() < until:
            _pass_s(torch, model, inputs, outputs, device)
        passes = []
        waking = inputs[: max(1, int(WAKING_S / call_s))]
        for _pass in range(PASSES):
            time.sleep(REST_S[device])
            passes.append(_pass_s(torch, model, inputs, outputs, device, waking))
        del inputs, outputs, first, model
    if device == "cuda":
        torch.cuda.empty_cache()
    return median(passes) / min(wanted, max(1, int(budget // size))) * 1e6


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

    `waking`: inputs of calls that wake a card before.
    """
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
