"""The race: reference and candidate timed in turn by the judge's own clock, outputs checked too.

Both are runners, forked from the same zygote, told the same things.  No figure comes from a child:
the clock is read here, before an order is sent and after its answer came.  Some groups get fresh
inputs in the storage that is already known and their last output is compared; which ones is drawn
from the operating system's randomness, after the block has been run.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from statistics import median

from actors.evaluator import pressure, timing
from actors.evaluator.child import Child, Gone
from actors.evaluator.orders import Bench, Feed, FromRunner, Raised
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Group, Side, Timing
from actors.evaluator.verdicts import Fault, fault_of, wrong

SLOTS = 4
SLOT_BYTES = 1 << 28  # what all slots together may take
SETTLE_S = 0.003  # OpenMP threads of the other side spin for about this long after their last call
WARM_S = 0.3
WARM_CALLS = 3
REFRESH_ONE_IN = 4
PINGS = 15


class Race:
    """One candidate against the reference."""

    def __init__(
        self, standard: Standard, candidate: Child[FromRunner], *, time_s: float, call_s: float
    ) -> None:
        self.standard = standard
        self.candidate = candidate
        self._time_s = time_s
        self._call_s = call_s  # the longest that one block may take
        self._slots = SLOTS if standard.input_bytes * SLOTS <= SLOT_BYTES else 2
        self._draws: list[int] = []
        self._overhead_s = 0.0

    def run(self, on_group: Callable[[int], None] = lambda _groups: None) -> Timing | Fault:
        """Warm up, then time groups until enough is known; the candidate's fault is a value."""
        for slot in range(self._slots):
            fault = self._refresh(slot)
            if fault is not None:
                return fault
        calls: dict[Side, int] = {}
        for side in ("reference", "candidate"):
            warmed = self._warm(side)
            if isinstance(warmed, Fault):
                return warmed
            calls[side] = warmed
        self._overhead_s = self._measure_overhead()
        return self._groups(calls, on_group)

    def _groups(self, calls: dict[Side, int], on_group: Callable[[int], None]) -> Timing | Fault:
        began = time.monotonic()
        groups: list[Group] = []
        while not timing.enough(groups, time.monotonic() - began, self._time_s):
            fresh = not groups or secrets.randbelow(REFRESH_ONE_IN) == 0
            fault = self._refresh(len(groups) % self._slots) if fresh else None
            if fault is not None:
                return fault
            group = self._group(calls)
            if isinstance(group, Fault):
                return group
            groups.append(group)
            on_group(len(groups))
            # Drawn only now: while it ran nobody could know.
            if fresh or secrets.randbelow(REFRESH_ONE_IN) == 0:
                fault = self._verify((calls["candidate"] - 1) % self._slots)
                if fault is not None:
                    return fault
        return timing.summary(groups)

    def _group(self, calls: dict[Side, int]) -> Group | Fault:
        taken: dict[Side, list[float]] = {"reference": [], "candidate": []}
        whole = waited = 0.0
        for side, _number in timing.order():
            time.sleep(SETTLE_S)
            before = pressure.waited_s()
            seconds = self._block(side, calls[side])
            if isinstance(seconds, Fault):
                return seconds
            waited += pressure.waited_s() - before
            whole += seconds
            net = max(seconds - self._overhead_s, 1e-9)
            taken[side].append(net / calls[side] * 1e6)
        return Group(
            reference=(taken["reference"][0], taken["reference"][1]),
            candidate=(taken["candidate"][0], taken["candidate"][1]),
            waiting=waited / whole,
        )

    def _block(self, side: Side, calls: int) -> float | Fault:
        """Return the seconds from the order to the answer."""
        child = self.candidate if side == "candidate" else self.standard.runner
        order = Bench(calls=calls, slots=self._slots)
        began = time.perf_counter()
        answer = child.ask(order, self._call_s)
        seconds = time.perf_counter() - began
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            if side == "reference":
                raise self.standard.failed(answer)
            return fault_of(answer, "time", self.candidate.output.text())
        return seconds

    def _warm(self, side: Side) -> int | Fault:
        """Call until warm; return the calls that make a block."""
        began = time.monotonic()
        warm_s = min(WARM_S, self._time_s / 10)
        calls, best = 1, 0.0
        for round_ in range(1000):
            seconds = self._block(side, calls)
            if isinstance(seconds, Fault):
                return seconds
            each = seconds / calls
            best = min(best, each) if round_ > 1 else each
            calls = timing.calls_a_block(best)
            if round_ + 1 >= WARM_CALLS and time.monotonic() - began >= warm_s:
                break
        return calls

    def _measure_overhead(self) -> float:
        """Return what an empty block takes, by the reference: it has no reason to lie."""
        seconds = []
        for _ping in range(PINGS):
            taken = self._block("reference", 0)
            if isinstance(taken, float):
                seconds.append(taken)
        return median(seconds)

    def _refresh(self, slot: int) -> Fault | None:
        """Put fresh inputs into a slot of both sides, off the clock."""
        draw = self.standard.draw()
        order = Feed(slot=slot, inputs=draw.inputs)
        try:
            for child in (self.standard.runner, self.candidate):
                answer = child.ask(order, self._call_s, [draw.parcel])
                if isinstance(answer, Gone) or isinstance(answer[0], Raised):
                    if child is self.standard.runner:
                        raise self.standard.failed(answer)
                    return fault_of(answer, "time", self.candidate.output.text())
        finally:
            os.close(draw.parcel)
        if slot < len(self._draws):
            self.standard.forget(self._draws[slot])
            self._draws[slot] = draw.number
        else:
            self._draws.append(draw.number)
        return None

    def _verify(self, slot: int) -> Fault | None:
        """Compare the output of the last timed call with what is expected of its inputs."""
        if not self.standard.steady:
            return None
        found = self.standard.judge_output(self.candidate, "last", self._draws[slot], "time")
        if isinstance(found, Fault):
            return found
        if found.reason:
            return wrong(f"in a timed call: {found.reason}", "time", found.max_error)
        return None

    def close(self) -> None:
        """Let the referee forget what was drawn."""
        for draw in self._draws:
            self.standard.forget(draw)
        self._draws = []
