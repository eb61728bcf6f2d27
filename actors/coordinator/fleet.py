"""Who works on what: workers, credit, leases with epochs, and the queue of offered work.

A pure state machine like the search: methods take `now` (monotonic seconds) and return what to
say.  It promises that a piece of work is leased to one incarnation at a time, that only the holder
of the present lease can end it, and that what is lost is offered again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from actors.coordinator.charges import Charges
from actors.coordinator.grants import ANYBODY, Ended, Grant, Want
from actors.coordinator.leases import Leases
from actors.coordinator.offers import Offers
from actors.coordinator.origin import LOCAL, Origin, machine_of
from actors.coordinator.peers import Peer, Takers
from actors.coordinator.seats import Seats
from actors.coordinator.waiting import task_of
from protocol.messages import Beat, Hello, Lease
from protocol.values import Role

MISSED_BEATS = 2  # heartbeats that do not list a lease before it counts as never received


class Fleet:
    """Every peer, every lease, and the work that waits for a free peer."""

    def __init__(self, *, lease_s: float, epoch: int) -> None:
        self.lease_s = lease_s
        self.peers: dict[str, Peer] = {}
        self._leases = Leases(lease_s=lease_s, epoch=epoch)
        self.grants: Mapping[str, Grant] = self._leases.grants  # by work
        self._seats = Seats(lease_s=lease_s)
        self.silent: Mapping[str, Peer] = self._seats.silent  # not heard of, and not known dead
        self._offers = Offers(self.peers)
        self._charges = Charges()
        # What follows answers in steps that do not grow with the fleet.
        self._takers = {role: Takers(self.peers) for role in Role}
        self._arrived = 0

    # --- work --------------------------------------------------------------------------------

    def offer(self, work: str, role: Role, want: Want = ANYBODY, *, first: bool = False) -> None:
        """Queue work for a role, and a kind of device; what was lost goes `first`."""
        self._offers.add(work, role, want, first=first)

    def waiting(self) -> int:
        """Return how many pieces of work nobody holds."""
        return len(self._offers)

    def count(self, origin: Origin) -> int:
        """Return how many peers a ticket has; of this machine's own nobody keeps count."""
        if origin.local:
            return 0
        return sum(peer.origin.ticket == origin.ticket for peer in self.peers.values())

    def idle(self, here: Collection[Role]) -> bool:
        """Whether nothing is held, and nothing waits for a role that is `here` or connected."""
        roles = {*here, *(peer.role for peer in self.peers.values())}
        return not self.grants and not any(map(self._offers.waits, roles))

    def grant(self, now: float) -> list[Grant]:
        """Lease waiting work to peers with credit, the least loaded first."""
        granted: list[Grant] = []
        for role, takers in self._takers.items():
            unfit: list[Peer] = []
            while self._offers.waits(role) and (peer := takers.least_loaded()) is not None:
                work = self._offers.take(peer, now)
                if work is None:
                    unfit.append(peer)
                    continue
                granted.append(self._lease(work, peer, now))
                takers.add(peer)
            for peer in unfit:
                takers.add(peer)
        return granted

    def restore(
        self, grants: Iterable[Grant], losses: dict[str, int], cuts: dict[str, int] | None = None
    ) -> None:
        """Take up stored leases: their holders have until `expires` to claim them."""
        self._charges.restore(losses, cuts or {})
        for grant in grants:
            self._leases.take_up(grant)
            self._seats.add(grant.slot, grant.incarnation)
            self._offers.restore(grant.work, grant.role)

    def holds(self, incarnation: str, lease: Lease) -> bool:
        """Whether this peer has that very lease."""
        return self._leases.of(lease, incarnation) is not None

    def settle(self, lease: Lease, incarnation: str) -> Grant | None:
        """End the lease that a result came for; None when it is not that peer's any more."""
        grant = self._leases.of(lease, incarnation)
        if grant is None:
            return None
        self._free(grant)
        self._offers.done(lease.work)
        self._charges.settled(lease.work)
        return grant

    def returned(self, lease: Lease, incarnation: str, *, tried: bool = False) -> Ended | None:
        """Take back undone work, uncharged; what was `tried` too often is exhausted."""
        grant = self._leases.of(lease, incarnation)
        if grant is None:
            return None
        if tried:
            self._charges.tried(lease.work)
        return self._end(grant, "returned", charged=False)

    def doubted(self, lease: Lease, incarnation: str, now: float) -> Ended | None:
        """Take back from a guest what somebody of this machine's own can be asked to do instead.

        None: it is no guest's, or nobody here can do it, and so its word has to be believed.
        """
        grant, peer = self._leases.of(lease, incarnation), self.peers.get(incarnation)
        if grant is None or peer is None or peer.origin.local:
            return None
        if not self._offers.can_stay_here(grant.work, now):
            return None
        self._offers.keep_here(grant.work)
        return self._end(grant, "returned", charged=False)

    def running(self, lease: Lease, incarnation: str) -> Grant | None:
        """Note that candidate code runs under this lease."""
        grant = self._leases.of(lease, incarnation)
        if grant is not None:
            grant.running = True
        return grant

    def held_by(self, incarnation: str) -> list[Grant]:
        """Return the leases of one incarnation, the oldest first."""
        return self._leases.held_by(incarnation)

    # --- peers -------------------------------------------------------------------------------

    def hello(
        self, hello: Hello, now: float, origin: Origin = LOCAL
    ) -> tuple[list[Lease], list[Ended]]:
        """Welcome a peer; return the leases that it must drop and those that ended.

        An older incarnation of the same slot is dead: the supervisor runs one at a time.
        """
        ended: list[Ended] = []
        former = self._seats.former(hello.slot, hello.incarnation)
        if former and hello.role is Role.SUPERVISOR and machine_of(hello.slot):
            ended += self.machine_lost(machine_of(hello.slot))
        for incarnation in former:
            ended += self.lost(incarnation)
        self._seats.take(hello.slot, hello.incarnation)
        ended += self._charges.pardon(hello.incarnation)
        peer = self._arrive(hello, now, origin)
        revoked: list[Lease] = []
        for lease in hello.holds:
            if self._leases.renewed(lease, peer.incarnation, now):
                peer.leases.add(lease.work)
            else:
                revoked.append(lease)
        held = {lease.work for lease in hello.holds}
        for grant in self.held_by(peer.incarnation):
            if grant.work not in held:
                ended.append(self._end(grant, "missed", charged=False))
        self._takers[peer.role].add(peer)
        return revoked, ended

    def beat(self, incarnation: str, beat: Beat, now: float) -> tuple[list[Lease], list[Ended]]:
        """Renew what a heartbeat lists; return the leases to drop and those never received."""
        peer = self.peers[incarnation]
        peer.heard = now
        peer.credit = beat.credit
        self._offers.notice(peer)
        revoked: list[Lease] = []
        for lease in beat.holds:
            if self._leases.renewed(lease, incarnation, now):
                continue
            grant = self.grants.get(lease.work)
            if grant is None or grant.incarnation != incarnation:  # else a newer one is on its way
                revoked.append(lease)
        held = {lease.work for lease in beat.holds}
        ended: list[Ended] = []
        for work in peer.leases - held:
            grant = self.grants[work]
            grant.missed += 1  # the first may have crossed the lease on the wire
            if grant.missed >= MISSED_BEATS:
                ended.append(self._end(grant, "missed", charged=False))
        self._takers[peer.role].add(peer)
        return revoked, ended

    def lost(self, incarnation: str) -> list[Ended]:
        """Forget a dead peer; its work is offered again, charged if candidate code ran."""
        held = self._forget(incarnation)
        return [self._end(grant, "lost", charged=grant.running) for grant in held]

    def dismissed(self, incarnation: str) -> list[Ended]:
        """Forget a peer that is not wanted; its work is offered again and nobody is charged."""
        held = self._forget(incarnation)
        return [self._end(grant, "dismissed", charged=False) for grant in held]

    def machine_lost(self, machine: str) -> list[Ended]:
        """Forget all peers of a machine whose supervisor is another one now: they died with it.

        What ran there is offered again, and its candidate is charged only when that has happened
        too often; what was charged because they fell silent is taken back.
        """
        ended: list[Ended] = []
        for incarnation in self._seats.leave(machine):
            ended += self._charges.excuse(incarnation)
            for grant in self._forget(incarnation):
                charged = grant.running and self._charges.cut(grant.work)
                ended.append(self._end(grant, "lost" if charged else "cut", charged=charged))
        return ended

    def _forget(self, incarnation: str) -> list[Grant]:
        gone = self.peers.pop(incarnation, None)
        if gone is not None:
            self._offers.warm(gone, "")
        self._seats.heard(incarnation)
        self._charges.gone(incarnation)
        return self.held_by(incarnation)

    def expire(self, now: float) -> list[Ended]:
        """End the leases whose holders have not been heard of in time."""
        late = self._leases.late(now)
        for peer in self._seats.miss(self.peers, now):
            # It may only be stopped: a heartbeat will be answered with `Who`, and it says Hello.
            self._offers.warm(peer, "")
        for grant in late:
            if grant.running:
                self._charges.blame(grant)
        return [self._end(grant, "expired", charged=grant.running) for grant in late]

    def rest(self, incarnation: str, until: float) -> None:
        """Lease nothing to a peer before `until`."""
        if incarnation in self.peers:
            self.peers[incarnation].rests_until = until

    def expect(self, slot: str, role: Role, incarnation: str, now: float) -> None:
        """An earlier coordinator knew this peer: it has a lease's time to be heard of again."""
        self._seats.expect(
            Peer(incarnation=incarnation, slot=slot, role=role, credit=0, heard=now, since=now)
        )

    # --- inside ------------------------------------------------------------------------------

    def _arrive(self, hello: Hello, now: float, origin: Origin) -> Peer:
        """Take a peer in, or what is new of one that says Hello again."""
        known = self.peers.get(hello.incarnation)
        self._arrived += 1
        peer = Peer(
            incarnation=hello.incarnation,
            slot=hello.slot,
            role=hello.role,
            credit=hello.credit,
            heard=now,
            since=known.since if known else now,
            number=known.number if known else self._arrived,
            origin=origin,
            kind=hello.device.fingerprint if hello.device else "",
            leases=known.leases if known else set(),
            queued=known.queued if known else set(),
            task=known.task if known else "",
        )
        self.peers[hello.incarnation] = peer
        self._offers.notice(peer)
        return peer

    def _lease(self, work: str, peer: Peer, now: float) -> Grant:
        grant = self._leases.grant(work, peer, now)
        peer.leases.add(work)
        self._offers.warm(peer, task_of(work))
        return grant

    def _free(self, grant: Grant) -> None:
        self._leases.free(grant)
        peer = self.peers.get(grant.incarnation)
        if peer is not None:
            peer.leases.discard(grant.work)
            self._takers[peer.role].add(peer)

    def _end(self, grant: Grant, outcome: str, *, charged: bool) -> Ended:
        self._free(grant)
        role, want = self._offers.done(grant.work)
        if charged:
            self._charges.lost(grant.work)
        if self._charges.exhausted(grant.work):
            return Ended(grant, outcome, exhausted=True)
        self.offer(grant.work, role, want, first=True)
        return Ended(grant, outcome)
