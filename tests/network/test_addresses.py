"""The addresses in a ticket, at which other machines reach the coordinator."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from net_run import NetRun, RawGuest

from actors.supervisor import guest_tickets
from protocol.values import Role

LISTED = """\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000042acfffe110002 02 40 20 80     eth0
fd000099000100000000000000000001 02 40 00 80     eth0
"""


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_link_local_addresses_are_left_out(tmp_path: Path) -> None:
    """They need the name of the other machine's interface.  Without IPv6 the list is empty."""
    listed = tmp_path / "if_inet6"
    listed.write_text(LISTED)

    assert ["::1", "fd00:99:1::1"] == list(guest_tickets._ipv6_addresses(listed))
    assert [] == list(guest_tickets._ipv6_addresses(tmp_path / "nowhere"))


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("reached", ["[::1]", "127.0.0.1"])
def test_a_wildcard_address_is_reached_by_both_families(tmp_path: Path, reached: str) -> None:
    """With `--listen tcp://[::]:PORT` the ticket has addresses of both, and both accept guests."""
    run = NetRun(tmp_path / "run", budget=1, listen="[::]", reached=reached)
    run.start("coordinator")
    try:
        run.listening()
        assert run.address in guest_tickets.addresses_of(run.settings.listen)
        with RawGuest(run.address, run.ticket.credential(Role.EVALUATOR)) as guest:
            assert guest.wait_connected()
    finally:
        run.stop()
