"""The judge's side of a zygote: starts it, asks it for children, starts it again when it has died.

Several threads may ask for children.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, TypeVar

from actors import failpoints
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.channel import (
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedFrameError,
)
from actors.evaluator.ipc.orders import ChildRole, Confinement, Order, Ping, SpawnChild, ZygoteReady
from actors.evaluator.ipc.stage_seconds import StageSeconds
from actors.evaluator.sandbox import clock_priority, sandbox
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.work_context import WorkerUnfitError
from protocol.values import DeviceKind

T = TypeVar("T", bound=Order)

ZYGOTE_COMMAND = (sys.executable, "-m", "actors.evaluator.children.zygote")
WARM_S = 120.0  # importing torch on a busy machine
SEND_S = 10.0
SPAWN_S = 30.0
END_S = 3.0


class JudgeUnavailableError(WorkerUnfitError):
    """The machine's fault, not a candidate's: no candidate can be judged now."""


class DeviceQuarantinedError(JudgeUnavailableError):
    """The device does not work correctly; the candidate is not at fault."""


class ReferenceFailedError(JudgeUnavailableError):
    """The task's own module gave no usable answer: killed (out of memory, for example), or hung."""


class DeviceMemoryFullError(ReferenceFailedError):
    """The card's memory was full when the reference needed some."""


class ZygoteClient:
    """One warm zygote."""

    def __init__(
        self,
        device: DeviceKind,
        scratch: Path,
        output_bytes: int,
        *,
        min_level: int = 0,
        hide: tuple[str, ...] = (),
        stays_off: Set[int] = frozenset(),
    ) -> None:
        """`stays_off`: processors that neither the zygote nor its children use."""
        self._stays_off = stays_off
        self.device = device
        self.scratch = scratch
        self.is_cancelled: Callable[[], bool] = lambda: False
        self.ready = ZygoteReady()
        self.stages = StageSeconds()  # of all that is done with its children
        self.decision_program = b""  # that a referee compiled for this card, for the next ones
        self._last: ChildClient[Any] | None = None
        self._min_level = min_level  # the lowest sandbox level that is accepted
        self._hide = hide  # folders that must look empty to children
        self._output_bytes = output_bytes
        self._stderr = -1  # descriptor of the file that gets the zygote's stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[ZygoteReady] | None = None
        self._order_lock = threading.RLock()  # one order with its descriptors at a time
        self._ended = False

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process else None

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the child that was forked last was killed because memory ran out."""
        failure = self._last.failure if self._last else None
        return failure is not None and failure.how == "memory"

    def is_alive(self) -> bool:
        """Whether the zygote runs."""
        process = self._process
        return process is not None and process.poll() is None

    def ensure_started(self) -> None:
        """Start a zygote unless one runs; raise `JudgeUnavailableError` where that fails."""
        with self._order_lock:
            if self._ended:
                raise JudgeUnavailableError("the evaluator ends")
            if not self.is_alive():
                self.start()

    def spawn(
        self,
        part: ChildRole,
        confinement: Confinement,
        union: object,
        *,
        trusted: bool,
        is_cancelled: Callable[[], bool] | None = None,
        command: tuple[str, ...] = (),
        patience_s: float = SPAWN_S,
    ) -> ChildClient[T]:
        """Fork a child for the role `part`; only a trusted one may send descriptors.

        `is_cancelled` is called while the judge waits for the child; the default is the zygote's.
        """
        for _attempt in range(2):
            with self._order_lock:
                self.ensure_started()
                zygote = self.pid
                failpoints.hit("before-child")
                try:
                    child: ChildClient[T] = self._spawn(
                        part, confinement, union, is_cancelled, command, trusted=trusted
                    )
                except (ChannelClosedError, ChannelTimeoutError):
                    self.stop()  # it died between two orders
                    continue
            failpoints.hit("after-child")
            self._last = child
            # A child that has answered once works: later failures are its own.
            if not isinstance(child.ask(Ping(), patience_s), ChildFailure):
                return child
            if command:
                return child  # a tool that can't be run is not the zygote's fault
            with self._order_lock:
                if self.pid == zygote:  # another thread may have replaced it
                    self.stop()
        raise JudgeUnavailableError("the zygote dies as soon as it is started")

    def _spawn(
        self,
        part: ChildRole,
        confinement: Confinement,
        union: object,
        is_cancelled: Callable[[], bool] | None,
        command: tuple[str, ...],
        *,
        trusted: bool,
    ) -> ChildClient[T]:
        if self._channel is None:
            raise ChannelClosedError("no zygote")
        ours, theirs = socket.socketpair()
        output, output_write = os.pipe()
        status, status_write = os.pipe()
        lifeline_read, lifeline = os.pipe()
        given = (theirs.fileno(), output_write, status_write, lifeline_read)
        order = SpawnChild(part=part, device=self.device, confinement=confinement, command=command)
        try:
            self._channel.send(order, given, SEND_S)
        except (ChannelClosedError, ChannelTimeoutError):
            ours.close()
            for descriptor in (output, status, lifeline):
                os.close(descriptor)
            raise
        finally:
            theirs.close()
            for descriptor in given[1:]:
                os.close(descriptor)
        ours.setblocking(False)
        channel: Channel[T] = Channel(ours, union, descriptors=trusted)
        asked = is_cancelled or (lambda: self.is_cancelled())
        return ChildClient(
            channel, (output, status, lifeline), self._output_bytes, asked, self.stages
        )

    def start(self) -> None:
        """Start a zygote and wait until it is warm; raise `JudgeUnavailableError` when it can't."""
        self.stop()
        self.scratch.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        # Where nothing is timed on the host, its memory comes in huge pages: a module of 2.5 GB is
        # constructed in half the time.
        pages = {"THP_MEM_ALLOC_ENABLE": "1"} if self.device == "cuda" else {}
        environment = sandbox.environment(dict(os.environ), str(self.scratch), **pages)
        self._stderr = os.memfd_create("zygote")
        with clock_priority.staying_off(self._stays_off):
            self._process = subprocess.Popen(
                [*ZYGOTE_COMMAND, str(self.scratch), self.device, *self._hide],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=environment,
                cwd=self.scratch,
                start_new_session=True,
            )
        theirs.close()
        ours.setblocking(False)
        self._channel = Channel(ours, ZygoteReady)
        with self.stages.stage("zygote"):
            self.ready = self._await_ready(self._channel)
        weak = sandbox.refusal(self._min_level, self.ready.level)
        if weak:
            self.stop()
            raise JudgeUnavailableError(weak)

    def _await_ready(self, channel: Channel[ZygoteReady]) -> ZygoteReady:
        until = time.monotonic() + WARM_S
        poller = select.poll()
        poller.register(channel, select.POLLIN)
        try:
            while time.monotonic() < until:
                found = channel.next_order()
                if found is not None:
                    return found[0]
                poller.poll(1000)
                channel.read_available()
        except (ChannelClosedError, MalformedFrameError) as error:
            output = logs.one_line(self._output_text()[-300:])
            self.stop()
            raise JudgeUnavailableError(
                f"the zygote ended while it imported torch: {output}"
            ) from error
        self.stop()
        raise JudgeUnavailableError(f"importing torch took more than {WARM_S:g} s")

    def _output_text(self) -> str:
        """Return what the zygote wrote to stderr."""
        size = os.fstat(self._stderr).st_size
        return os.pread(self._stderr, size, 0).decode("utf-8", "replace")

    def stop(self) -> None:
        """End the zygote, if one runs."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            os.close(self._stderr)

    def end(self) -> None:
        """End the zygote for good; may be called from any thread.

        A zygote that another thread is starting at this moment ends with this process.
        """
        self._ended = True
        if self._order_lock.acquire(timeout=END_S):
            try:
                self.stop()
            finally:
                self._order_lock.release()
