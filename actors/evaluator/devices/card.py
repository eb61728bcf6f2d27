"""Which device this is: asked of a child, since asking a card initialises it for good."""

from __future__ import annotations

from msgspec.structs import replace

from actors.evaluator.devices import device as devices
from actors.evaluator.devices.sensors import Sensors
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.isolation.nursery import Nursery, Unjudgeable
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.wire.referee_orders import Describe, Described, FromReferee, Unfit
from protocol.values import Device


class Card:
    """The device of one judge, asked once."""

    def __init__(self, nursery: Nursery, grounds: Grounds, scratch: Scratch) -> None:
        self._nursery = nursery
        self._grounds = grounds
        self._scratch = scratch
        self._device: Device | None = None
        self.sensors = Sensors("")

    @property
    def known(self) -> bool:
        """Whether no child needs to be asked any more."""
        return self._device is not None or self._grounds.kind == "cpu"

    @property
    def device(self) -> Device:
        """What results are measured on; raises `Unjudgeable` where there is no such device."""
        if self._device is None:
            cpu = self._grounds.kind == "cpu"
            self._device = devices.of_cpu() if cpu else self._ask()
        return self._device

    @property
    def arch(self) -> str:
        """What CUDA sources are compiled for; "" on a CPU."""
        return "" if self._grounds.kind == "cpu" else devices.arch_list(self.device)

    def _ask(self) -> Device:
        self._nursery.awake()
        folder = self._scratch.fresh("device")
        try:
            referee: Child[FromReferee] = self._nursery.spawn(
                "referee",
                self._grounds.confinement(folder, trusted=True),
                FromReferee,
                trusted=True,
            )
            try:
                answer = referee.ask(Describe(), self._grounds.limits.import_s)
            finally:
                referee.kill()
        finally:
            self._scratch.remove(folder)
        if isinstance(answer, Gone):
            raise Unjudgeable(f"the device can't be asked: {answer.said()}")
        if isinstance(answer[0], Described):
            self.sensors = Sensors(answer[0].uuid)
            device, ceiling = answer[0].device, self.sensors.ceiling()
            if not ceiling:
                return device
            # Two cards of one model are not one device when one of them is held down.
            return replace(device, fingerprint=f"{device.fingerprint}; {ceiling}")
        raise Unjudgeable(answer[0].words if isinstance(answer[0], Unfit) else "no device")
