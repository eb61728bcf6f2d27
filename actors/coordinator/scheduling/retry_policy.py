"""What counts against a piece of work: evaluators lost while it ran, tries that failed.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors.coordinator.scheduling.granted_leases import GrantedLease, LeaseEnd

MAX_FAILED_TRIES = 2  # times that the task's own module failed under it, and it is not leased again
MAX_REFUNDS = 3  # of one piece of work: it may be what silences them
MAX_LOSSES = 2  # evaluators lost while it ran, and a candidate is never leased again
MAX_MACHINE_LOSSES = (
    5  # whole machines that fell away while it ran: nobody's doing; more of them may be
)


class LossCounter:
    """The charges of all work that is under way."""

    def __init__(self) -> None:
        self._losses: dict[str, int] = {}
        self._charged_to_silent: dict[
            str, list[GrantedLease]
        ] = {}  # silent incarnation -> leases that were charged
        self._refunds: Counter[str] = Counter()  # work -> charges taken back
        self._failed_tries: Counter[str] = Counter()  # work -> how often it could not be done
        self._machine_losses: Counter[str] = Counter()  # work -> machines that fell away under it

    def restore(self, losses: Mapping[str, int], cuts: Mapping[str, int]) -> None:
        """Take up stored losses of evaluators, and of whole machines."""
        self._losses = dict(losses)
        self._machine_losses.update(cuts)

    def charge_loss(self, work: str) -> None:
        """Charge an evaluator's loss."""
        self._losses[work] = self._losses.get(work, 0) + 1

    def charge_machine_loss(self, work: str) -> bool:
        """Note that a whole machine fell away under it; whether that is to be charged."""
        self._machine_losses[work] += 1
        return self._machine_losses[work] > MAX_MACHINE_LOSSES

    def charge_failed_try(self, work: str) -> None:
        """Charge a try that could not be finished."""
        self._failed_tries[work] += 1

    def is_exhausted(self, work: str) -> bool:
        """Whether it must not be leased again; its charges are forgotten then."""
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
        """Remember that a silent peer's lease was charged: it may only have been cut off."""
        self._charged_to_silent.setdefault(granted.incarnation, []).append(granted)

    def confirm_loss(self, incarnation: str) -> None:
        """Keep the charges of a peer for good: it is dead."""
        self._charged_to_silent.pop(incarnation, None)

    def refund_reconnected(self, incarnation: str) -> list[LeaseEnd]:
        """Take back the charges of a peer that is heard of again: it was cut off, and not lost."""
        refunded = []
        for granted in self._charged_to_silent.pop(incarnation, []):
            if self._losses.get(granted.work) and self._refunds[granted.work] < MAX_REFUNDS:
                self._refunds[granted.work] += 1
                self._losses[granted.work] -= 1
                refunded.append(LeaseEnd(granted, "silent"))
        return refunded

    def refund_machine_loss(self, incarnation: str) -> list[LeaseEnd]:
        """Take back the charges of a silent peer whose whole machine had fallen away."""
        refunded = []
        for granted in self._charged_to_silent.pop(incarnation, []):
            if self._losses.get(granted.work) and not self.charge_machine_loss(granted.work):
                self._losses[granted.work] -= 1
                refunded.append(LeaseEnd(granted, "cut"))
        return refunded
