"""A season of chaos: an undisturbed run, disturbed ones until the time is over, the ledger.

Called by `scripts/chaos.py`, which has the flags.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from protocol.values import Value
from scripts.faults import books, machines, sample
from scripts.faults.books import Ledger
from scripts.faults.injuries import Injury, Theatre
from scripts.faults.machines import Guest, Machine

BEAT_S, LEASE_S = 0.5, 3.0
TASKS = 3
TICK_S = 0.05
PATIENCE_S = 600.0  # without any news, and a run is stuck


class Wish(Value, frozen=True, kw_only=True):
    """What the command line asks for."""

    minutes: float
    seed: int | None
    machines: int
    cheap: bool
    keep: Path | None

    @property
    def budget(self) -> int:
        """Attempts a task: a run of some seconds, half a minute, or with real evaluators more."""
        if not self.cheap:
            return 5
        return 12 if self.minutes < 1 else 24 if self.minutes < 5 else 72


@dataclass(kw_only=True)
class Findings:
    """What a season came to."""

    runs: int = 0
    injured: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    survived: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    outage_s: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.orphans or self.trouble)


class Stage:
    """One run with its machines, in a folder of its own."""

    def __init__(self, folder: Path, wish: Wish, seed: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = machines.free_port()
        self._cheap = wish.cheap
        self._guests_wanted = wish.machines - 1
        names = sample.write(folder, tasks=TASKS, budget=wish.budget, seed=seed, cheap=wish.cheap)
        (folder / "stark.toml").write_text(
            f"beat_s = {BEAT_S}\nlease_s = {LEASE_S}\n[limits]\ntime_s = 1.0\n", encoding="utf-8"
        )
        base = machines.command(cheap=wish.cheap)
        self.host = Machine("host", base, folder, folder / "run")
        tasks = [word for path in names for word in ("--task", path.name)]
        self._begin = [*tasks, "--model", "script:script.jsonl", "--budget", str(wish.budget)]
        self._begin += ["--run-dir", "run", "--in-flight", "1", "--device", "cpu"]
        self._begin += ["--evaluators", "1", "--listen", f"tcp://127.0.0.1:{self.port}"]
        self.guests: list[Guest] = []

    def open(self) -> None:
        """Start the host, then the guests with the ticket that it wrote."""
        self.host.start(*self._begin)
        ticket = self.host.run_dir / machines.TICKET
        until = time.monotonic() + 60.0
        while self._guests_wanted and not ticket.exists():
            if self.host.status() is not None or time.monotonic() > until:
                raise RuntimeError(f"the host wrote no ticket: {self.host.said()}")
            time.sleep(TICK_S)
        for number in range(self._guests_wanted):
            guest = Guest(f"guest{number + 1}", self.folder, ticket, self.port, cheap=self._cheap)
            guest.start()
            self.guests.append(guest)

    def revive(self) -> str:
        """Start again the machines that were killed; return what is wrong with one that was not."""
        for machine in (self.host, *self.guests):
            status = machine.status()
            if status is None or (machine is self.host and self.over()):
                continue
            if status == -9:
                machine.start(*(("--resume", "run") if machine is self.host else ()))
            elif machine is self.host or status or self._left_too_soon(machine):
                return f"{machine.name} ended with status {status}: {machine.said()}"
        return ""

    def _left_too_soon(self, guest: Machine) -> bool:
        """Whether a guest went before the end; who tells the end may be killed right after it."""
        return self._goes_on() and "finished" not in guest.said()

    def _goes_on(self) -> bool:
        found = books.rows(self.host.run_dir, "SELECT status FROM run")
        return bool(found) and found[0][0] == "running"

    def over(self) -> bool:
        """Whether the host has concluded the run."""
        return self.host.status() in (0, 1)

    def progress(self) -> int:
        return books.number(self.host.run_dir, "SELECT COUNT(*) FROM node")

    def close(self) -> dict[int, str]:
        """End all machines; return the processes that are left of them."""
        for guest in self.guests:
            guest.proxy.hole()
        for machine in (self.host, *self.guests):
            machine.end()
        for guest in self.guests:
            guest.proxy.close()
        return machines.orphans([machine.mark() for machine in (self.host, *self.guests)])


def play(wish: Wish) -> int:
    """Play a season and print its ledger; return the exit status."""
    seed = wish.seed if wish.seed is not None else secrets.randbelow(10**6)
    kind = "evaluators that believe" if wish.cheap else "real evaluators"
    print(f"chaos with seed {seed}: {wish.machines} machines, {kind}", flush=True)
    if wish.keep is not None:
        return _play(wish, seed, wish.keep)
    with tempfile.TemporaryDirectory(prefix="stark-chaos-") as name:
        return _play(wish, seed, Path(name))


def _play(wish: Wish, seed: int, folder: Path) -> int:
    began = time.monotonic()
    found = Findings()
    calm = _calm(Stage(folder / "calm", wish, seed), found)
    took_s = time.monotonic() - began
    gap_s = books.longest_outage_s(folder / "calm" / "run")
    print(f"undisturbed: {len(calm.rows)} lines of ledger, {took_s:.0f} s", flush=True)
    rng = Random(seed)
    until = began + wish.minutes * 60
    while found.clean and (not found.runs or time.monotonic() + took_s < until):
        found.runs += 1
        stage = Stage(folder / f"run{found.runs}", wish, seed)
        _disturbed(stage, calm, found, rng, until if wish.minutes * 60 > 2 * took_s else None)
    _report(found, gap_s, time.monotonic() - began)
    return 0 if found.clean else 1


def _calm(stage: Stage, found: Findings) -> Ledger:
    stage.open()
    while not stage.over() and not found.trouble:
        time.sleep(TICK_S)
        trouble = stage.revive()
        if trouble:
            found.trouble.append(f"undisturbed: {trouble}")
    _note_orphans(stage, found)
    return books.ledger(stage.host.run_dir)


def _disturbed(
    stage: Stage, calm: Ledger, found: Findings, rng: Random, until: float | None
) -> None:
    """Hurt one run until it is over or the time is; compare what it came to."""
    stage.open()
    theatre = Theatre(
        host=stage.host, guests=stage.guests, port=stage.port, lease_s=LEASE_S, rng=rng
    )
    try:
        _hurt(stage, theatre, found, until)
    finally:
        theatre.heal(time.monotonic(), all_of_it=True)
        _note_orphans(stage, found)
    ledger = books.ledger(stage.host.run_dir)
    found.lost += [books.show(row) for row in calm.lost(ledger)]
    found.doubled += [books.show(row) for row in calm.doubled(ledger)]
    found.injured.update(injury.kind for injury in theatre.injured)
    found.killed += sum(injury.deadly for injury in theatre.injured)
    if stage.over():
        found.survived += len(theatre.injured)
    found.outage_s = max(found.outage_s, books.longest_outage_s(stage.host.run_dir))


def _hurt(stage: Stage, theatre: Theatre, found: Findings, until: float | None) -> None:
    next_injury = time.monotonic() + LEASE_S
    progress, since = 0, time.monotonic()
    while not stage.over():
        time.sleep(TICK_S)
        now = time.monotonic()
        theatre.heal(now)
        trouble = stage.revive()
        if stage.progress() > progress:
            progress, since = stage.progress(), now
        if now - since > PATIENCE_S:
            trouble = f"no news for {PATIENCE_S:.0f} s"
        if trouble:
            found.trouble.append(f"run {found.runs}: {trouble}")
            return
        if now >= next_injury and progress and (until is None or now < until):
            next_injury = now + theatre.rng.uniform(0.05, 0.4) * LEASE_S
            injury = theatre.injure(now)
            if injury is not None:
                _tell(injury, progress)


def _tell(injury: Injury, progress: int) -> None:
    lasts = injury.until - injury.at
    print(f"  node {progress:>3}  {injury.kind:<22} {injury.where:<28} {lasts:4.1f} s", flush=True)


def _note_orphans(stage: Stage, found: Findings) -> None:
    left = stage.close()
    found.orphans += [f"{pid} {title[:120]}" for pid, title in left.items()]


def _report(found: Findings, gap_s: float, took_s: float) -> None:
    injured = sum(found.injured.values())
    print(f"\n{found.runs} disturbed runs in {took_s:.0f} s")
    for kind, times in sorted(found.injured.items()):
        print(f"  injected  {times:>5}  {kind}")
    print(f"  injected  {injured:>5}  in all")
    print(f"  kills     {found.killed:>5}  of these: kill -9, of an actor or of a supervisor")
    print(f"  survived  {found.survived:>5}")
    for word, lines in (
        ("lost", found.lost),
        ("doubled", found.doubled),
        ("orphans", found.orphans),
        ("trouble", found.trouble),
    ):
        print(f"  {word:<9} {len(lines):>5}")
        for line in lines[:20]:
            print(f"            {line}")
    print(f"  longest outage {found.outage_s:.1f} s (undisturbed: {gap_s:.1f} s)")
