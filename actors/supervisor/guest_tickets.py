"""Keys and tickets of a run that listens for other machines: made, renewed, shown to the user.

The user gives only `--listen`.  No message leaves this machine unencrypted.
"""

from __future__ import annotations

import fcntl
import ipaddress
import secrets
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from actors.commands import typed_command
from actors.supervisor.processes import launcher_client
from protocol import key_ring as ring_file
from protocol import tickets
from protocol.key_ring import KeyRing
from protocol.settings import Settings
from protocol.tickets import Ticket
from protocol.values import WORKER_ROLES, Role

TICKET_S = 7 * 24 * 3600.0
SIOCGIFADDR = 0x8915
INTERFACES_6 = Path("/proc/net/if_inet6")


def create_keys(run_dir: Path, settings: Settings, wall: float) -> Ticket:
    """Return the ticket in the run folder; make or renew it if it is not valid."""
    key_ring = ring_file.read(run_dir) or KeyRing(server=ring_file.new_key_pair())
    addresses = addresses_of(settings.listen)
    path = run_dir / tickets.FILE_NAME
    return _ticket(run_dir, key_ring, path, settings, addresses, WORKER_ROLES, wall)


def check_keys(run_dir: Path) -> None:
    """Raise ValueError for keys that can't be used; a run folder without keys is fine."""
    ring_file.read(run_dir)


def unusable_keys_hint(error: ValueError) -> str:
    """Return what to do about keys that can't be used."""
    return f"{error}: move the file away, and new keys and tickets are made"


def ticket_for_jobs(run_dir: Path, settings: Settings, wall: float) -> Ticket:
    """Return the ticket of launched jobs: they may lend evaluators and nothing else."""
    key_ring = ring_file.read(run_dir) or KeyRing(server=ring_file.new_key_pair())
    path = run_dir / launcher_client.TICKET_FILE
    addresses = addresses_of(settings.listen)
    return _ticket(run_dir, key_ring, path, settings, addresses, (Role.EVALUATOR,), wall)


def _ticket(
    run_dir: Path,
    key_ring: KeyRing,
    path: Path,
    settings: Settings,
    addresses: tuple[str, ...],
    roles: Iterable[Role],
    wall: float,
) -> Ticket:
    old = _valid_ticket(path, key_ring, wall)
    if old is not None:
        ticket = replace(old, addresses=addresses, beat_s=settings.beat_s)
        tickets.write(path, ticket)
        return ticket
    return issue_ticket(run_dir, key_ring, path, settings, addresses, roles, wall + TICKET_S)


def issue_ticket(
    run_dir: Path,
    key_ring: KeyRing,
    path: Path,
    settings: Settings,
    addresses: tuple[str, ...],
    roles: Iterable[Role],
    expires: float,
) -> Ticket:
    """Make a ticket for some roles (its machines' supervisors always) and write it to `path`."""
    ticket = ring_file.new_ticket(
        key_ring,
        run=run_dir.resolve().name,
        name=secrets.token_hex(3),
        addresses=addresses,
        roles=(Role.SUPERVISOR, *roles),
        expires=expires,
        beat_s=settings.beat_s,
    )
    # The key ring first: a ticket that the ring does not know is of no use.
    ring_file.write(run_dir, key_ring.with_ticket(ticket))
    try:
        tickets.write(path, ticket)
    except OSError:
        ring_file.write(
            run_dir, key_ring
        )  # no machine has the ticket, so the ring need not know it
        raise
    return ticket


def join_hint(shown: str, ticket: Ticket) -> str:
    """Return the line that says how other machines join."""
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(ticket.expires))
    return (
        f"other machines: copy {shown}/{tickets.FILE_NAME} there (it is a secret, good until"
        f" {until}), then {typed_command()} --join {tickets.FILE_NAME} --evaluators N"
    )


def addresses_of(listen: str) -> tuple[str, ...]:
    """Return the addresses for other machines: of a wildcard listener all of this machine's."""
    parts = urlsplit(listen)
    host = parts.hostname or ""
    if host != "*" and not ipaddress.ip_address(host).is_unspecified:
        return (listen,)
    # A socket that listens at [::] serves both families.
    found = [*_ipv4_addresses(), *(_ipv6_addresses() if ":" in host else ())]
    loopback = [own for own in found if ipaddress.ip_address(own).is_loopback]
    others = [own for own in found if own not in loopback]
    # The name comes late: where no resolver knows it, a try takes seconds.
    hosts = dict.fromkeys([*others, socket.gethostname(), *loopback])
    return tuple(f"tcp://{_in_address(own)}:{parts.port}" for own in hosts)


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _ipv4_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                request = struct.pack("256s", name[:15].encode())
                answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6_addresses(listed: Path = INTERFACES_6) -> Iterator[str]:
    """Yield the IPv6 addresses of this machine that another machine can use."""
    with suppress(OSError):  # a kernel without IPv6
        for line in listed.read_text(encoding="ascii").splitlines():
            own = ipaddress.IPv6Address(bytes.fromhex(line.partition(" ")[0]))
            if not own.is_link_local:  # those need the name of an interface of the other machine
                yield str(own)


def _valid_ticket(path: Path, key_ring: KeyRing, wall: float) -> Ticket | None:
    try:
        ticket = tickets.read(path)
    except ValueError:
        return None
    issued = [key_ring.issued_key(pair.public) for pair in ticket.keys.values()]
    all_valid = all(one is not None and one.is_valid(wall) for one in issued)
    return ticket if all_valid and ticket.server == key_ring.server.public else None
