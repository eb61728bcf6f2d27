"""Join tickets: what another machine needs to take part in a run, in one private file.

A ticket names addresses, the server's public key and one key pair for each role that it allows.
It is a secret like a password: written with mode 0600, refused when others may read it, valid until
it expires or is revoked.  Expiry is in wall-clock time, the only clock that machines share.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec

from protocol.atomic_file import write_atomically
from protocol.user_files import open_regular_file
from protocol.values import Role, Value

FILE_NAME = "ticket.json"
MAX_BYTES = 64 * 1024
MAX_BEAT_S = 3600.0
MAX_TIMESTAMP = 253402300799.0  # the end of the year 9999: later ones can't be formatted

# A key or address that libzmq would refuse is found when the file is read.
Key = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$")]
Address = Annotated[str, msgspec.Meta(pattern=r"^tcp://[^\s/]+:[0-9]{1,5}$", max_length=300)]
Timestamp = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMESTAMP)]  # seconds since 1970


class CurveKeyPair(Value, frozen=True, kw_only=True):
    """A CURVE key pair, each key as 40 characters of Z85."""

    public: Key
    secret: Key


class ConnectionCredential(Value, frozen=True, kw_only=True):
    """The keys of one connection: the server's and its own."""

    server: Key  # the run's public key
    own: CurveKeyPair
    beat_s: float


class Ticket(Value, frozen=True, kw_only=True):
    """The right to take part in one run, in some roles, for some time."""

    run: str  # the run folder's name, for people
    name: str  # names the ticket when it is revoked; part of its machines' slots
    addresses: tuple[Address, ...]  # tried in turn
    server: Key
    keys: dict[Role, CurveKeyPair]
    expires: Timestamp
    beat_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_BEAT_S)] = 5.0

    def credential(self, role: Role) -> ConnectionCredential | None:
        """Return the keys for a connection in `role`; None when the ticket is not for it."""
        own = self.keys.get(role)
        if own is None:
            return None
        return ConnectionCredential(server=self.server, own=own, beat_s=self.beat_s)

    def restricted_to(self, role: Role) -> Ticket:
        """Return the ticket with one role's keys only, for a process of that role."""
        return msgspec.structs.replace(self, keys={role: self.keys[role]})


def read(path: Path) -> Ticket:
    """Return the ticket in a file; raise ValueError with one line when it can't be used."""
    try:
        with open_regular_file(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"can't read the ticket {path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise ValueError(
            f"{path} is not a ticket of a run: it is larger than {MAX_BYTES >> 10} KiB"
        )
    try:
        ticket = msgspec.json.decode(text, type=Ticket)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a ticket of a run: {error}") from error
    if not ticket.addresses or not ticket.keys:
        raise ValueError(f"{path} is not a ticket of a run: it has no addresses or no keys")
    # The mode is checked last: chmod does not help a file that is not a ticket.
    if stat.S_IMODE(mode) & 0o077:
        raise ValueError(f"the ticket {path} can be read by others: chmod 600 {path}")
    return ticket


def write(path: Path, ticket: Ticket) -> None:
    """Write a ticket that only its owner may read."""
    content = msgspec.json.format(msgspec.json.encode(ticket), indent=2) + b"\n"
    write_atomically(path, content, private=True)
