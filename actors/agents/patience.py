"""Waiting for a model: the one place where a failed call is tried again.

A rate limit, an overloaded or broken server and a lost connection pass; the attempt waits for as
long as it takes and says so.  It gives up only when the lease is gone, or when the failure is of
a kind that does not pass by itself.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable

from actors.agents.models.model import Busy, Denied, Model, Paid
from actors.agents.request import Request
from actors.port import Port
from protocol.values import Call, request_key

FIRST_S = 1.0
LONGEST_S = 60.0  # between two tries of our own accord
WISHED_S = 3600.0  # at most so long where the server asks for it: a quota's hour, and no wrong date
MOST_LOST = 10  # calls for one answer that broke off after they began: each may have cost money
GLANCE_S = 0.2  # how often a waiting call looks whether it is still wanted


class Withdrawn(Exception):
    """The lease is gone, or the actor drains, and no call is under way."""


class Patience:
    """Asks until there is an answer."""

    def __init__(
        self,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rng = rng or secrets.SystemRandom()
        self._clock = clock
        self._sleep = sleep

    def reply(self, model: Model, request: Request, port: Port) -> Call:
        """Return the model's answer; raise `Withdrawn`, or the model's `Denied` or `TooLong`."""
        failures = garbled = lost = 0
        reserved = False
        while True:
            if port.revoked():
                raise Withdrawn
            if not reserved and isinstance(model, Paid):
                self._reserve(model, request, port)
                reserved = True
            port.doing(f"asking {model.name} ({request.work.lease.work})")
            try:
                return model.reply(request)
            except Busy as busy:
                failures += 1
                if busy.paid and reserved:
                    # It counts as spent; the next try needs money of its own.
                    port.call_lost(busy.heard)
                    reserved = False
                    lost += 1
                garbled = 0 if busy.tries is None else garbled + 1
                if busy.tries is not None and garbled >= busy.tries:
                    raise Denied(f"{busy} ({garbled} times in a row)") from busy
                if lost >= MOST_LOST:
                    raise Denied(
                        f"{lost} calls for one answer broke off after they had begun ({busy}), and"
                        " may have been paid for: see what cuts them, then resume"
                    ) from busy
                self._wait(busy, failures, port)

    def _reserve(self, model: Paid, request: Request, port: Port) -> None:
        usd = model.most_usd(request)
        price = "" if usd is None else f" of up to {usd:.2f} USD"
        port.doing(f"waiting for leave to make a call{price} ({request.work.lease.work})")
        if not port.reserve(model.name, request_key(request.render()), usd):
            raise Withdrawn

    def _wait(self, busy: Busy, failures: int, port: Port) -> None:
        # Full waits would send all agents back at the same moment: half of it is chance.
        backoff = FIRST_S * 2 ** min(failures - 1, 10) * (0.5 + self._rng.random() / 2)
        own_s, wished_s = min(LONGEST_S, backoff), min(WISHED_S, busy.after_s)
        wait_s = max(own_s, wished_s)
        whose = ", as the server asks" if wished_s > own_s else ""
        port.doing(f"waiting for the model: {busy}, next try in {wait_s:.0f} s{whose}")
        until = self._clock() + wait_s
        while (left := until - self._clock()) > 0:
            if port.revoked():
                raise Withdrawn
            self._sleep(min(GLANCE_S, left))
