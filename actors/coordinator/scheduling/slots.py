"""The incarnations of each slot, and those that are silent.  Pure.

A slot is a supervised place: its supervisor starts one process there at a time, so a Hello from a
slot proves that the slot's former incarnations are dead.
"""

from __future__ import annotations

from collections import defaultdict

from actors.coordinator.scheduling.workers import Peer, machine_of


class SlotTable:
    """The incarnations of all slots that are not known to be dead."""

    def __init__(self, *, lease_s: float) -> None:
        self.silent: dict[str, Peer] = {}  # no message for a lease's time, and not known to be dead
        self._lease_s = lease_s
        self._expected: dict[str, Peer] = {}  # known to an earlier coordinator, no message yet
        self._incarnations: defaultdict[str, set[str]] = defaultdict(set)  # slot -> incarnations
        self._replaced: dict[str, list[str]] = {}  # slot -> incarnations before its last one

    def add(self, slot: str, incarnation: str) -> None:
        """Record an incarnation that an earlier coordinator knew in that slot."""
        self._incarnations[slot].add(incarnation)

    def expect(self, peer: Peer) -> None:
        """Give a peer that an earlier coordinator knew a lease's time to send a message."""
        self._expected[peer.incarnation] = peer
        self.add(peer.slot, peer.incarnation)

    def replace_by(self, slot: str, incarnation: str) -> list[str]:
        """Return the slot's incarnations other than `incarnation`, which takes their place."""
        former = sorted(self._incarnations[slot] - {incarnation})
        if former:
            self._replaced[slot] = former
        return former

    def is_replaced(self, slot: str, incarnation: str) -> bool:
        """Whether another incarnation has taken the place of this one."""
        return incarnation in self._replaced.get(slot, ())

    def assign(self, slot: str, incarnation: str) -> None:
        """Make an incarnation the only one of its slot, and no longer silent."""
        self._incarnations[slot] = {incarnation}
        self.mark_heard(incarnation)

    def vacate_machine(self, machine: str) -> list[str]:
        """Empty all slots of a machine; return the incarnations that were in them."""
        slots = [slot for slot in self._incarnations if machine_of(slot) == machine]
        return sorted(name for slot in slots for name in self._incarnations.pop(slot))

    def mark_heard(self, incarnation: str) -> None:
        """Stop counting an incarnation as silent: a message came from it, or it is dead."""
        self.silent.pop(incarnation, None)
        self._expected.pop(incarnation, None)

    def remove_silent(self, peers: dict[str, Peer], now: float) -> list[Peer]:
        """Take the peers that fell silent out of `peers`; return them."""
        fallen = [peer for peer in peers.values() if self._is_silent(peer, now)]
        for peer in fallen:
            self.silent[peer.incarnation] = peers.pop(peer.incarnation)
        for peer in [one for one in self._expected.values() if self._is_silent(one, now)]:
            self.silent[peer.incarnation] = self._expected.pop(peer.incarnation)
        return fallen

    def _is_silent(self, peer: Peer, now: float) -> bool:
        return peer.last_heard + self._lease_s <= now
