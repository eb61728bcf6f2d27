"""Identifies the judge's device.  A child asks a card, because asking initialises CUDA for good."""

from __future__ import annotations

from msgspec.structs import replace

from actors.evaluator.devices import device as devices
from actors.evaluator.devices.sensors import GpuSensors
from actors.evaluator.ipc.referee_orders import (
    DescribeDevice,
    DeviceDescribed,
    FromReferee,
    TaskUnsuitable,
)
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError, ZygoteClient
from protocol.values import Device


class DeviceInfo:
    """The device of one judge, read once."""

    def __init__(
        self, zygote: ZygoteClient, confinements: ConfinementFactory, scratch: Scratch
    ) -> None:
        self._zygote = zygote
        self._confinements = confinements
        self._scratch = scratch
        self._device: Device | None = None
        self.sensors = GpuSensors("")

    @property
    def is_known(self) -> bool:
        """Whether the device is known without another child."""
        return self._device is not None or self._confinements.kind == "cpu"

    @property
    def device(self) -> Device:
        """The device that results are measured on; raises `JudgeUnavailableError` without one."""
        if self._device is None:
            cpu = self._confinements.kind == "cpu"
            self._device = devices.cpu_device() if cpu else self._ask()
        return self._device

    @property
    def arch(self) -> str:
        """The architecture that CUDA sources are compiled for; "" on a CPU."""
        return "" if self._confinements.kind == "cpu" else devices.arch_list(self.device)

    def _ask(self) -> Device:
        self._zygote.ensure_started()
        folder = self._scratch.fresh("device")
        try:
            referee: ChildClient[FromReferee] = self._zygote.spawn(
                "referee",
                self._confinements.confinement(folder, trusted=True),
                FromReferee,
                trusted=True,
            )
            try:
                answer = referee.ask(DescribeDevice(), self._confinements.limits.import_s)
            finally:
                referee.kill()
        finally:
            self._scratch.remove(folder)
        if isinstance(answer, ChildFailure):
            raise JudgeUnavailableError(f"the device can't be asked: {answer.readable()}")
        if isinstance(answer[0], DeviceDescribed):
            self.sensors = GpuSensors(answer[0].uuid)
            device, limits = answer[0].device, self.sensors.limits_text()
            if not limits:
                return device
            # Cards of one model are different devices when the clock of one of them is limited.
            return replace(device, fingerprint=f"{device.fingerprint}; {limits}")
        raise JudgeUnavailableError(
            answer[0].reason if isinstance(answer[0], TaskUnsuitable) else "no device"
        )
