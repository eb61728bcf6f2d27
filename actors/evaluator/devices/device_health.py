"""Whether the device is well after something abnormal: memory back, a known kernel right.

A fault ends with its own process, nearly always.  When it does not, whoever comes next would be
blamed for it; so a fresh process computes something known first, and a device that can't is
quarantined: nothing is judged on it until it can again.
"""

from __future__ import annotations

import time

from actors.evaluator.devices.card import DeviceInfo
from actors.evaluator.ipc.orders import Done
from actors.evaluator.ipc.runner_orders import CheckDevice, FromRunner
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError, ZygoteClient

DEVICE_CHECK_S = 20.0
SETTLE_S = 5.0  # a driver takes back the memory of a killed process within this time
POLL_S = 0.02
SLACK_BYTES = 256 << 20  # of memory that may be taken meanwhile by anybody else


class DeviceHealth:
    """One card's, between candidates."""

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
        self._quarantined = ""

    def before_candidate(self) -> None:
        """Note what is taken; raise `DeviceQuarantinedError` while a sick device does not come
        back.
        """
        if self._quarantined:
            self._examine()
        self._memory_before = self._device_info.sensors.memory_used()

    def after_abnormal_end(self) -> None:
        """See that the device is well after something abnormal; raise `DeviceQuarantinedError` if
        not.
        """
        if self._confinements.kind == "cuda":
            self._await_memory()
            self._examine()

    def _await_memory(self) -> None:
        until = time.monotonic() + SETTLE_S
        while self._memory_before is not None and time.monotonic() < until:
            used = self._device_info.sensors.memory_used()
            if used is None or used <= self._memory_before + SLACK_BYTES:
                return
            time.sleep(POLL_S)
        if self._memory_before is not None:
            self._quarantine("memory of an ended candidate was not given back")

    def _examine(self) -> None:
        """Have a fresh process compute something known."""
        folder = self._scratch.fresh("canary")
        try:
            canary: ChildClient[FromRunner] = self._zygote.spawn(
                "runner",
                self._confinements.confinement(folder, trusted=True),
                FromRunner,
                trusted=True,
            )
            try:
                answer = canary.ask(CheckDevice(), DEVICE_CHECK_S)
            finally:
                canary.kill()
        finally:
            self._scratch.remove(folder)
        if isinstance(answer, ChildFailure) or not isinstance(answer[0], Done):
            said = answer.readable() if isinstance(answer, ChildFailure) else str(answer[0])[:200]
            self._quarantine(f"a known kernel fails on it: {said}")
        self._quarantined = ""

    def _quarantine(self, why: str) -> None:
        self._quarantined = why
        raise DeviceQuarantinedError(f"the device is quarantined: {why}")
