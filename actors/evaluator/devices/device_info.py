"""Identifies the judge's device and its rates.

A child asks a card, because asking initialises CUDA for good.
"""

from __future__ import annotations

import os
import time

from msgspec.structs import replace

from actors.evaluator.devices import device_description as devices
from actors.evaluator.devices.rates_cache import RatesCache, has_possible_rates, rates_folder
from actors.evaluator.devices.sensors import GpuSensors
from actors.evaluator.ipc.orders import Order
from actors.evaluator.ipc.referee_orders import (
    DescribeDevice,
    DeviceDescribed,
    FromReferee,
    MeasureRates,
    RatesMeasured,
    TaskUnsuitable,
)
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError, ZygoteClient
from protocol.facts import DeviceRates
from protocol.values import Device

RATES_S = 30.0  # for the child that measures rates, its start and torch's libraries included


class DeviceInfo:
    """The device of one judge, read once."""

    def __init__(
        self, zygote: ZygoteClient, confinements: ConfinementFactory, scratch: Scratch
    ) -> None:
        self._zygote = zygote
        self._confinements = confinements
        self._scratch = scratch
        self._device: Device | None = None
        self._rates: DeviceRates | None = None
        self._rates_cache = RatesCache(rates_folder(os.environ))
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
            self._device = devices.cpu_device() if cpu else self._describe()
        return self._device

    @property
    def arch(self) -> str:
        """The architecture that CUDA sources are compiled for; "" on a CPU."""
        return "" if self._confinements.kind == "cpu" else devices.arch_list(self.device)

    @property
    def rates(self) -> DeviceRates:
        """What the device does at best: stored, or measured now.

        Empty where it can't be measured, and on a busy machine.  Measuring takes two to three
        seconds, in which nothing else is to be measured.
        """
        if self._rates is None:
            stored = self._rates_cache.find(self.device, time.time())
            self._rates = self._measure_rates() if stored is None else stored
        return self._rates

    @property
    def known_rates(self) -> DeviceRates:
        """The rates if they were measured or stored before; else empty ones."""
        if self._rates is None:
            return self._rates_cache.find(self.device, time.time()) or DeviceRates()
        return self._rates

    def _measure_rates(self) -> DeviceRates:
        answer = self._ask(MeasureRates(), RATES_S)
        if isinstance(answer, ChildFailure) or not isinstance(answer[0], RatesMeasured):
            return DeviceRates()
        if not has_possible_rates(answer[0].rates):
            return DeviceRates()
        # A rate that other programs lowered is not told: honest candidates are below its floors.
        found, now = answer[0], time.time()
        return self._rates_cache.store(self.device, found.rates, now, is_settled=found.is_settled)

    def _describe(self) -> Device:
        answer = self._ask(DescribeDevice(), self._confinements.limits.import_s)
        if isinstance(answer, ChildFailure):
            raise JudgeUnavailableError(f"the device can't be asked: {answer.readable()}")
        if isinstance(answer[0], DeviceDescribed):
            self.sensors = GpuSensors(answer[0].uuid)
            if refusal := self.sensors.compute_mode_refusal():
                raise JudgeUnavailableError(refusal)
            device, limits = answer[0].device, self.sensors.limits_text()
            if not limits:
                return device
            # Cards of one model are different devices when the clock of one of them is limited.
            return replace(device, fingerprint=f"{device.fingerprint}; {limits}")
        raise JudgeUnavailableError(
            answer[0].reason if isinstance(answer[0], TaskUnsuitable) else "no device"
        )

    def _ask(self, order: Order, limit_s: float) -> tuple[FromReferee, list[int]] | ChildFailure:
        """Ask a trusted child of its own."""
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
                return referee.ask(order, limit_s)
            finally:
                referee.kill()
        finally:
            self._scratch.remove(folder)
