"""What can be done to a run, and when it is fair: kinds of injuries, drawn from one seed.

Fair means within the contract.  A supervisor gives up on a place that dies too often, and a
candidate that has cost two evaluators is a verdict; chaos stays clear of both, since it is after
what the contract promises to survive.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from scripts.faults import ledger_diff
from scripts.faults.chaos_machines import GuestMachine, SupervisedMachine
from scripts.faults.tcp_proxy import Direction

# Deaths at a place within so many seconds that its supervisor takes calmly, with one to spare.
MIN_SPACING = {"coordinator": (2, 60.0), "agent": (4, 60.0), "evaluator": (8, 300.0)}
KILL_WEIGHT = 20
PARTITIONS = ((Direction.UP,), (Direction.DOWN,), (Direction.UP, Direction.DOWN))
GUEST_FAULTS = frozenset(
    ("partition", "long partition", "delay", "half-close", "flip", "cut", "machine killed")
)


@dataclass(kw_only=True)
class InjectedFault:
    """One thing that was done; `heal` undoes it at `until`."""

    kind: str
    where: str
    at: float
    until: float
    heal: Callable[[], None] | None = None
    charging: bool = False  # may cost a candidate that runs one of its two evaluators
    deadly: bool = False  # a SIGKILL


@dataclass(kw_only=True)
class FaultInjector:
    """The run that is hurt, and what was done to it."""

    host: SupervisedMachine
    guests: list[GuestMachine]
    port: int
    lease_s: float
    rng: Random
    injected: list[InjectedFault] = field(default_factory=list)
    open: list[InjectedFault] = field(default_factory=list)
    deaths: dict[str, list[float]] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What can be done here, the most usual several times."""
        everywhere = ("stop", "long stop", "hang", "disk full", "noise", "power cut", "no hands")
        return (
            ("kill",) * KILL_WEIGHT
            + everywhere
            + (tuple(sorted(GUEST_FAULTS)) if self.guests else ())
        )

    def heal(self, now: float, *, all_of_it: bool = False) -> None:
        """Undo what has lasted long enough."""
        for fault in [one for one in self.open if all_of_it or one.until <= now]:
            self.open.remove(fault)
            if fault.heal is not None:
                with suppress(OSError):  # whoever it was is dead, or another by now
                    fault.heal()

    def inject(self, now: float) -> InjectedFault | None:
        """Do something; None when what was drawn is not fair just now."""
        kind = self.rng.choice(self.kinds)
        if any(one.kind == kind for one in self.open):
            return None
        act = {
            "kill": self._kill,
            "stop": self._stop,
            "long stop": self._long_stop,
            "hang": self._hang,
            "disk full": self._fill_disk,
            "noise": self._corrupt_traffic,
            "power cut": self._cut_power,
            "no hands": self._stop_supervisor,
        }.get(kind, self._disturb_network)
        fault = act(kind, now)
        if fault is not None:
            self.injected.append(fault)
            self.open.append(fault)
        return fault

    # --- fairness ----------------------------------------------------------------------------

    def _may_charge(self) -> bool:
        """Whether no candidate under way has lost, or may just be losing, its first evaluator."""
        hurting = any(one.charging for one in self.open)
        return not hurting and not ledger_diff.number(self.host.run_dir, ledger_diff.CHARGED)

    def _may_die(self, place: str, now: float) -> bool:
        role = place.rpartition(":")[2].partition("-")[0]
        limit, period_s = MIN_SPACING[role if role in MIN_SPACING else "agent"]
        times = self.deaths[place] = [
            at for at in self.deaths.get(place, []) if at > now - period_s
        ]
        return len(times) < limit

    def _victim(self, now: float, *, charging: bool) -> tuple[str, int] | None:
        """Return a living actor that may die: "MACHINE:SLOT" and its pid."""
        spared = "evaluator-" if charging and not self._may_charge() else "nobody"
        found = [
            (f"{machine.name}:{slot}", pid)
            for machine in (self.host, *self.guests)
            for slot, pid in sorted(machine.actors().items())
            if not slot.startswith(spared) and self._may_die(f"{machine.name}:{slot}", now)
        ]
        return self.rng.choice(found) if found else None

    # --- processes ---------------------------------------------------------------------------

    def _kill(self, kind: str, now: float) -> InjectedFault | None:
        return self._hit(kind, now, signal.SIGKILL, 0.0)

    def _stop(self, kind: str, now: float) -> InjectedFault | None:
        return self._hit(kind, now, signal.SIGSTOP, self.rng.uniform(0.1, 0.5) * self.lease_s)

    def _long_stop(self, kind: str, now: float) -> InjectedFault | None:
        return self._hit(kind, now, signal.SIGSTOP, self.rng.uniform(1.2, 2.0) * self.lease_s)

    def _hang(self, kind: str, now: float) -> InjectedFault | None:
        """Stopped and never continued: its supervisor has to notice."""
        return self._hit(kind, now, signal.SIGSTOP, 1.5 * self.lease_s)

    def _hit(
        self, kind: str, now: float, number: signal.Signals, seconds: float
    ) -> InjectedFault | None:
        late = number is signal.SIGKILL or seconds > 0.6 * self.lease_s
        victim = self._victim(now, charging=late)
        if victim is None:
            return None
        place, pid = victim
        charging = "evaluator" in place and late
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number is signal.SIGKILL or seconds > self.lease_s:
            # Whoever stands still too long may be taken for dead by its supervisor.
            self.deaths.setdefault(place, []).append(now)
        # The loss is in the books once the lease has run out, at the latest.
        rest_s = self.lease_s + 1.0 if charging else 0.0
        goes_on = number is signal.SIGSTOP and kind != "hang"
        heal = (lambda: os.kill(pid, signal.SIGCONT)) if goes_on else None
        if heal is not None and charging:
            self._later(now + seconds, place, heal)
            heal = None
        return InjectedFault(
            kind=f"{kind} {place.rpartition(':')[2].partition('-')[0]}",
            where=place,
            at=now,
            until=now + seconds + rest_s,
            heal=heal,
            charging=charging,
            deadly=number is signal.SIGKILL,
        )

    def _later(self, at: float, where: str, heal: Callable[[], None]) -> None:
        self.open.append(InjectedFault(kind="", where=where, at=at, until=at, heal=heal))

    def _fill_disk(self, kind: str, now: float) -> InjectedFault | None:
        pid = self.host.actors().get("coordinator")
        if pid is None:
            return None
        try:
            room = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            return None
        return InjectedFault(
            kind=kind,
            where="coordinator",
            at=now,
            until=now + self.rng.uniform(0.2, 0.8) * self.lease_s,
            heal=lambda: _set_room(pid, room),
        )

    def _corrupt_traffic(self, kind: str, now: float) -> InjectedFault | None:
        """A stranger talks rubbish to the coordinator's port."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as stranger:
                stranger.sendall(self.rng.randbytes(self.rng.randrange(1, 5000)))
        except OSError:
            return None
        return InjectedFault(kind=kind, where="coordinator", at=now, until=now)

    # --- machines and networks ---------------------------------------------------------------

    def _stop_supervisor(self, kind: str, now: float) -> InjectedFault | None:
        """A supervisor stands still: whoever dies meanwhile has to wait."""
        machine = self.rng.choice([self.host, *self.guests])
        if machine.status() is not None:
            return None
        pid, seconds = machine.pid, self.rng.uniform(0.2, 1.5) * self.lease_s
        os.kill(pid, signal.SIGSTOP)
        return InjectedFault(
            kind=kind,
            where=machine.name,
            at=now,
            until=now + seconds,
            heal=lambda: os.kill(pid, signal.SIGCONT),
        )

    def _cut_power(self, kind: str, now: float) -> InjectedFault | None:
        """The host's supervisor dies, and all of its processes with it; it is resumed."""
        if not self._may_die("host", now) or self.rng.random() < 0.5:
            return None
        self.deaths.setdefault("host", []).append(now)
        # The next supervisor begins to count anew.
        self.deaths = {
            place: times for place, times in self.deaths.items() if not place.startswith("host:")
        }
        self.host.kill()
        return InjectedFault(kind=kind, where="host", at=now, until=now + self.lease_s, deadly=True)

    def _disturb_network(self, kind: str, now: float) -> InjectedFault | None:
        guest = self.rng.choice(self.guests)
        proxy = guest.proxy
        match kind:
            case "delay":
                proxy.delay(self.rng.uniform(0.02, 0.2))
                until = now + self.lease_s / 2
                return InjectedFault(
                    kind=kind, where=guest.name, at=now, until=until, heal=lambda: proxy.delay(0.0)
                )
            case "half-close":
                proxy.half_close(self.rng.choice(list(Direction)))
            case "flip":
                proxy.flip(self.rng.choice(list(Direction)))
            case "cut":
                proxy.cut()
            case "machine killed":
                return self._kill_machine(kind, guest, now)
            case _:
                return self._partition(kind, guest, now)
        return InjectedFault(kind=kind, where=guest.name, at=now, until=now)

    def _partition(self, kind: str, guest: GuestMachine, now: float) -> InjectedFault | None:
        charging = kind == "long partition"
        if charging and not self._may_charge():
            return None
        share = self.rng.uniform(1.2, 2.0) if charging else self.rng.uniform(0.1, 0.4)
        seconds = share * self.lease_s
        guest.proxy.drop_traffic(*self.rng.choice(PARTITIONS))
        self._later(now + seconds, guest.name, guest.proxy.drop_traffic)
        rest_s = self.lease_s + 1.0 if charging else 0.0
        return InjectedFault(
            kind=kind, where=guest.name, at=now, until=now + seconds + rest_s, charging=charging
        )

    def _kill_machine(self, kind: str, guest: GuestMachine, now: float) -> InjectedFault | None:
        place = f"{guest.name}:machine"
        if not (self._may_charge() and self._may_die(place, now)):
            return None
        self.deaths.setdefault(place, []).append(now)
        guest.kill()
        until = now + self.lease_s + 1.0
        return InjectedFault(
            kind=kind, where=guest.name, at=now, until=until, charging=True, deadly=True
        )


def _set_room(pid: int, room: tuple[int, int]) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, room)
