"""Retries: the one place where a failed call to a model is repeated.

A rate limit, an overloaded or broken server and a lost connection pass.  The attempt waits for as
long as that takes and reports that it waits.  It gives up only when the lease is gone, or when
the failure does not pass by itself.
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
MAX_WAIT_S = 60.0  # between two tries, by our own backoff
# Where the server asks for a longer wait: up to a quota's hour, so that a wrong date does no harm.
MAX_REQUESTED_WAIT_S = 3600.0
# Calls for one answer that may break off after they began: each may have cost money.
MAX_LOST_CALLS = 10
POLL_S = 0.2  # how often a waiting call checks whether its lease still holds


class WorkCancelledError(Exception):
    """The lease is gone or the actor drains, and no call is running."""


class RetryingCaller:
    """Calls a model until it answers."""

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
                    # The lost call counts as spent; the next try needs a reservation of its own.
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
        context.set_activity(
            f"waiting for permission to make a call{price} ({request.work.lease.work})"
        )
        if not context.reserve_budget(model.name, request_key(request.render()), usd):
            raise WorkCancelledError

    def _wait(self, busy: ModelBusyError, failures: int, context: WorkContext) -> None:
        # Half of the wait is random: otherwise all agents would come back at the same moment.
        backoff = FIRST_WAIT_S * 2 ** min(failures - 1, 10) * (0.5 + self._rng.random() / 2)
        own_s = min(MAX_WAIT_S, backoff)
        requested_s = min(MAX_REQUESTED_WAIT_S, busy.retry_after_s)
        wait_s = max(own_s, requested_s)
        origin = ", as the server asks" if requested_s > own_s else ""
        context.set_activity(f"waiting for the model: {busy}, next try in {wait_s:.0f} s{origin}")
        until = self._clock() + wait_s
        while (left := until - self._clock()) > 0:
            if context.is_revoked():
                raise WorkCancelledError
            self._sleep(min(POLL_S, left))
