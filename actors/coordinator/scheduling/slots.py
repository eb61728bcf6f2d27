"""Who sits where, and who of them is not heard of.  Pure.

A slot is a supervised place: its supervisor starts one process there at a time, so whoever says
Hello from it proves the former ones dead.
"""

from __future__ import annotations

from collections import defaultdict

from actors.coordinator.scheduling.peer_identity import machine_of
from actors.coordinator.scheduling.workers import Peer


class SlotTable:
    """The incarnations of all slots, as far as none of them is known to be dead."""

    def __init__(self, *, lease_s: float) -> None:
        self.silent: dict[str, Peer] = {}  # not heard of for a lease's time, and not known dead
        self._lease_s = lease_s
        self._expected: dict[str, Peer] = {}  # known to an earlier coordinator, not heard of yet
        self._incarnations: defaultdict[str, set[str]] = defaultdict(set)  # slot -> incarnations

    def add(self, slot: str, incarnation: str) -> None:
        """Note that an earlier coordinator knew somebody there."""
        self._incarnations[slot].add(incarnation)

    def expect(self, peer: Peer) -> None:
        """Give somebody whom an earlier coordinator knew a lease's time to be heard of."""
        self._expected[peer.incarnation] = peer
        self.add(peer.slot, peer.incarnation)

    def other_incarnations(self, slot: str, incarnation: str) -> list[str]:
        """Return who else sat there."""
        return sorted(self._incarnations[slot] - {incarnation})

    def assign(self, slot: str, incarnation: str) -> None:
        """Give a slot to an incarnation: nobody else sits there any more, and it is heard of."""
        self._incarnations[slot] = {incarnation}
        self.mark_heard(incarnation)

    def vacate_machine(self, machine: str) -> list[str]:
        """Empty all slots of a machine; return who sat there."""
        slots = [slot for slot in self._incarnations if machine_of(slot) == machine]
        return sorted(name for slot in slots for name in self._incarnations.pop(slot))

    def mark_heard(self, incarnation: str) -> None:
        """Miss somebody no more: it was heard of, or is dead."""
        self.silent.pop(incarnation, None)
        self._expected.pop(incarnation, None)

    def remove_silent(self, peers: dict[str, Peer], now: float) -> list[Peer]:
        """Take those who fell silent out of `peers`; return them."""
        fallen = [peer for peer in peers.values() if self._is_silent(peer, now)]
        for peer in fallen:
            self.silent[peer.incarnation] = peers.pop(peer.incarnation)
        for peer in [one for one in self._expected.values() if self._is_silent(one, now)]:
            self.silent[peer.incarnation] = self._expected.pop(peer.incarnation)
        return fallen

    def _is_silent(self, peer: Peer, now: float) -> bool:
        return peer.last_heard + self._lease_s <= now
