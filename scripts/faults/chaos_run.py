"""Chaos: one undisturbed run, then disturbed runs until the time is over, and their ledgers.

`scripts/chaos.py` has the flags and calls `run_chaos`.
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
from scripts.faults.chaos_machines import ChaosGuest, SupervisedMachine
from scripts.faults.fault_injection import FaultInjector, InjectedFault
from scripts.faults.ledger_diff import RunLedger

BEAT_S, LEASE_S = 0.5, 3.0
TASKS = 3
POLL_S = 0.05
RUN_TIMEOUT_S = 600.0  # without a new node, a run counts as stuck


class ChaosArguments(Value, frozen=True, kw_only=True):
    """What the command line asks for."""

    minutes: float
    seed: int | None
    machines: int
    cheap: bool
    keep: Path | None

    @property
    def budget(self) -> int:
        """Attempts a task: a run takes seconds to half a minute, with real evaluators more."""
        if not self.cheap:
            return 5
        return 12 if self.minutes < 1 else 24 if self.minutes < 5 else 72


@dataclass(kw_only=True)
class ChaosFindings:
    """The results of all disturbed runs."""

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
        self.guests: list[ChaosGuest] = []

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
            guest = ChaosGuest(
                f"guest{number + 1}", self.folder, ticket, self.port, cheap=self._cheap
            )
            guest.start()
            self.guests.append(guest)

    def revive(self) -> str:
        """Start killed machines again; return a line about a machine that ended by itself."""
        for machine in (self.host, *self.guests):
            status = machine.status()
            if status is None or (machine is self.host and self.is_over()):
                continue
            if status == -9:
                machine.start(*(("--resume", "run") if machine is self.host else ()))
            elif machine is self.host or status or self._left_early(machine):
                return f"{machine.name} ended with status {status}: {machine.last_line()}"
        return ""

    def _left_early(self, guest: SupervisedMachine) -> bool:
        """Whether a guest left before the end; the host may be killed right after "finished"."""
        return self._is_running() and "finished" not in guest.last_line()

    def _is_running(self) -> bool:
        statuses = ledger_diff.rows(self.host.run_dir, "SELECT status FROM run")
        return bool(statuses) and statuses[0][0] == "running"

    def is_over(self) -> bool:
        """Whether the host has concluded the run."""
        return self.host.status() in (0, 1)

    def progress(self) -> int:
        return ledger_diff.number(self.host.run_dir, "SELECT COUNT(*) FROM node")

    def close(self) -> dict[int, str]:
        """End all machines; return the processes that they have left."""
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
    """Run chaos for the time that is asked for, print the findings; return the exit status."""
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(10**6)
    kind = "cheap evaluators" if arguments.cheap else "real evaluators"
    print(f"chaos with seed {seed}: {arguments.machines} machines, {kind}", flush=True)
    if arguments.keep is not None:
        return _run_chaos(arguments, seed, arguments.keep)
    with tempfile.TemporaryDirectory(prefix="stark-chaos-") as name:
        return _run_chaos(arguments, seed, Path(name))


def _run_chaos(arguments: ChaosArguments, seed: int, folder: Path) -> int:
    begun_at = time.monotonic()
    findings = ChaosFindings()
    undisturbed = _run_undisturbed(ChaosRun(folder / "undisturbed", arguments, seed), findings)
    took_s = time.monotonic() - begun_at
    outage_s = ledger_diff.longest_outage_s(folder / "undisturbed" / "run")
    print(f"undisturbed: {len(undisturbed.rows)} lines of ledger, {took_s:.0f} s", flush=True)
    rng = Random(seed)
    until = begun_at + arguments.minutes * 60
    while findings.is_clean and (not findings.runs or time.monotonic() + took_s < until):
        findings.runs += 1
        chaos_run = ChaosRun(folder / f"run{findings.runs}", arguments, seed)
        deadline = until if arguments.minutes * 60 > 2 * took_s else None
        _run_disturbed(chaos_run, undisturbed, findings, rng, deadline)
    _report(findings, outage_s, time.monotonic() - begun_at)
    return 0 if findings.is_clean else 1


def _run_undisturbed(chaos_run: ChaosRun, findings: ChaosFindings) -> RunLedger:
    chaos_run.start_machines()
    while not chaos_run.is_over() and not findings.trouble:
        time.sleep(POLL_S)
        trouble = chaos_run.revive()
        if trouble:
            findings.trouble.append(f"undisturbed: {trouble}")
    _note_orphans(chaos_run, findings)
    return ledger_diff.ledger(chaos_run.host.run_dir)


def _run_disturbed(
    chaos_run: ChaosRun,
    undisturbed: RunLedger,
    findings: ChaosFindings,
    rng: Random,
    until: float | None,
) -> None:
    """Inject faults into one run until it or the time is over; compare its ledger."""
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
    findings.lost += [ledger_diff.show(row) for row in undisturbed.lost(ledger)]
    findings.doubled += [ledger_diff.show(row) for row in undisturbed.doubled(ledger)]
    findings.injected.update(fault.kind for fault in injector.injected)
    findings.killed += sum(fault.deadly for fault in injector.injected)
    if chaos_run.is_over():
        findings.survived += len(injector.injected)
    findings.outage_s = max(findings.outage_s, ledger_diff.longest_outage_s(chaos_run.host.run_dir))


def _inject_faults(
    chaos_run: ChaosRun, injector: FaultInjector, findings: ChaosFindings, until: float | None
) -> None:
    next_fault_at = time.monotonic() + LEASE_S
    progress, progress_at = 0, time.monotonic()
    while not chaos_run.is_over():
        time.sleep(POLL_S)
        now = time.monotonic()
        injector.heal(now)
        trouble = chaos_run.revive()
        if chaos_run.progress() > progress:
            progress, progress_at = chaos_run.progress(), now
        if now - progress_at > RUN_TIMEOUT_S:
            trouble = f"no new node for {RUN_TIMEOUT_S:.0f} s"
        if trouble:
            findings.trouble.append(f"run {findings.runs}: {trouble}")
            return
        if now >= next_fault_at and progress and (until is None or now < until):
            next_fault_at = now + injector.rng.uniform(0.05, 0.4) * LEASE_S
            fault = injector.inject(now)
            if fault is not None:
                _print_fault(fault, progress)


def _print_fault(fault: InjectedFault, progress: int) -> None:
    duration_s = fault.until - fault.at
    print(
        f"  node {progress:>3}  {fault.kind:<22} {fault.where:<28} {duration_s:4.1f} s", flush=True
    )


def _note_orphans(chaos_run: ChaosRun, findings: ChaosFindings) -> None:
    orphans = chaos_run.close()
    findings.orphans += [f"{pid} {title[:120]}" for pid, title in orphans.items()]


def _report(findings: ChaosFindings, undisturbed_outage_s: float, took_s: float) -> None:
    fault_count = sum(findings.injected.values())
    print(f"\n{findings.runs} disturbed runs in {took_s:.0f} s")
    for kind, count in sorted(findings.injected.items()):
        print(f"  injected  {count:>5}  {kind}")
    print(f"  injected  {fault_count:>5}  in all")
    print(f"  kills     {findings.killed:>5}  of these: kill -9, of an actor or of a supervisor")
    print(f"  survived  {findings.survived:>5}")
    for category, lines in (
        ("lost", findings.lost),
        ("doubled", findings.doubled),
        ("orphans", findings.orphans),
        ("trouble", findings.trouble),
    ):
        print(f"  {category:<9} {len(lines):>5}")
        for line in lines[:20]:
            print(f"            {line}")
    print(f"  longest outage {findings.outage_s:.1f} s (undisturbed: {undisturbed_outage_s:.1f} s)")
