"""The scheduler: peers with credit, leases with epochs, and the queue of work.

A pure state machine like the search: methods take `now` (monotonic seconds) and return the leases
to grant, to revoke and to end.  It promises that a piece of work is leased to one incarnation at a
time, that only the holder of the present lease can end it, and that lost work is leased again.

Background work is leased to peers without any other work, and its lease ends as soon as its holder
gets other work: the two are never done at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from actors.coordinator.scheduling.leases import GrantedLease, LeaseEnd, LeaseTable
from actors.coordinator.scheduling.retry_policy import LossCounter
from actors.coordinator.scheduling.slots import SlotTable
from actors.coordinator.scheduling.work_queue import (
    ANY_WORKER,
    KIND_MEMORY_S,
    Placement,
    WorkQueue,
    task_of,
)
from actors.coordinator.scheduling.workers import (
    LOCAL_PEER,
    LeastLoaded,
    Peer,
    PeerIdentity,
    machine_of,
)
from protocol.messages import Heartbeat, Hello, Lease
from protocol.values import Role

MAX_MISSED_HEARTBEATS = 2  # heartbeats that do not list a lease before it counts as never received
IDLE_S = 1.0  # a peer without work gets background work after this time, if other work may come
BACKGROUND_MINOR = 2  # peers of an older protocol do not know background work


class Scheduler:
    """Every peer, every lease, and the work that waits for a free peer."""

    def __init__(
        self,
        *,
        lease_s: float,
        epoch: int,
        kind_memory_s: float = KIND_MEMORY_S,
        has_background: bool = True,
    ) -> None:
        """`kind_memory_s`: how long work waits for a device of the kind that it is for.

        `has_background`: whether background work is leased; else it waits for another start.
        """
        self.lease_s = lease_s
        self._has_background = has_background
        self.peers: dict[str, Peer] = {}
        self._leases = LeaseTable(lease_s=lease_s, epoch=epoch)
        self.grants: Mapping[str, GrantedLease] = self._leases.grants  # by work
        self._slots = SlotTable(lease_s=lease_s)
        self.silent: Mapping[str, Peer] = self._slots.silent  # and not known to be dead
        self._queue = WorkQueue(self.peers, kind_memory_s)
        self._losses = LossCounter()
        self._least_loaded = {role: LeastLoaded(self.peers) for role in Role}
        self._arrivals = 0  # peers that said Hello so far
        self._preempted: list[LeaseEnd] = []  # leases of background work that gave way

    # --- work --------------------------------------------------------------------------------

    def enqueue(
        self, work: str, role: Role, placement: Placement = ANY_WORKER, *, first: bool = False
    ) -> None:
        """Queue work for a role, and a kind of device; lost work goes `first`."""
        self._queue.add(work, role, placement, first=first)

    def waiting_count(self) -> int:
        """Return the number of pieces of work that are not leased."""
        return len(self._queue)

    def peer_count(self, identity: PeerIdentity) -> int:
        """Return the number of a ticket's peers; 0 for this machine's own, which have no limit."""
        if identity.is_local:
            return 0
        return sum(peer.identity.ticket == identity.ticket for peer in self.peers.values())

    def is_idle(self, served_roles: Collection[Role]) -> bool:
        """Whether no work is leased, and none waits for a role that could do it.

        Such a role is one of `served_roles`, or one with a connected peer.
        """
        roles = {*served_roles, *(peer.role for peer in self.peers.values())}
        return not self.grants and not any(
            self._queue.has_waiting(role) or self._is_background_due(role) for role in roles
        )

    def _is_background_due(self, role: Role) -> bool:
        return self._has_background and self._queue.has_background(role)

    def grant_leases(self, now: float) -> list[GrantedLease]:
        """Lease waiting work to peers with credit, the least loaded first.

        Afterwards `take_preempted` returns the leases that ended because other work came.
        """
        granted: list[GrantedLease] = []
        for role, least_loaded in self._least_loaded.items():
            unfit: list[Peer] = []
            while self._queue.has_waiting(role) and (peer := least_loaded.pop()) is not None:
                work = self._queue.take_best(peer, now)
                if work is None:
                    unfit.append(peer)
                    continue
                self._preempt(peer)
                granted.append(self._lease(work, peer, now))
                least_loaded.add(peer)
            for peer in unfit:
                least_loaded.add(peer)
            if self._is_background_due(role):
                granted += self._grant_background(role, now)
        return granted

    def _grant_background(self, role: Role, now: float) -> list[GrantedLease]:
        """Lease background work to idle peers, at once when nothing else is left to do."""
        granted: list[GrantedLease] = []
        is_quiet = not any(map(self._queue.has_waiting, Role)) and all(
            map(self._queue.is_background, self.grants)
        )
        for peer in self.peers.values():
            if peer.role is not role or peer.leases or not (peer.credit and peer.takes_background):
                continue
            if peer.idle_since is None:
                peer.idle_since = now
            if is_quiet or now - peer.idle_since >= IDLE_S:
                work = self._queue.take_background(peer, now)
                if work is not None:
                    granted.append(self._lease(work, peer, now))
                    self._least_loaded[role].add(peer)
        return granted

    def _preempt(self, peer: Peer) -> None:
        self._preempted += [
            self._end(self.grants[work], "preempted", charged=False)
            for work in sorted(peer.background)
        ]

    def preempt_all(self) -> None:
        """End all leases of background work."""
        for peer in self.peers.values():
            self._preempt(peer)

    def take_preempted(self) -> list[LeaseEnd]:
        """Return the leases of background work that have ended for other work, once each."""
        ended, self._preempted = self._preempted, []
        return ended

    def restore(
        self,
        grants: Iterable[GrantedLease],
        losses: dict[str, int],
        machine_losses: dict[str, int] | None = None,
    ) -> None:
        """Take up stored leases: their holders have until `expires_at` to claim them."""
        self._losses.restore(losses, machine_losses or {})
        for granted in grants:
            self._leases.restore(granted)
            self._slots.add(granted.slot, granted.incarnation)
            self._queue.restore(granted.work, granted.role)

    def has_lease(self, incarnation: str, lease: Lease) -> bool:
        """Whether this peer holds that lease now."""
        return self._leases.held(lease, incarnation) is not None

    def settle_result(self, lease: Lease, incarnation: str) -> GrantedLease | None:
        """End the lease that a result belongs to; None when the peer does not hold it now."""
        granted = self._leases.held(lease, incarnation)
        if granted is None:
            return None
        self._free(granted)
        self._queue.remove(lease.work)
        self._losses.forget_work(lease.work)
        return granted

    def hand_back(
        self, lease: Lease, incarnation: str, *, reference_failed: bool = False
    ) -> LeaseEnd | None:
        """Take back undone work without a charge.

        `reference_failed`: the task's own module failed; too many such tries exhaust the work.
        """
        granted = self._leases.held(lease, incarnation)
        if granted is None:
            return None
        if reference_failed:
            self._losses.charge_failed_try(lease.work)
        return self._end(granted, "returned", charged=False)

    def requeue_for_local(self, lease: Lease, incarnation: str, now: float) -> LeaseEnd | None:
        """Take work back from a guest, and have this machine's own workers do it instead.

        None: the holder is not a guest, or no worker here can do the work; then the guest's claim
        has to be believed.
        """
        granted, peer = self._leases.held(lease, incarnation), self.peers.get(incarnation)
        if granted is None or peer is None or peer.identity.is_local:
            return None
        if not self._queue.can_run_locally(granted.work, now):
            return None
        self._queue.keep_local(granted.work)
        return self._end(granted, "returned", charged=False)

    def candidate_running(self, lease: Lease, incarnation: str) -> GrantedLease | None:
        """Record that candidate code runs under this lease."""
        granted = self._leases.held(lease, incarnation)
        if granted is not None:
            granted.candidate_running = True
        return granted

    def held_by(self, incarnation: str) -> list[GrantedLease]:
        """Return the leases of one incarnation, the oldest first."""
        return self._leases.held_by(incarnation)

    # --- peers -------------------------------------------------------------------------------

    def connect_peer(
        self, hello: Hello, now: float, identity: PeerIdentity = LOCAL_PEER
    ) -> tuple[list[Lease], list[LeaseEnd]]:
        """Take in a peer; return the leases that it must drop and those that ended.

        Older incarnations of the same slot are dead: the supervisor runs one at a time.
        """
        ended: list[LeaseEnd] = []
        former = self._slots.replace_by(hello.slot, hello.incarnation)
        if former and hello.role is Role.SUPERVISOR and machine_of(hello.slot):
            ended += self.machine_lost(machine_of(hello.slot))
        ended += [end for incarnation in former for end in self.peer_lost(incarnation)]
        self._slots.assign(hello.slot, hello.incarnation)
        ended += self._losses.refund_reconnected(hello.incarnation)
        peer = self._register(hello, now, identity)
        revoked: list[Lease] = []
        for lease in hello.held_leases:
            if self._leases.renew(lease, peer.incarnation, now):
                self._hold(peer, lease.work)
            else:
                revoked.append(lease)
        held = {lease.work for lease in hello.held_leases}
        for granted in self.held_by(peer.incarnation):
            if granted.work not in held:
                ended.append(self._end(granted, "missed", charged=False))
        self._least_loaded[peer.role].add(peer)
        return revoked, ended

    def is_replaced(self, hello: Hello) -> bool:
        """Whether another process took the slot of this one, which lives on."""
        return self._slots.is_replaced(hello.slot, hello.incarnation)

    def renew_leases(
        self, incarnation: str, heartbeat: Heartbeat, now: float
    ) -> tuple[list[Lease], list[LeaseEnd]]:
        """Renew the leases that a heartbeat lists; return those to drop and those never received.

        An unknown lease is dropped, unless a newer one for the same work is on its way to the peer.
        """
        peer = self.peers[incarnation]
        peer.last_heard = now
        peer.credit = heartbeat.credit
        self._queue.note_device_kind(peer)
        revoked: list[Lease] = []
        for lease in heartbeat.held_leases:
            if self._leases.renew(lease, incarnation, now):
                continue
            granted = self.grants.get(lease.work)
            if granted is None or granted.incarnation != incarnation:
                revoked.append(lease)
        held = {lease.work for lease in heartbeat.held_leases}
        ended: list[LeaseEnd] = []
        for work in peer.leases - held:
            granted = self.grants[work]
            granted.missed_heartbeats += 1  # the first may have been sent before the lease arrived
            if granted.missed_heartbeats >= MAX_MISSED_HEARTBEATS:
                ended.append(self._end(granted, "missed", charged=False))
        self._least_loaded[peer.role].add(peer)
        return revoked, ended

    def peer_lost(self, incarnation: str) -> list[LeaseEnd]:
        """Forget a dead peer; its work is queued again, charged if candidate code ran."""
        held = self._forget(incarnation)
        return [self._end(grant, "lost", charged=grant.candidate_running) for grant in held]

    def dismiss_peer(self, incarnation: str) -> list[LeaseEnd]:
        """Forget a refused peer; its work is queued again without a charge."""
        held = self._forget(incarnation)
        return [self._end(grant, "dismissed", charged=False) for grant in held]

    def machine_lost(self, machine: str) -> list[LeaseEnd]:
        """Forget all peers of a machine whose former supervisor is gone: they died with it.

        Their work is queued again.  A candidate is charged only after too many machine losses, and
        charges for the peers' silence before are taken back.
        """
        ended: list[LeaseEnd] = []
        for incarnation in self._slots.vacate_machine(machine):
            ended += self._losses.refund_machine_loss(incarnation)
            for granted in self._forget(incarnation):
                charged = granted.candidate_running and self._losses.charge_machine_loss(
                    granted.work
                )
                ended.append(self._end(granted, "lost" if charged else "cut", charged=charged))
        return ended

    def _forget(self, incarnation: str) -> list[GrantedLease]:
        peer = self.peers.pop(incarnation, None)
        if peer is not None:
            self._queue.note_task(peer, "")
        self._slots.mark_heard(incarnation)
        self._losses.confirm_loss(incarnation)
        return self.held_by(incarnation)

    def expire_leases(self, now: float) -> list[LeaseEnd]:
        """End the leases that were not renewed in time."""
        late = self._leases.expired(now)
        for peer in self._slots.remove_silent(self.peers, now):
            # A peer that was only suspended comes back: its heartbeat is answered with `Identify`.
            self._queue.note_task(peer, "")
        for granted in late:
            if granted.candidate_running:
                self._losses.charge_silent(granted)
        return [self._end(grant, "expired", charged=grant.candidate_running) for grant in late]

    def pause_peer(self, incarnation: str, until: float) -> None:
        """Lease nothing to a peer before `until`."""
        if incarnation in self.peers:
            self.peers[incarnation].paused_until = until

    def expect_peer(self, slot: str, role: Role, incarnation: str, now: float) -> None:
        """Give a peer that an earlier coordinator knew a lease's time to send a message."""
        self._slots.expect(
            Peer(
                incarnation=incarnation,
                slot=slot,
                role=role,
                credit=0,
                last_heard=now,
                connected_since=now,
            )
        )

    # --- inside ------------------------------------------------------------------------------

    def _register(self, hello: Hello, now: float, identity: PeerIdentity) -> Peer:
        """Add a peer, or update one that says Hello again."""
        known = self.peers.get(hello.incarnation)
        self._arrivals += 1
        peer = Peer(
            incarnation=hello.incarnation,
            slot=hello.slot,
            role=hello.role,
            credit=hello.credit,
            last_heard=now,
            connected_since=known.connected_since if known else now,
            number=known.number if known else self._arrivals,
            identity=identity,
            kind=hello.device.fingerprint if hello.device else "",
            leases=known.leases if known else set(),
            background=known.background if known else set(),
            takes_background=hello.minor >= BACKGROUND_MINOR,
            queued=known.queued if known else set(),
            task=known.task if known else "",
        )
        self.peers[hello.incarnation] = peer
        self._queue.note_device_kind(peer)
        return peer

    def _lease(self, work: str, peer: Peer, now: float) -> GrantedLease:
        granted = self._leases.grant(work, peer, now)
        self._hold(peer, work)
        self._queue.note_task(peer, task_of(work))
        return granted

    def _hold(self, peer: Peer, work: str) -> None:
        peer.leases.add(work)
        peer.idle_since = None
        if self._queue.is_background(work):
            peer.background.add(work)

    def _free(self, granted: GrantedLease) -> None:
        self._leases.release(granted)
        peer = self.peers.get(granted.incarnation)
        if peer is not None:
            peer.leases.discard(granted.work)
            peer.background.discard(granted.work)
            self._least_loaded[peer.role].add(peer)

    def _end(self, granted: GrantedLease, outcome: str, *, charged: bool) -> LeaseEnd:
        self._free(granted)
        role, placement = self._queue.remove(granted.work)
        if charged:
            self._losses.charge_loss(granted.work)
        if self._losses.is_exhausted(granted.work):
            return LeaseEnd(granted, outcome, exhausted=True)
        self.enqueue(granted.work, role, placement, first=True)
        return LeaseEnd(granted, outcome)
