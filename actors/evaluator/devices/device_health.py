"""Checks the device after an abnormal end: its memory is free again, a known kernel is right.

A fault nearly always ends with its own process.  Otherwise the next candidate would be blamed for
it.  So a fresh process first computes a known result.  A device that gets it wrong is quarantined:
nothing is judged on it until it gets the result right again.
"""

from __future__ import annotations

import time

from actors.evaluator.devices.device_info import DeviceInfo
from actors.evaluator.ipc.orders import Done
from actors.evaluator.ipc.runner_orders import CheckDevice, FromRunner
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError, ZygoteClient

DEVICE_CHECK_S = 20.0
SETTLE_S = 5.0  # a driver takes back the memory of a killed process within this time
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
    ) -> None:
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
        until = time.monotonic() + SETTLE_S
        while self._memory_before is not None and time.monotonic() < until:
            used = self._device_info.sensors.memory_used()
            if used is None or used <= self._memory_before + SLACK_BYTES:
                return
            time.sleep(POLL_S)
        if self._memory_before is not None:
            self._quarantine("memory of an ended candidate was not given back")

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
