"""The door to other machines, on loopback: keys, roles, tickets, and nothing in the clear."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from fake_run import FakeRun
from net_run import ENVIRONMENT, ROOT, NetRun, RawGuest

from protocol import key_ring, tickets
from protocol import settings as settings_file
from protocol.messages import (
    Drain,
    Evaluate,
    Evaluated,
    Heartbeat,
    Hello,
    Identify,
    Lease,
    MeasureReference,
    Planned,
    ReferenceMeasured,
    Refuse,
    Welcome,
    WorkerLost,
)
from protocol.tickets import ConnectionCredential
from protocol.values import Outcome, Plan, Reference, Role, Verdict

BUDGET = 6


@pytest.fixture
def run(tmp_path: Path) -> Iterator[NetRun]:
    """Everybody but the coordinator comes through the door."""
    run = NetRun(tmp_path / "run", budget=BUDGET)
    run.start("coordinator")
    run.listening()
    yield run
    run.stop()


def key(run: NetRun, role: Role) -> ConnectionCredential:
    credential = run.ticket.credential(role)
    assert credential is not None
    return credential


def hello(run: NetRun, role: Role, name: str, number: int = 7) -> Hello:
    own = f"{role}" if role is Role.SUPERVISOR else f"{role}-{number}"
    return Hello(role=role, slot=f"{own}@test-1.{run.ticket.name}", incarnation=name, pid=1)


def test_a_run_whose_workers_all_come_with_tickets_grows_the_same_tree(
    run: NetRun, tmp_path: Path
) -> None:
    """Over CURVE and through the ZAP handler nothing else changes."""
    calm = FakeRun(tmp_path / "calm" / "run", budget=BUDGET)
    calm.start_all()
    run.start_all_away()
    try:
        run.wait()
        calm.wait()
        assert calm.nodes() == run.nodes()
    finally:
        calm.stop()


def test_peers_without_a_key_get_no_message_in(run: NetRun) -> None:
    """Without a key, with a key that nobody issued, to a server that is another: no handshake."""
    good = key(run, Role.EVALUATOR)
    unknown = ConnectionCredential(server=good.server, own=key_ring.new_key_pair(), beat_s=0.5)
    elsewhere = ConnectionCredential(
        server=key_ring.new_key_pair().public, own=good.own, beat_s=0.5
    )
    with (
        RawGuest(run.address, None) as plain,
        RawGuest(run.address, unknown) as stranger,
        RawGuest(run.address, elsewhere) as deceived,
        RawGuest(run.address, good) as guest,
    ):
        assert guest.up(10.0)
        assert not stranger.up()
        assert stranger.denied
        assert not plain.up(1.0)
        assert not deceived.up(1.0)


def test_an_evaluators_key_is_no_planners(run: NetRun) -> None:
    """The key says the role: whoever says Hello as another, or says another's words, is refused."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as liar:
        assert liar.up(10.0)
        liar.say(hello(run, Role.PLANNER, liar.name))
        refusal = liar.hear()
        assert isinstance(refusal, Refuse)
        assert "evaluator's" in refusal.reason
        liar.say(hello(run, Role.EVALUATOR, liar.name))
        assert isinstance(liar.hear(), Welcome)
        lease = liar.hear_until(MeasureReference).lease  # it is given work, as an evaluator
        liar.say(Planned(lease=lease, plan=Plan(advice="mine", scaffold="")))
        assert "evaluator's" in liar.hear_until(Refuse).reason
        liar.say(Heartbeat())
        assert isinstance(
            liar.hear_until(Identify), Identify
        )  # it has lost its seat, and its lease
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as honest:
        honest.up(10.0)
        honest.say(hello(run, Role.EVALUATOR, honest.name, 8))
        assert honest.hear_until(MeasureReference).lease.work == lease.work
    assert run.rows("SELECT COUNT(*) FROM lease WHERE outcome = 'dismissed'") == [(1,)]


def test_results_for_leases_never_held_and_of_the_wrong_kind_are_refused(run: NetRun) -> None:
    """A verdict for what was never leased, or in place of a reference, changes nothing."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as liar:
        liar.up(10.0)
        liar.say(hello(run, Role.EVALUATOR, liar.name))
        lease = liar.hear_until(MeasureReference).lease
        lie = Verdict(verdict=Outcome.CORRECT, median_us=1.0, speedup=1000.0)
        liar.say(Evaluated(lease=Lease(work="t/1/evaluate", epoch=lease.epoch), verdict=lie))
        assert "never leased" in liar.hear_until(Refuse).reason
        liar.say(hello(run, Role.EVALUATOR, liar.name))
        lease = liar.hear_until(MeasureReference).lease
        liar.say(Evaluated(lease=lease, verdict=lie))
        assert "does not end with Evaluated" in liar.hear_until(Refuse).reason
    run.start_all_away()
    run.wait()
    assert len(run.nodes()) == BUDGET + 1


def test_a_guest_can_not_end_a_task_that_this_machine_can_measure(run: NetRun) -> None:
    """Its word that the reference can't be measured sends the work home, and changes nothing."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as guest:
        guest.up(10.0)
        guest.say(hello(run, Role.EVALUATOR, guest.name))
        lease = guest.hear_until(MeasureReference).lease
        run.away = ()
        run.start("evaluator")
        up = "SELECT 1 FROM worker WHERE slot = 'evaluator-0' AND state = 'up'"
        until = time.monotonic() + 20
        while not run.rows(up):
            guest.say(Heartbeat(held_leases=(lease,)))
            assert time.monotonic() < until
            time.sleep(0.05)
        guest.say(ReferenceMeasured(lease=lease, problem="it is no good"))
        while not run.rows("SELECT 1 FROM task WHERE reference IS NOT NULL"):
            assert time.monotonic() < until
            time.sleep(0.05)
    assert run.rows("SELECT slot FROM lease WHERE outcome = 'done'") == [("evaluator-0",)]
    assert run.rows("SELECT detail FROM event WHERE what = 'doubted'") == [("it is no good",)]


def test_a_joined_supervisor_ends_neither_the_run_nor_others(run: NetRun) -> None:
    """Drain is refused; a loss counts only for its own machine's slots and their incarnations."""
    with (
        RawGuest(run.address, key(run, Role.SUPERVISOR)) as boss,
        RawGuest(run.address, key(run, Role.EVALUATOR)) as worker,
    ):
        worker.up(10.0)
        worker.say(hello(run, Role.EVALUATOR, worker.name))
        worker.hear_until(MeasureReference)
        boss.up(10.0)
        for wrong in (
            Drain(),
            WorkerLost(slot=f"evaluator-7@test-2.{run.ticket.name}", incarnation=worker.name),
        ):
            boss.say(hello(run, Role.SUPERVISOR, boss.name))
            welcome = boss.hear_until(Welcome)
            boss.say(wrong)
            assert isinstance(boss.hear_until(Refuse), Refuse)
        assert settings_file.parse(welcome.settings) == run.settings  # what a guest is to obey
        boss.say(hello(run, Role.SUPERVISOR, boss.name))
        boss.hear_until(Welcome)
        boss.say(WorkerLost(slot=f"evaluator-8@test-1.{run.ticket.name}", incarnation=worker.name))
        boss.say(Heartbeat(credit=0))
        worker.say(Heartbeat())
        assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(1,)]
        assert run.rows("SELECT status FROM run") == [("running",)]


def test_revoked_means_at_once(run: NetRun) -> None:
    """A revoked ticket loses its seats and its leases, and its key opens nothing any more; other
    tickets do not notice."""
    other = run.issue(run.guest / "other.json")
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as guest:
        guest.up(10.0)
        guest.say(hello(run, Role.EVALUATOR, guest.name))
        guest.hear_until(MeasureReference)
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "tickets.py"), str(run.run_dir), "revoke",
             run.ticket.name],
            capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.guest,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        until = time.monotonic() + 20
        refused = None
        while refused is None and time.monotonic() < until:
            guest.say(Heartbeat(sent_at=1.0))  # is answered, with one or the other
            message = guest.hear()
            refused = message if isinstance(message, Refuse) else None
        assert refused is not None
        assert "revoked" in refused.reason
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as again:
        assert not again.up()
        assert again.denied
    credential = other.credential(Role.EVALUATOR)
    with RawGuest(run.address, credential) as welcome:
        assert welcome.up(10.0)
        slot = f"evaluator-0@test-1.{other.name}"
        welcome.say(Hello(role=Role.EVALUATOR, slot=slot, incarnation=welcome.name, pid=1))
        assert welcome.hear_until(MeasureReference).lease.work == "t/0/measure"


@pytest.mark.parametrize("hours", ["inf", "1e9", "0", "nan"])
def test_a_ticket_for_ever_is_refused(run: NetRun, hours: str) -> None:
    """Of such an end there is no writing in the ring: nobody could read it any more."""
    before = (run.run_dir / key_ring.FILE_NAME).read_bytes()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "tickets.py"), str(run.run_dir), "new",
         "--hours", hours],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.guest,
    )  # fmt: skip
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert (run.run_dir / key_ring.FILE_NAME).read_bytes() == before


def test_a_ticket_that_can_not_be_written_is_none(run: NetRun) -> None:
    """One line, and the ring is as it was: nobody could tell later who holds it."""
    before = (run.run_dir / key_ring.FILE_NAME).read_bytes()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "tickets.py"), str(run.run_dir), "new",
         "--out", "absent/ticket.json"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.guest,
    )  # fmt: skip
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "can't write absent/ticket.json" in done.stderr
    assert (run.run_dir / key_ring.FILE_NAME).read_bytes() == before


def test_an_expired_ticket_is_nobodys(run: NetRun) -> None:
    """Its holder stays outside, and is sent away when it expires while he is inside."""
    late = run.issue(run.guest / "late.json", seconds=-1)
    with RawGuest(run.address, late.credential(Role.EVALUATOR)) as guest:
        assert not guest.up()
        assert guest.denied
    short = run.issue(run.guest / "short.json", seconds=4)
    with RawGuest(run.address, short.credential(Role.SUPERVISOR)) as guest:
        assert guest.up(10.0)
        slot = f"supervisor@test-1.{short.name}"
        guest.say(Hello(role=Role.SUPERVISOR, slot=slot, incarnation=guest.name, pid=1))
        guest.hear_until(Welcome)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            guest.say(Heartbeat(credit=0, sent_at=1.0))
            message = guest.hear()
            if isinstance(message, Refuse):
                break
        assert isinstance(message, Refuse)
        assert "expired" in message.reason


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:{port}", "tcp://*:{port}"])
def test_nothing_is_spoken_in_the_clear_off_loopback(tmp_path: Path, address: str) -> None:
    """The coordinator by hand, too: without keys it listens to this machine only, and says so."""
    run = FakeRun(tmp_path / "run", budget=1)
    from net_run import free_port

    told = address.format(port=free_port())
    for argv in (["--listen", told], []):
        if not argv:
            settings = settings_file.read(run.run_dir)
            from msgspec.structs import replace

            settings_file.write(run.run_dir, replace(settings, listen=told))
        done = subprocess.run(
            [sys.executable, "-m", "actors.coordinator", *argv],
            capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.run_dir,
            timeout=30, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
        assert "--listen" in done.stderr


def test_secrets_lie_in_private_files_only(run: NetRun) -> None:
    """Ring and ticket are for their owner alone; no process has a key in arguments or environment,
    and each worker's file holds its own role's key alone."""
    run.start_all_away()
    for path in (run.run_dir / key_ring.FILE_NAME, run.run_dir / tickets.FILE_NAME):
        assert path.stat().st_mode & 0o777 == 0o600
    known = key_ring.read(run.run_dir)
    assert known is not None
    pairs = [*run.ticket.keys.values(), known.server]
    for place, child in run.children.items():
        words = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        words += Path(f"/proc/{child.pid}/environ").read_bytes()
        assert not any(pair.secret.encode() in words for pair in pairs)
        if place in run.away:
            text = (run.guest / f"{place}.json").read_text()
            assert sum(pair.secret in text for pair in pairs) == 1
    ring_text = (run.run_dir / key_ring.FILE_NAME).read_text()
    assert not any(pair.secret in ring_text for pair in run.ticket.keys.values())
    run.wait()


def test_a_flipped_byte_costs_a_connection_and_nothing_else(run: NetRun, tmp_path: Path) -> None:
    """CURVE drops what was tampered with, libzmq then gives up, and the worker connects again."""
    from bit_flipper import Flipper

    calm = FakeRun(tmp_path / "calm" / "run", budget=BUDGET)
    calm.start_all()
    calm.wait()
    calm.stop()
    with Flipper(run.address) as proxy:
        run.address = proxy.address
        run.start_all_away()
        for wanted in (1, 3):
            while run.progress() < wanted:
                run.revive()
                time.sleep(0.01)
            proxy.flip()
        run.wait()
        assert proxy.flipped >= 2
    assert calm.nodes() == run.nodes()


def test_a_reference_tells_the_device_of_its_evaluator(run: NetRun) -> None:
    """No device can be claimed that was not said at Hello: tasks are pinned by it."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as liar:
        liar.up(10.0)
        liar.say(hello(run, Role.EVALUATOR, liar.name))
        lease = liar.hear_until(MeasureReference).lease
        from protocol.values import Device

        reference = Reference(eager_us=100.0, device=Device(fingerprint="Somebody else's card"))
        liar.say(ReferenceMeasured(lease=lease, reference=reference))
    for place in ("planner", "coder", "debugger"):
        run.start(place)
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as other:
        other.up(10.0)
        other.say(hello(run, Role.EVALUATOR, other.name))
        assert other.hear_until(Evaluate, 20.0).reference.device.fingerprint == ""


assert zmq.has("curve"), "the installed libzmq has no CURVE"
