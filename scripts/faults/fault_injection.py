"""Faults that chaos injects into a run, drawn from one seed, and the limits that it keeps.

Chaos injects only faults that a run promises to survive.  A supervisor gives up on a slot that dies
too often, and a candidate that has cost two evaluators gets a verdict.  Chaos avoids both.
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
from scripts.faults.chaos_machines import ChaosGuest, SupervisedMachine
from scripts.faults.tcp_proxy import Direction

# (deaths, seconds): one death less in a slot than its supervisor tolerates within that time.
DEATH_LIMITS = {"coordinator": (2, 60.0), "agent": (4, 60.0), "evaluator": (8, 300.0)}
KILL_WEIGHT = 20
PARTITIONS = ((Direction.UP,), (Direction.DOWN,), (Direction.UP, Direction.DOWN))
GUEST_FAULTS = frozenset(
    ("partition", "long partition", "delay", "half-close", "flip", "cut", "machine killed")
)


@dataclass(kw_only=True)
class InjectedFault:
    """One injected fault; `heal` undoes it at `until`."""

    kind: str
    where: str
    at: float
    until: float
    heal: Callable[[], None] | None = None
    charging: bool = False  # may cost a running candidate one of its two evaluators
    deadly: bool = False  # a SIGKILL


@dataclass(kw_only=True)
class FaultInjector:
    """Injects faults into one run and records them."""

    host: SupervisedMachine
    guests: list[ChaosGuest]
    port: int
    lease_s: float
    rng: Random
    injected: list[InjectedFault] = field(default_factory=list)
    open: list[InjectedFault] = field(default_factory=list)
    deaths: dict[str, list[float]] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of faults that are possible here, the most usual one several times."""
        everywhere = (
            "stop",
            "long stop",
            "hang",
            "disk full",
            "noise",
            "power cut",
            "supervisor stop",
        )
        return (
            ("kill",) * KILL_WEIGHT
            + everywhere
            + (tuple(sorted(GUEST_FAULTS)) if self.guests else ())
        )

    def heal(self, now: float, *, all_of_it: bool = False) -> None:
        """Undo the faults whose time is over."""
        for fault in [one for one in self.open if all_of_it or one.until <= now]:
            self.open.remove(fault)
            if fault.heal is not None:
                with suppress(OSError):  # the process is dead, or its pid is reused
                    fault.heal()

    def inject(self, now: float) -> InjectedFault | None:
        """Inject a fault that is drawn; None when that kind is not allowed now."""
        kind = self.rng.choice(self.kinds)
        if any(one.kind == kind for one in self.open):
            return None
        method = {
            "kill": self._kill,
            "stop": self._stop,
            "long stop": self._long_stop,
            "hang": self._hang,
            "disk full": self._fill_disk,
            "noise": self._send_noise,
            "power cut": self._cut_power,
            "supervisor stop": self._stop_supervisor,
        }.get(kind, self._disturb_network)
        fault = method(kind, now)
        if fault is not None:
            self.injected.append(fault)
            self.open.append(fault)
        return fault

    # --- limits ------------------------------------------------------------------------------

    def _may_charge(self) -> bool:
        """Whether no candidate under way has lost, or may just be losing, its first evaluator."""
        is_charging = any(one.charging for one in self.open)
        return not is_charging and not ledger_diff.number(self.host.run_dir, ledger_diff.CHARGED)

    def _may_die(self, slot: str, now: float) -> bool:
        """Whether `slot` ("MACHINE:SLOT") may die once more without its supervisor giving up."""
        role = slot.rpartition(":")[2].partition("-")[0]
        limit, period_s = DEATH_LIMITS[role if role in DEATH_LIMITS else "agent"]
        times = self.deaths[slot] = [at for at in self.deaths.get(slot, []) if at > now - period_s]
        return len(times) < limit

    def _draw_actor(self, now: float, *, charging: bool) -> tuple[str, int] | None:
        """Return a living actor that may die: "MACHINE:SLOT" and its pid."""
        spares_evaluators = charging and not self._may_charge()
        candidates = [
            (f"{machine.name}:{slot}", pid)
            for machine in (self.host, *self.guests)
            for slot, pid in sorted(machine.actors().items())
            if not (spares_evaluators and slot.startswith("evaluator-"))
            and self._may_die(f"{machine.name}:{slot}", now)
        ]
        return self.rng.choice(candidates) if candidates else None

    # --- processes ---------------------------------------------------------------------------

    def _kill(self, kind: str, now: float) -> InjectedFault | None:
        return self._hit(kind, now, signal.SIGKILL, 0.0)

    def _stop(self, kind: str, now: float) -> InjectedFault | None:
        return self._hit(kind, now, signal.SIGSTOP, self.rng.uniform(0.1, 0.5) * self.lease_s)

    def _long_stop(self, kind: str, now: float) -> InjectedFault | None:
        return self._hit(kind, now, signal.SIGSTOP, self.rng.uniform(1.2, 2.0) * self.lease_s)

    def _hang(self, kind: str, now: float) -> InjectedFault | None:
        """Stop an actor for good: its supervisor has to notice."""
        return self._hit(kind, now, signal.SIGSTOP, 1.5 * self.lease_s)

    def _hit(
        self, kind: str, now: float, number: signal.Signals, seconds: float
    ) -> InjectedFault | None:
        late = number is signal.SIGKILL or seconds > 0.6 * self.lease_s
        actor = self._draw_actor(now, charging=late)
        if actor is None:
            return None
        slot, pid = actor
        charging = "evaluator" in slot and late
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number is signal.SIGKILL or seconds > self.lease_s:
            # A process that is stopped for too long may be killed by its supervisor.
            self.deaths.setdefault(slot, []).append(now)
        # The loss is in the store when the lease has expired, at the latest.
        rest_s = self.lease_s + 1.0 if charging else 0.0
        continues = number is signal.SIGSTOP and kind != "hang"
        heal = (lambda: os.kill(pid, signal.SIGCONT)) if continues else None
        if heal is not None and charging:
            self._later(now + seconds, slot, heal)
            heal = None
        return InjectedFault(
            kind=f"{kind} {slot.rpartition(':')[2].partition('-')[0]}",
            where=slot,
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
            limits = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            return None
        return InjectedFault(
            kind=kind,
            where="coordinator",
            at=now,
            until=now + self.rng.uniform(0.2, 0.8) * self.lease_s,
            heal=lambda: _set_file_size_limits(pid, limits),
        )

    def _send_noise(self, kind: str, now: float) -> InjectedFault | None:
        """Send random bytes from an unknown peer to the coordinator's port."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(self.rng.randbytes(self.rng.randrange(1, 5000)))
        except OSError:
            return None
        return InjectedFault(kind=kind, where="coordinator", at=now, until=now)

    # --- machines and networks ---------------------------------------------------------------

    def _stop_supervisor(self, kind: str, now: float) -> InjectedFault | None:
        """Stop a supervisor: its children that die in that time have to wait."""
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
        """Kill the host's supervisor, and so all of its processes; the run is resumed."""
        if not self._may_die("host", now) or self.rng.random() < 0.5:
            return None
        self.deaths.setdefault("host", []).append(now)
        # The next supervisor counts deaths from zero.
        self.deaths = {
            slot: times for slot, times in self.deaths.items() if not slot.startswith("host:")
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

    def _partition(self, kind: str, guest: ChaosGuest, now: float) -> InjectedFault | None:
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

    def _kill_machine(self, kind: str, guest: ChaosGuest, now: float) -> InjectedFault | None:
        slot = f"{guest.name}:machine"
        if not (self._may_charge() and self._may_die(slot, now)):
            return None
        self.deaths.setdefault(slot, []).append(now)
        guest.kill()
        until = now + self.lease_s + 1.0
        return InjectedFault(
            kind=kind, where=guest.name, at=now, until=until, charging=True, deadly=True
        )


def _set_file_size_limits(pid: int, limits: tuple[int, int]) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
