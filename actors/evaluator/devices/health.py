"""Whether the device is well after something abnormal: memory back, a known kernel right.

A fault ends with its own process, nearly always.  When it does not, whoever comes next would be
blamed for it; so a fresh process computes something known first, and a device that can't is
quarantined: nothing is judged on it until it can again.
"""

from __future__ import annotations

import time

from actors.evaluator.devices.card import Card
from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.isolation.nursery import Nursery, Unjudgeable
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.wire.orders import Done
from actors.evaluator.wire.runner_orders import Canary, FromRunner

CANARY_S = 20.0
SETTLE_S = 5.0  # a driver takes back the memory of a killed process within this time
LOOK_S = 0.02
SLACK_BYTES = 256 << 20  # of memory that may be taken meanwhile by anybody else


class Quarantined(Unjudgeable):
    """The device is not well; no candidate is to blame."""


class Health:
    """One card's, between candidates."""

    def __init__(self, nursery: Nursery, grounds: Grounds, scratch: Scratch, card: Card) -> None:
        self._nursery = nursery
        self._grounds = grounds
        self._scratch = scratch
        self._card = card
        self._taken: int | None = None
        self._sick = ""

    def before(self) -> None:
        """Note what is taken; raise `Quarantined` while a sick device does not come back."""
        if self._sick:
            self._examine()
        self._taken = self._card.sensors.memory_used()

    def after(self) -> None:
        """See that the device is well after something abnormal; raise `Quarantined` if not."""
        if self._grounds.kind == "cuda":
            self._await_memory()
            self._examine()

    def _await_memory(self) -> None:
        until = time.monotonic() + SETTLE_S
        while self._taken is not None and time.monotonic() < until:
            used = self._card.sensors.memory_used()
            if used is None or used <= self._taken + SLACK_BYTES:
                return
            time.sleep(LOOK_S)
        if self._taken is not None:
            self._fall_sick("memory of an ended candidate was not given back")

    def _examine(self) -> None:
        """Have a fresh process compute something known."""
        folder = self._scratch.fresh("canary")
        try:
            canary: Child[FromRunner] = self._nursery.spawn(
                "runner", self._grounds.confinement(folder, trusted=True), FromRunner, trusted=True
            )
            try:
                answer = canary.ask(Canary(), CANARY_S)
            finally:
                canary.kill()
        finally:
            self._scratch.remove(folder)
        if isinstance(answer, Gone) or not isinstance(answer[0], Done):
            said = answer.said() if isinstance(answer, Gone) else str(answer[0])[:200]
            self._fall_sick(f"a known kernel fails on it: {said}")
        self._sick = ""

    def _fall_sick(self, why: str) -> None:
        self._sick = why
        raise Quarantined(f"the device is quarantined: {why}")
