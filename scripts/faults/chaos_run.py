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
from scripts.faults import chaos_machines, ledger_diff, sample_tasks
from scripts.faults.chaos_machines import GuestMachine, SupervisedMachine
from scripts.faults.fault_injection import FaultInjector, InjectedFault
from scripts.faults.ledger_diff import RunLedger

BEAT_S, LEASE_S = 0.5, 3.0
TASKS = 3
POLL_S = 0.05
RUN_TIMEOUT_S = 600.0  # without any news, and a run is stuck


class ChaosArguments(Value, frozen=True, kw_only=True):
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
class ChaosFindings:
    """What a season came to."""

    runs: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    survived: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    outage_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.orphans or self.trouble)


class ChaosRun:
    """One run with its machines, in a folder of its own."""

    def __init__(self, folder: Path, arguments: ChaosArguments, seed: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = chaos_machines.free_port()
        self._cheap = arguments.cheap
        self._guests_wanted = arguments.machines - 1
        names = sample_tasks.write(
            folder, tasks=TASKS, budget=arguments.budget, seed=seed, cheap=arguments.cheap
        )
        (folder / "stark.toml").write_text(
            f"beat_s = {BEAT_S}\nlease_s = {LEASE_S}\n[limits]\ntime_s = 1.0\n", encoding="utf-8"
        )
        base = chaos_machines.command(cheap=arguments.cheap)
        self.host = SupervisedMachine("host", base, folder, folder / "run")
        tasks = [word for path in names for word in ("--task", path.name)]
        self._begin = [*tasks, "--model", "script:script.jsonl", "--budget", str(arguments.budget)]
        self._begin += ["--run-dir", "run", "--in-flight", "1", "--device", "cpu"]
        self._begin += ["--evaluators", "1", "--listen", f"tcp://127.0.0.1:{self.port}"]
        self.guests: list[GuestMachine] = []

    def start_machines(self) -> None:
        """Start the host, then the guests with the ticket that it wrote."""
        self.host.start(*self._begin)
        ticket = self.host.run_dir / chaos_machines.TICKET
        until = time.monotonic() + 60.0
        while self._guests_wanted and not ticket.exists():
            if self.host.status() is not None or time.monotonic() > until:
                raise RuntimeError(f"the host wrote no ticket: {self.host.last_line()}")
            time.sleep(POLL_S)
        for number in range(self._guests_wanted):
            guest = GuestMachine(
                f"guest{number + 1}", self.folder, ticket, self.port, cheap=self._cheap
            )
            guest.start()
            self.guests.append(guest)

    def revive(self) -> str:
        """Start again the machines that were killed; return what is wrong with one that was not."""
        for machine in (self.host, *self.guests):
            status = machine.status()
            if status is None or (machine is self.host and self.is_over()):
                continue
            if status == -9:
                machine.start(*(("--resume", "run") if machine is self.host else ()))
            elif machine is self.host or status or self._left_too_soon(machine):
                return f"{machine.name} ended with status {status}: {machine.last_line()}"
        return ""

    def _left_too_soon(self, guest: SupervisedMachine) -> bool:
        """Whether a guest went before the end; who tells the end may be killed right after it."""
        return self._goes_on() and "finished" not in guest.last_line()

    def _goes_on(self) -> bool:
        found = ledger_diff.rows(self.host.run_dir, "SELECT status FROM run")
        return bool(found) and found[0][0] == "running"

    def is_over(self) -> bool:
        """Whether the host has concluded the run."""
        return self.host.status() in (0, 1)

    def progress(self) -> int:
        return ledger_diff.number(self.host.run_dir, "SELECT COUNT(*) FROM node")

    def close(self) -> dict[int, str]:
        """End all machines; return the processes that are left of them."""
        for guest in self.guests:
            guest.proxy.drop_traffic()
        for machine in (self.host, *self.guests):
            machine.end()
        for guest in self.guests:
            guest.proxy.close()
        return chaos_machines.orphans(
            [machine.environment_mark() for machine in (self.host, *self.guests)]
        )


def run_chaos(arguments: ChaosArguments) -> int:
    """Play a season and print its ledger; return the exit status."""
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(10**6)
    kind = "evaluators that believe" if arguments.cheap else "real evaluators"
    print(f"chaos with seed {seed}: {arguments.machines} machines, {kind}", flush=True)
    if arguments.keep is not None:
        return _run_chaos(arguments, seed, arguments.keep)
    with tempfile.TemporaryDirectory(prefix="stark-chaos-") as name:
        return _run_chaos(arguments, seed, Path(name))


def _run_chaos(arguments: ChaosArguments, seed: int, folder: Path) -> int:
    began = time.monotonic()
    findings = ChaosFindings()
    calm = _undisturbed(ChaosRun(folder / "calm", arguments, seed), findings)
    took_s = time.monotonic() - began
    gap_s = ledger_diff.longest_outage_s(folder / "calm" / "run")
    print(f"undisturbed: {len(calm.rows)} lines of ledger, {took_s:.0f} s", flush=True)
    rng = Random(seed)
    until = began + arguments.minutes * 60
    while findings.is_clean and (not findings.runs or time.monotonic() + took_s < until):
        findings.runs += 1
        chaos_run = ChaosRun(folder / f"run{findings.runs}", arguments, seed)
        _disturbed(
            chaos_run, calm, findings, rng, until if arguments.minutes * 60 > 2 * took_s else None
        )
    _report(findings, gap_s, time.monotonic() - began)
    return 0 if findings.is_clean else 1


def _undisturbed(chaos_run: ChaosRun, findings: ChaosFindings) -> RunLedger:
    chaos_run.start_machines()
    while not chaos_run.is_over() and not findings.trouble:
        time.sleep(POLL_S)
        trouble = chaos_run.revive()
        if trouble:
            findings.trouble.append(f"undisturbed: {trouble}")
    _note_orphans(chaos_run, findings)
    return ledger_diff.ledger(chaos_run.host.run_dir)


def _disturbed(
    chaos_run: ChaosRun, calm: RunLedger, findings: ChaosFindings, rng: Random, until: float | None
) -> None:
    """Hurt one run until it is over or the time is; compare what it came to."""
    chaos_run.start_machines()
    injector = FaultInjector(
        host=chaos_run.host, guests=chaos_run.guests, port=chaos_run.port, lease_s=LEASE_S, rng=rng
    )
    try:
        _inject_faults(chaos_run, injector, findings, until)
    finally:
        injector.heal(time.monotonic(), all_of_it=True)
        _note_orphans(chaos_run, findings)
    ledger = ledger_diff.ledger(chaos_run.host.run_dir)
    findings.lost += [ledger_diff.show(row) for row in calm.lost(ledger)]
    findings.doubled += [ledger_diff.show(row) for row in calm.doubled(ledger)]
    findings.injected.update(injury.kind for injury in injector.injected)
    findings.killed += sum(injury.deadly for injury in injector.injected)
    if chaos_run.is_over():
        findings.survived += len(injector.injected)
    findings.outage_s = max(findings.outage_s, ledger_diff.longest_outage_s(chaos_run.host.run_dir))


def _inject_faults(
    chaos_run: ChaosRun, injector: FaultInjector, findings: ChaosFindings, until: float | None
) -> None:
    next_injury = time.monotonic() + LEASE_S
    progress, since = 0, time.monotonic()
    while not chaos_run.is_over():
        time.sleep(POLL_S)
        now = time.monotonic()
        injector.heal(now)
        trouble = chaos_run.revive()
        if chaos_run.progress() > progress:
            progress, since = chaos_run.progress(), now
        if now - since > RUN_TIMEOUT_S:
            trouble = f"no news for {RUN_TIMEOUT_S:.0f} s"
        if trouble:
            findings.trouble.append(f"run {findings.runs}: {trouble}")
            return
        if now >= next_injury and progress and (until is None or now < until):
            next_injury = now + injector.rng.uniform(0.05, 0.4) * LEASE_S
            fault = injector.inject(now)
            if fault is not None:
                _tell(fault, progress)


def _tell(fault: InjectedFault, progress: int) -> None:
    lasts = fault.until - fault.at
    print(f"  node {progress:>3}  {fault.kind:<22} {fault.where:<28} {lasts:4.1f} s", flush=True)


def _note_orphans(chaos_run: ChaosRun, findings: ChaosFindings) -> None:
    left = chaos_run.close()
    findings.orphans += [f"{pid} {title[:120]}" for pid, title in left.items()]


def _report(findings: ChaosFindings, gap_s: float, took_s: float) -> None:
    injured = sum(findings.injected.values())
    print(f"\n{findings.runs} disturbed runs in {took_s:.0f} s")
    for kind, times in sorted(findings.injected.items()):
        print(f"  injected  {times:>5}  {kind}")
    print(f"  injected  {injured:>5}  in all")
    print(f"  kills     {findings.killed:>5}  of these: kill -9, of an actor or of a supervisor")
    print(f"  survived  {findings.survived:>5}")
    for word, lines in (
        ("lost", findings.lost),
        ("doubled", findings.doubled),
        ("orphans", findings.orphans),
        ("trouble", findings.trouble),
    ):
        print(f"  {word:<9} {len(lines):>5}")
        for line in lines[:20]:
            print(f"            {line}")
    print(f"  longest outage {findings.outage_s:.1f} s (undisturbed: {gap_s:.1f} s)")
