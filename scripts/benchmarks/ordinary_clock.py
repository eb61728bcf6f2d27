"""An ordinary clock: calls over inputs in turn, in a process that does nothing else.

`OrdinaryClock` starts the process (this file) and asks it.  It times as the author of a kernel
would: by CUDA events on a card, by the clock on a host.  It shares nothing with the judge.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

BLOCK_S = 0.02  # of calls that are timed together
MOST_INPUTS = 2048
HOST_BYTES, CARD_SHARE = 1 << 25, 8  # of inputs and outputs in turn
WARM_UPS = 3
WAKING_S = 0.002  # of calls before the first event, after which a card has no pause


class ClockError(Exception):
    """The ordinary clock can't time a kernel: one line."""


class OrdinaryClock:
    """The client of the process, which times one kernel after the other."""

    def __init__(self, device: str) -> None:
        command = [sys.executable, "-m", "scripts.benchmarks.ordinary_clock", device]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._unanswered = 0  # orders

    def __enter__(self) -> OrdinaryClock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def build(self, candidates: Sequence[str]) -> None:
        """Have what candidates compile built, all at once, for later."""
        self._send({"builds": list(candidates)})

    @contextmanager
    def holding(self, candidate: str) -> Iterator[None]:
        """Have the process prepare a candidate and its inputs meanwhile; raise `ClockError`."""
        self._send({"source": candidate})
        try:
            yield
        finally:
            self._send({"release": True})

    def wait(self) -> None:
        """Wait until what was ordered is done; raise `ClockError` if it failed."""
        while self._unanswered:
            self._receive()

    def call_s(self, processor: int | None) -> float:
        """Return the seconds of a call, launched by one processor (None: any)."""
        self.wait()
        self._send({"processor": processor})
        return self._receive()

    def _send(self, order: dict[str, object]) -> None:
        if self._process.stdin is None:
            raise ClockError("the process has no pipes")
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ClockError(f"the ordinary clock's process is gone ({error})") from error
        self._unanswered += 1

    def _receive(self) -> float:
        self._unanswered -= 1
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise ClockError("the ordinary clock's process is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise ClockError(str(answer["error"]))
        return float(answer["call_s"])


# --- in the process ------------------------------------------------------------------------------


class TimedKernel:
    """A candidate, inputs for its calls in turn, and their outputs."""

    def __init__(self, torch: Any, source: str, device: str, folder: Path) -> None:
        self._torch = torch
        self._device = device
        module = imported(source, folder)
        self._model = module.ModelNew(*module.get_init_inputs()).to(device)
        self._inputs = [self._drawn(module)]
        self._outputs: list[object] = [None]
        size = self._bytes(self._inputs) + 2 * self._bytes(self._model(*self._inputs[0]))
        call_s = min(self._pass_s() for _pass in range(WARM_UPS))
        budget = HOST_BYTES if device == "cpu" else torch.cuda.mem_get_info()[0] // CARD_SHARE
        most = min(MOST_INPUTS, int(BLOCK_S / call_s), int(budget // size))
        self._inputs += [self._drawn(module) for _input in range(most - 1)]
        self._outputs = [None] * len(self._inputs)
        if device == "cuda":
            self._waking = self._inputs[: max(1, int(WAKING_S / call_s))]
        for _pass in range(WARM_UPS):
            self._pass_s()

    _waking: Sequence[list[object]] = ()

    def call_s(self) -> float:
        """Return the seconds of a call: one on each of the inputs."""
        gc.disable()  # it rests, as in `timeit`
        try:
            return self._pass_s()
        finally:
            gc.enable()

    def _pass_s(self) -> float:
        model, outputs, turns = self._model, self._outputs, list(enumerate(self._inputs))
        if self._device == "cpu":
            began = time.perf_counter()
            for slot, given in turns:
                outputs[slot] = model(*given)
            return (time.perf_counter() - began) / len(turns)
        cuda = self._torch.cuda
        first, last = (cuda.Event(enable_timing=True) for _event in range(2))
        cuda.synchronize()
        for slot, given in enumerate(self._waking):
            outputs[slot] = model(*given)
        first.record()
        for slot, given in turns:
            outputs[slot] = model(*given)  # in place of the last one
        last.record()
        cuda.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / len(turns)

    def _drawn(self, module: ModuleType) -> list[object]:
        with self._torch.device(self._device):
            return list(module.get_inputs())

    def _bytes(self, value: object) -> int:
        if isinstance(value, self._torch.Tensor):
            return int(value.nbytes)
        return sum(map(self._bytes, value)) if isinstance(value, list | tuple) else 0


def imported(source: str, folder: Path) -> ModuleType:
    """Import a candidate from a file, since Triton reads the source of its kernels."""
    path = folder / "kernel.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernel", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_all(sources: Sequence[str], folder: Path) -> None:
    """Import candidates side by side: torch keeps what they have built."""
    with ThreadPoolExecutor() as pool:
        for number, source in enumerate(sources):
            place = folder / str(number)
            place.mkdir()
            pool.submit(imported, source, place)


def main(arguments: list[str]) -> int:
    """Answer orders, one a line, until there are no more."""
    (device,) = arguments
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints is not an answer
    import torch  # here: the client does without it

    torch.set_grad_enabled(False)
    allowed = os.sched_getaffinity(0)
    held: list[TimedKernel] = []
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            order = json.loads(line)
            answer: dict[str, object] = {"call_s": 0.0}
            try:
                if "builds" in order:
                    build_all(order["builds"], Path(folder))
                elif "processor" in order:
                    os.sched_setaffinity(0, {order["processor"]} - {None} or allowed)
                    answer = {"call_s": held[0].call_s()}
                else:
                    held.clear()
                    if device == "cuda":
                        torch.cuda.empty_cache()
                if "source" in order:
                    held.append(TimedKernel(torch, order["source"], device, Path(folder)))
            # Whatever a kernel raises is told to the client.
            except Exception as error:  # noqa: BLE001
                answer = {"error": f"{type(error).__name__}: {error}"[:500]}
            finally:
                os.sched_setaffinity(0, allowed)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
