"""The charges against a piece of work: evaluators lost while it ran, failed tries.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors.coordinator.scheduling.leases import GrantedLease, LeaseEnd

MAX_FAILED_TRIES = 2  # failures of the task's own module, after which work is not leased again
MAX_REFUNDS = 3  # of one piece of work: beyond that, the work may be what silences evaluators
MAX_LOSSES = 2  # evaluators lost while a candidate ran, after which it is not leased again
# Whole machines that may fall away while a candidate runs: beyond that, it may be the cause.
MAX_MACHINE_LOSSES = 5


class LossCounter:
    """The charges of all work that is under way."""

    def __init__(self) -> None:
        self._losses: dict[str, int] = {}  # work -> evaluators lost
        # Of silent incarnations: the leases that were charged.
        self._charged_to_silent: dict[str, list[GrantedLease]] = {}
        self._refunds: Counter[str] = Counter()  # work -> charges taken back
        self._failed_tries: Counter[str] = Counter()  # work -> tries without a result
        self._machine_losses: Counter[str] = Counter()  # work -> machines that fell away

    def restore(self, losses: Mapping[str, int], machine_losses: Mapping[str, int]) -> None:
        """Take up stored losses of evaluators and of whole machines, by work."""
        self._losses = dict(losses)
        self._machine_losses.update(machine_losses)

    def charge_loss(self, work: str) -> None:
        """Charge the loss of an evaluator."""
        self._losses[work] = self._losses.get(work, 0) + 1

    def charge_machine_loss(self, work: str) -> bool:
        """Count a whole machine that fell away; return whether the loss is to be charged."""
        self._machine_losses[work] += 1
        return self._machine_losses[work] > MAX_MACHINE_LOSSES

    def charge_failed_try(self, work: str) -> None:
        """Charge a try that had no result."""
        self._failed_tries[work] += 1

    def is_exhausted(self, work: str) -> bool:
        """Whether the work must not be leased again; its charges are forgotten then."""
        if self._losses.get(work, 0) < MAX_LOSSES and self._failed_tries[work] < MAX_FAILED_TRIES:
            return False
        self._losses.pop(work, None)
        del self._failed_tries[work]
        return True

    def forget_work(self, work: str) -> None:
        """Forget the charges of work that is done."""
        self._losses.pop(work, None)
        del self._failed_tries[work]
        del self._refunds[work]
        del self._machine_losses[work]

    def charge_silent(self, granted: GrantedLease) -> None:
        """Remember the charge for a silent peer's lease: the peer may only be disconnected."""
        self._charged_to_silent.setdefault(granted.incarnation, []).append(granted)

    def confirm_loss(self, incarnation: str) -> None:
        """Make the charges of a peer final: it is dead."""
        self._charged_to_silent.pop(incarnation, None)

    def refund_reconnected(self, incarnation: str) -> list[LeaseEnd]:
        """Take back the charges of a peer that has reconnected: it was not lost."""
        refunded = []
        for granted in self._charged_to_silent.pop(incarnation, []):
            if self._losses.get(granted.work) and self._refunds[granted.work] < MAX_REFUNDS:
                self._refunds[granted.work] += 1
                self._losses[granted.work] -= 1
                refunded.append(LeaseEnd(granted, "silent"))
        return refunded

    def refund_machine_loss(self, incarnation: str) -> list[LeaseEnd]:
        """Take back the charges of a silent peer whose whole machine fell away."""
        refunded = []
        for granted in self._charged_to_silent.pop(incarnation, []):
            if self._losses.get(granted.work) and not self.charge_machine_loss(granted.work):
                self._losses[granted.work] -= 1
                refunded.append(LeaseEnd(granted, "cut"))
        return refunded
