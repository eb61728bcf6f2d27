"""The key ring of a run: the server's key pair, and the public key of every ticket and role.

The supervisor and `scripts/tickets.py` write it; the coordinator reads it again whenever the file
changes.  It holds no secret key of a ticket: these are in the ticket file only.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import zmq

from protocol.atomic_file import write_atomically
from protocol.tickets import CurveKeyPair, Key, Ticket, Timestamp
from protocol.values import Role, Value

FILE_NAME = "keys.json"


class IssuedKey(Value, frozen=True, kw_only=True):
    """One public key: its ticket, its role and its expiry."""

    ticket: str
    role: Role
    public: Key
    expires: Timestamp
    revoked: bool = False

    def is_valid(self, wall: float) -> bool:
        """Whether the key is accepted at that wall-clock time."""
        return not self.revoked and wall < self.expires


class KeyRing(Value, frozen=True, kw_only=True):
    """The keys that may connect to one run from another machine."""

    server: CurveKeyPair
    issued: tuple[IssuedKey, ...] = ()

    def issued_key(self, public: str) -> IssuedKey | None:
        """Return the entry of a public key; None when it was never issued."""
        return next((one for one in self.issued if one.public == public), None)

    def roles_of_ticket(self, ticket: str) -> tuple[Role, ...]:
        """Return the roles of a ticket."""
        return tuple(one.role for one in self.issued if one.ticket == ticket)

    def with_ticket(self, ticket: Ticket) -> KeyRing:
        """Return the ring with the public keys of a new ticket."""
        new = tuple(
            IssuedKey(ticket=ticket.name, role=role, public=pair.public, expires=ticket.expires)
            for role, pair in ticket.keys.items()
        )
        return msgspec.structs.replace(self, issued=(*self.issued, *new))

    def with_ticket_revoked(self, ticket: str) -> KeyRing:
        """Return the ring with that ticket revoked."""
        issued = tuple(
            msgspec.structs.replace(one, revoked=True) if one.ticket == ticket else one
            for one in self.issued
        )
        return msgspec.structs.replace(self, issued=issued)


def new_key_pair() -> CurveKeyPair:
    """Return a fresh key pair."""
    public, secret = zmq.curve_keypair()
    return CurveKeyPair(public=public.decode(), secret=secret.decode())


def new_ticket(
    key_ring: KeyRing,
    *,
    run: str,
    name: str,
    addresses: tuple[str, ...],
    roles: Iterable[Role],
    expires: float,
    beat_s: float,
) -> Ticket:
    """Return a ticket with fresh keys; it is valid once the ring `with_ticket` is written."""
    return Ticket(
        run=run,
        name=name,
        addresses=addresses,
        server=key_ring.server.public,
        keys={role: new_key_pair() for role in roles},
        expires=expires,
        beat_s=beat_s,
    )


def read(run_dir: Path) -> KeyRing | None:
    """Return a run's ring, or None when it has none; raise ValueError when it can't be used."""
    path = run_dir / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeyRing)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write(run_dir: Path, key_ring: KeyRing) -> None:
    """Write a run's ring atomically; only its owner may read it."""
    write_atomically(run_dir / FILE_NAME, msgspec.json.encode(key_ring), private=True)
