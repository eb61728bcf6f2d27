"""What counts against a piece of work: evaluators lost while it ran, tries that failed.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors.coordinator.grants import Ended, Grant

TRIES = 2  # times that the task's own module failed under it, and it is not leased again
PARDONS = 3  # of one piece of work: it may be what silences them
LOSSES = 2  # evaluators lost while it ran, and a candidate is never leased again
CUTS = 5  # whole machines that fell away while it ran: nobody's doing; more of them may be


class Charges:
    """The charges of all work that is under way."""

    def __init__(self) -> None:
        self._losses: dict[str, int] = {}
        self._blamed: dict[str, list[Grant]] = {}  # silent incarnation -> leases that were charged
        self._pardons: Counter[str] = Counter()  # work -> charges taken back
        self._tried: Counter[str] = Counter()  # work -> how often it could not be done
        self._cuts: Counter[str] = Counter()  # work -> machines that fell away under it

    def restore(self, losses: Mapping[str, int], cuts: Mapping[str, int]) -> None:
        """Take up stored losses of evaluators, and of whole machines."""
        self._losses = dict(losses)
        self._cuts.update(cuts)

    def lost(self, work: str) -> None:
        """Charge an evaluator's loss."""
        self._losses[work] = self._losses.get(work, 0) + 1

    def cut(self, work: str) -> bool:
        """Note that a whole machine fell away under it; whether that is to be charged."""
        self._cuts[work] += 1
        return self._cuts[work] > CUTS

    def tried(self, work: str) -> None:
        """Charge a try that could not be finished."""
        self._tried[work] += 1

    def exhausted(self, work: str) -> bool:
        """Whether it must not be leased again; its charges are forgotten then."""
        if self._losses.get(work, 0) < LOSSES and self._tried[work] < TRIES:
            return False
        self._losses.pop(work, None)
        del self._tried[work]
        return True

    def settled(self, work: str) -> None:
        """Forget the charges of work that is done."""
        self._losses.pop(work, None)
        del self._tried[work]
        del self._pardons[work]
        del self._cuts[work]

    def blame(self, grant: Grant) -> None:
        """Remember that a silent peer's lease was charged: it may only have been cut off."""
        self._blamed.setdefault(grant.incarnation, []).append(grant)

    def gone(self, incarnation: str) -> None:
        """Keep the charges of a peer for good: it is dead."""
        self._blamed.pop(incarnation, None)

    def pardon(self, incarnation: str) -> list[Ended]:
        """Take back the charges of a peer that is heard of again: it was cut off, and not lost."""
        pardoned = []
        for grant in self._blamed.pop(incarnation, []):
            if self._losses.get(grant.work) and self._pardons[grant.work] < PARDONS:
                self._pardons[grant.work] += 1
                self._losses[grant.work] -= 1
                pardoned.append(Ended(grant, "silent"))
        return pardoned

    def excuse(self, incarnation: str) -> list[Ended]:
        """Take back the charges of a silent peer whose whole machine had fallen away."""
        excused = []
        for grant in self._blamed.pop(incarnation, []):
            if self._losses.get(grant.work) and not self.cut(grant.work):
                self._losses[grant.work] -= 1
                excused.append(Ended(grant, "cut"))
        return excused
