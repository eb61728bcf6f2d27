"""Which device this is: asked of a child, since asking a card initialises it for good."""

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
    """The device of one judge, asked once."""

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
        """Whether no child needs to be asked any more."""
        return self._device is not None or self._confinements.kind == "cpu"

    @property
    def device(self) -> Device:
        """What results are measured on; raises `JudgeUnavailableError` where there is no such
        device.
        """
        if self._device is None:
            cpu = self._confinements.kind == "cpu"
            self._device = devices.cpu_device() if cpu else self._ask()
        return self._device

    @property
    def arch(self) -> str:
        """What CUDA sources are compiled for; "" on a CPU."""
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
            device, ceiling = answer[0].device, self.sensors.limits_text()
            if not ceiling:
                return device
            # Two cards of one model are not one device when one of them is held down.
            return replace(device, fingerprint=f"{device.fingerprint}; {ceiling}")
        raise JudgeUnavailableError(
            answer[0].reason if isinstance(answer[0], TaskUnsuitable) else "no device"
        )
