"""The runner's own clock for the calls of a block, which counts for the reference alone."""

from __future__ import annotations

import time
from typing import Any

import torch

from protocol.values import DeviceKind

CYCLES_PER_S = 1.5e9  # of a card's clock, about
UNCLOCKED_SHARE = 2  # one call in so many comes before a side's own clock


class CardWaker:
    """Has the card do something for this process when a block begins, and waits at its end."""

    def __init__(self, device: DeviceKind) -> None:
        self._on_card = device == "cuda"
        self._tick: torch.Tensor | None = None

    def wake(self) -> None:
        """Return once the card has turned to this process; on a host there is nothing to do."""
        if self._on_card:
            if self._tick is None:
                self._tick = torch.zeros(1, device="cuda")
            self._tick.zero_()
            torch.cuda.synchronize()

    def await_all(self) -> float:
        """Wait until the card has done all; return the seconds once the current stream was done.

        A program that calls a module waits for that stream alone, and reads its outputs then.
        """
        if not self._on_card:
            return 0.0
        torch.cuda.current_stream().synchronize()
        began = time.perf_counter()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def await_work(self, seconds: float) -> float:
        """Have the card work for about so long on the current stream; return as `await_all`.

        All of its work is on that stream, so nothing is left.
        """
        if self._on_card:
            self.wake()
            torch.cuda._sleep(int(seconds * CYCLES_PER_S))  # type: ignore[no-untyped-call]
        return self.await_all()


class CallClock:
    """How long the calls of a block take once they go on, by this process's own clock.

    The judge's clock also sees what a block takes besides: a card that has to turn to this process
    (0.2 ms), code that the processor's caches have lost, the way of the answer.  What the reference
    says here tells the judge how much that is.  The first half of the calls is left out: calls
    that are little more than a launch are slower by a tenth until the caches have their code again.
    """

    def __init__(self, device: DeviceKind, calls: int) -> None:
        """`calls`: of the block."""
        self.first = min(max(1, calls // UNCLOCKED_SHARE), calls - 1)  # call on the clock
        self._calls = calls - self.first
        self._on_card = device == "cuda"
        self._times_s = [0.0, 0.0]
        self._events: list[Any] = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in self._times_s * self._on_card
        ]

    def begin(self) -> None:
        """Note that the calls before the first one on the clock are launched, or done on a host."""
        self._note(0)

    def end(self) -> None:
        """Note that the last call is."""
        self._note(1)

    def _note(self, number: int) -> None:
        if self._on_card:
            self._events[number].record()
        else:
            self._times_s[number] = time.perf_counter()

    def call_s(self) -> float:
        """Return the seconds of a call between both notes, once the card has done all."""
        if not self._on_card:
            return (self._times_s[1] - self._times_s[0]) / self._calls
        first, last = self._events
        return float(first.elapsed_time(last)) / 1e3 / self._calls
