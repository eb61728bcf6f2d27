"""The judge's end of one child: sends orders, waits for a limited time, reads its output, ends it.

`ask` always returns the child's answer or how the child failed (`ChildFailure`).  Nothing that a
child sends or does raises here.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from actors.evaluator.ipc.channel import (
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedFrameError,
)
from actors.evaluator.ipc.logs import BoundedOutput
from actors.evaluator.ipc.orders import ChildEnded, Exit, Order
from actors.evaluator.ipc.stage_seconds import StageSeconds
from actors.evaluator.sandbox.stall_detector import StallDetector
from protocol.values import Value

T = TypeVar("T", bound=Order)

POLL_S = 0.2  # a wait checks this often whether the evaluation is cancelled
GRACE_S = 2.0  # from a closed channel to the init process's report
REAP_S = 20.0  # an init process that takes longer than this to kill a tree counts as lost
READ_BYTES = 1 << 16
MAX_SPIN_S = 0.05  # spent awake for an answer that is timed


class ChildFailure(Value, frozen=True, kw_only=True):
    """How a child ended that gives no answer any more."""

    how: Literal["exit", "signal", "crowd", "memory", "timed_out", "stalled", "garbled", "lost"]
    number: int = 0
    detail: str = ""
    seconds: float = 0.0  # the limit, where it ran out of time or stalled

    def readable(self) -> str:
        """Return how the child ended, for people."""
        match self.how:
            case "exit":
                return f"the process ended by itself with status {self.number}"
            case "signal":
                return f"killed by {signal_name(self.number)}"
            case "crowd":
                return f"more than {self.number} processes were started"
            case "memory" if not self.number:  # a reference's child has no limit of its own
                return "the machine has no memory left for it: the kernel killed it"
            case "memory":
                return f"its processes took more than {self.number} MiB of memory together"
            case "timed_out":
                return f"no answer within {self.seconds:g} s"
            case "stalled":
                return (
                    f"no end in sight: for {self.seconds:g} s it took no new memory and no other "
                    "process of it worked, so it prepared nothing"
                )
            case "garbled":
                return f"its channel was written to or closed ({self.detail})"
            case _:
                return "the process that watches it was killed"


class EvaluationCancelledError(Exception):
    """The result is not wanted any more: the lease is gone, or the actor drains."""


class ChildClient(Generic[T]):
    """One child, alive until it is dismissed or killed."""

    def __init__(
        self,
        channel: Channel[T],
        descriptors: tuple[int, int, int],
        output_bytes: int,
        is_cancelled: Callable[[], bool],
        stages: StageSeconds,
    ) -> None:
        """`stages`: what is waited for an answer is counted there."""
        self.channel = channel
        self._stages = stages
        self._asked = ""  # the kind of the last order
        self.output = BoundedOutput(output_bytes)
        self.failure: ChildFailure | None = None
        self.peak_mib = 0
        self.stall_detector: StallDetector | None = None  # of a candidate that may prepare things
        self._pipe, self._status, self._lifeline = descriptors
        self._is_cancelled = is_cancelled
        self._poller = select.poll()
        for source in (channel.fileno(), self._pipe, self._status):
            self._poller.register(source, select.POLLIN)
        self._ended: ChildEnded | None = None
        self._is_gone = False
        self._open_pipe = True

    def ask(
        self,
        order: Order,
        seconds: float,
        carried: Sequence[int] = (),
        *,
        spin_after_s: float | None = None,
    ) -> tuple[T, list[int]] | ChildFailure:
        """Send `order` and return the answer with its descriptors, or how the child failed.

        `spin_after_s`: sleep for so long, then stay awake for the answer, because the time to wake
        up would count as the child's.  The spin is kept short: it may take half a core away from
        the child.
        """
        return self.send_order(order, seconds, carried) or self.receive_answer(
            seconds, spin_after_s=spin_after_s
        )

    def send_order(
        self, order: Order, seconds: float, carried: Sequence[int] = ()
    ) -> ChildFailure | None:
        """Send an order without waiting for its answer; return how the child failed, if it did."""
        if self.failure is not None:
            return self.failure
        try:
            if self.channel.has_pending():
                raise MalformedFrameError("it answered before it was asked")
            self._asked = type(order).__name__
            self.channel.send(order, carried, seconds)
        except (ChannelTimeoutError, ChannelClosedError, MalformedFrameError) as error:
            return self._failed(error, seconds)
        return None

    def receive_answer(
        self, seconds: float, *, spin_after_s: float | None = None
    ) -> tuple[T, list[int]] | ChildFailure:
        """Return the answer to the last order, with its descriptors, or how the child failed."""
        if self.failure is not None:
            return self.failure
        with self._stages.waiting(self._asked):
            return self._receive(seconds, spin_after_s)

    def _receive(
        self, seconds: float, spin_after_s: float | None
    ) -> tuple[T, list[int]] | ChildFailure:
        until = time.monotonic() + seconds
        if self.stall_detector is not None:
            self.stall_detector.begin(time.monotonic())
        try:
            if spin_after_s is not None:
                self._spin(spin_after_s)
            while True:
                found = self.channel.next_order()
                if found is not None:
                    return found
                stalls = self.stall_detector
                if stalls is not None and stalls.is_stalled(time.monotonic()):
                    return self._finish(ChildFailure(how="stalled", seconds=stalls.limit_s))
                if not self._wait(until):
                    return self._finish(ChildFailure(how="timed_out", seconds=seconds))
        except (ChannelTimeoutError, ChannelClosedError, MalformedFrameError) as error:
            return self._failed(error, seconds)

    def _failed(
        self, error: ChannelTimeoutError | ChannelClosedError | MalformedFrameError, seconds: float
    ) -> ChildFailure:
        if isinstance(error, ChannelTimeoutError):
            return self._finish(ChildFailure(how="timed_out", seconds=seconds))
        if isinstance(error, ChannelClosedError):
            return self._ended_by_itself(str(error))
        return self._finish(ChildFailure(how="garbled", detail=str(error)))

    def _wait(self, until: float) -> bool:
        """Wait for the next event and handle it; return False when the time is over."""
        left = until - time.monotonic()
        if left <= 0:
            return False
        ready = dict(self._poller.poll(min(left, POLL_S) * 1000))
        if self._pipe in ready:
            self._read_output()
        if self.channel.fileno() in ready:
            self.channel.read_available()
        elif self._status in ready:
            raise ChannelClosedError("the child ended")
        if self._is_cancelled():
            self.kill()
            raise EvaluationCancelledError
        return True

    def _spin(self, after_s: float) -> None:
        """Return when the child has sent something, or after `MAX_SPIN_S`."""
        if self._poller.poll(after_s * 1000):
            return
        until = time.perf_counter() + MAX_SPIN_S
        while time.perf_counter() < until:
            if self._poller.poll(0):
                return

    def _read_output(self) -> None:
        data = os.read(self._pipe, READ_BYTES)
        if data:
            self.output.append(data)
        else:
            self._poller.unregister(self._pipe)
            self._open_pipe = False

    def _ended_by_itself(self, reason: str) -> ChildFailure:
        ended = self._await_end(GRACE_S)
        if ended is None:  # it lives and has closed the channel
            return self._finish(ChildFailure(how="garbled", detail=reason))
        self._finish(ChildFailure(how="lost"))
        self.failure = _failure_of(ended)
        return self.failure

    def _finish(self, failure: ChildFailure) -> ChildFailure:
        """Kill the child's tree and remember how the child failed."""
        self.kill()
        self.failure = failure
        return failure

    def dismiss(self, seconds: float) -> ChildFailure:
        """Let the child end in the ordinary way; return how it ended."""
        answer = self.ask(Exit(), seconds)
        if isinstance(answer, ChildFailure):
            return answer
        ended = self._await_end(seconds)
        if ended is None:
            return self._finish(ChildFailure(how="timed_out", seconds=seconds))
        self._finish(ChildFailure(how="lost"))
        self.failure = _failure_of(ended)
        return self.failure

    def _await_end(self, seconds: float) -> ChildEnded | None:
        """Wait for the init process's report; None when it does not come in time."""
        until = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._status, select.POLLIN)
        while self._ended is None:
            if self._open_pipe:
                poller.register(self._pipe, select.POLLIN)
            left = until - time.monotonic()
            if left <= 0:
                return None
            ready = dict(poller.poll(left * 1000))
            if self._pipe in ready:
                self._drain_output(poller)
            if self._status in ready:
                report = os.read(self._status, READ_BYTES)
                self._ended = (
                    msgspec.json.decode(report, type=ChildEnded)
                    if report
                    else ChildEnded(how="lost")
                )
                self.peak_mib = self._ended.peak_mib
        return self._ended

    def _drain_output(self, poller: select.poll) -> None:
        self._read_output()
        if not self._open_pipe:
            poller.unregister(self._pipe)

    def close_lifeline(self) -> None:
        """Have the tree killed, without waiting for that: `kill` follows."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def kill(self) -> None:
        """Close the lifeline and wait until the whole tree is gone; may be called again."""
        if self._is_gone:
            return
        self._is_gone = True
        self.close_lifeline()
        self._await_end(REAP_S)
        if self._open_pipe:
            os.set_blocking(self._pipe, False)
            self._read_rest()
        self.channel.close()
        os.close(self._pipe)
        os.close(self._status)
        if self.failure is None:
            self.failure = ChildFailure(how="lost")

    def _read_rest(self) -> None:
        try:
            while data := os.read(self._pipe, READ_BYTES):
                self.output.append(data)
        except BlockingIOError:
            return


def _failure_of(ended: ChildEnded) -> ChildFailure:
    how = "lost" if ended.how == "killed" else ended.how
    return ChildFailure(how=how, number=ended.number)


def signal_name(number: int) -> str:
    """Return "SIGSEGV" for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
