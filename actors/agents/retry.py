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

from actors.agents.models.model import Model, ModelBusyError, ModelDeniedError, PaidModel
from actors.agents.requests.request import Request
from actors.work_context import WorkContext
from protocol.values import Call, request_key

FIRST_WAIT_S = 1.0
MAX_WAIT_S = 60.0  # between two tries of our own accord
MAX_REQUESTED_WAIT_S = (
    3600.0  # at most so long where the server asks for it: a quota's hour, and no wrong date
)
MAX_LOST_CALLS = (
    10  # calls for one answer that broke off after they began: each may have cost money
)
POLL_S = 0.2  # how often a waiting call looks whether it is still wanted


class WorkCancelledError(Exception):
    """The lease is gone, or the actor drains, and no call is under way."""


class RetryingCaller:
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

    def call(self, model: Model, request: Request, context: WorkContext) -> Call:
        """Return the model's answer; raise `WorkCancelledError`, or the model's `ModelDeniedError`
        or `RequestTooLongError`.
        """
        failures = garbled = lost = 0
        reserved = False
        while True:
            if context.is_revoked():
                raise WorkCancelledError
            if not reserved and isinstance(model, PaidModel):
                self._reserve(model, request, context)
                reserved = True
            context.set_activity(f"asking {model.name} ({request.work.lease.work})")
            try:
                return model.reply(request)
            except ModelBusyError as busy:
                failures += 1
                if busy.may_be_paid and reserved:
                    # It counts as spent; the next try needs money of its own.
                    context.call_lost(busy.reply)
                    reserved = False
                    lost += 1
                garbled = 0 if busy.tries is None else garbled + 1
                if busy.tries is not None and garbled >= busy.tries:
                    raise ModelDeniedError(f"{busy} ({garbled} times in a row)") from busy
                if lost >= MAX_LOST_CALLS:
                    raise ModelDeniedError(
                        f"{lost} calls for one answer broke off after they had begun ({busy}), and"
                        " may have been paid for: see what cuts them, then resume"
                    ) from busy
                self._wait(busy, failures, context)

    def _reserve(self, model: PaidModel, request: Request, context: WorkContext) -> None:
        usd = model.max_cost_usd(request)
        price = "" if usd is None else f" of up to {usd:.2f} USD"
        context.set_activity(f"waiting for leave to make a call{price} ({request.work.lease.work})")
        if not context.reserve_budget(model.name, request_key(request.render()), usd):
            raise WorkCancelledError

    def _wait(self, busy: ModelBusyError, failures: int, context: WorkContext) -> None:
        # Full waits would send all agents back at the same moment: half of it is chance.
        backoff = FIRST_WAIT_S * 2 ** min(failures - 1, 10) * (0.5 + self._rng.random() / 2)
        own_s, wished_s = min(MAX_WAIT_S, backoff), min(MAX_REQUESTED_WAIT_S, busy.retry_after_s)
        wait_s = max(own_s, wished_s)
        whose = ", as the server asks" if wished_s > own_s else ""
        context.set_activity(f"waiting for the model: {busy}, next try in {wait_s:.0f} s{whose}")
        until = self._clock() + wait_s
        while (left := until - self._clock()) > 0:
            if context.is_revoked():
                raise WorkCancelledError
            self._sleep(min(POLL_S, left))
