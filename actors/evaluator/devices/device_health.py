"""Checks the device after an abnormal end: its memory is free again, a known kernel is right.

A fault nearly always ends with its own process.  Otherwise the next candidate would be blamed for
it.  So a fresh process first computes a known result.  A device that gets it wrong is quarantined:
nothing is judged on it until it gets the result right again.

Memory that is still in use after the wait is only noted: the reference's process keeps more of it
after a check than before, and another program may have taken it.  A reference that finds no room
says so itself (`DeviceMemoryFullError`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.evaluator.devices.device_info import DeviceInfo
from actors.evaluator.ipc.orders import Done
from actors.evaluator.ipc.runner_orders import CheckDevice, FromRunner
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError, ZygoteClient

DEVICE_CHECK_S = 20.0
SETTLE_S = 1.0  # for the memory of a killed process; the kernel check follows in any case
POLL_S = 0.02
SLACK_BYTES = 256 << 20  # memory that other processes may take during the wait


class DeviceHealth:
    """The health of one card, checked between candidates."""

    def __init__(
        self,
        zygote: ZygoteClient,
        confinements: ConfinementFactory,
        scratch: Scratch,
        device_info: DeviceInfo,
        log_line: Callable[[str], None],
    ) -> None:
        self._log_line = log_line
        self._zygote = zygote
        self._confinements = confinements
        self._scratch = scratch
        self._device_info = device_info
        self._memory_before: int | None = None
        self._is_quarantined = False

    def before_candidate(self) -> None:
        """Remember the memory in use; raise `DeviceQuarantinedError` while the device is faulty."""
        if self._is_quarantined:
            self._check()
        self._memory_before = self._device_info.sensors.memory_used()

    def after_abnormal_end(self) -> None:
        """Check the device after an abnormal end; raise `DeviceQuarantinedError` on a fault."""
        if self._confinements.kind == "cuda":
            self._await_memory()
            self._check()

    def _await_memory(self) -> None:
        """Wait until no more memory is in use than before the candidate, `SETTLE_S` at most."""
        if self._memory_before is None:
            return
        until = time.monotonic() + SETTLE_S
        while True:
            used = self._device_info.sensors.memory_used()
            if used is None or used <= self._memory_before + SLACK_BYTES:
                return
            if time.monotonic() > until:
                break
            time.sleep(POLL_S)
        more = (used - self._memory_before) >> 20
        self._log_line(f"{more} MiB more of the card's memory are in use than before a candidate")

    def _check(self) -> None:
        """Let a fresh process compute a known result."""
        folder = self._scratch.fresh("device-check")
        try:
            child: ChildClient[FromRunner] = self._zygote.spawn(
                "runner",
                self._confinements.confinement(folder, trusted=True),
                FromRunner,
                trusted=True,
            )
            try:
                answer = child.ask(CheckDevice(), DEVICE_CHECK_S)
            finally:
                child.kill()
        finally:
            self._scratch.remove(folder)
        if isinstance(answer, ChildFailure) or not isinstance(answer[0], Done):
            how = answer.readable() if isinstance(answer, ChildFailure) else str(answer[0])[:200]
            self._quarantine(f"a known kernel fails on it: {how}")
        self._is_quarantined = False

    def _quarantine(self, reason: str) -> None:
        self._is_quarantined = True
        raise DeviceQuarantinedError(f"the device is quarantined: {reason}")
