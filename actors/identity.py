"""The identity of an actor: address, slot, incarnation, run folder and ticket.

The supervisor passes these as flags.
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from setproctitle import setproctitle

from protocol import tickets
from protocol.tickets import ConnectionCredential
from protocol.values import Role, Value


class ActorIdentity(Value, frozen=True, kw_only=True):
    """One actor's place in a run."""

    address: str  # of the coordinator
    slot: str
    incarnation: str
    run_dir: Path
    ticket: Path | None = None  # the file with the key, on a machine that has joined


def add_identity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every actor takes."""
    parser.add_argument("--connect", required=True, metavar="ADDR", help="the coordinator")
    parser.add_argument("--slot", required=True, help="the supervised place, such as coder-0")
    parser.add_argument("--incarnation", default="", help="fresh for every process")
    parser.add_argument("--run-dir", type=Path, default=Path(), help="the run folder")
    parser.add_argument("--ticket", type=Path, metavar="FILE", help="with this role's key")


def identity_from(arguments: argparse.Namespace) -> ActorIdentity:
    """Return the identity in parsed arguments."""
    return ActorIdentity(
        address=arguments.connect,
        slot=arguments.slot,
        incarnation=arguments.incarnation or secrets.token_hex(8),
        run_dir=arguments.run_dir,
        ticket=arguments.ticket,
    )


def credential_for(identity: ActorIdentity, role: Role) -> ConnectionCredential | None:
    """Return the key for `role`; None on the run's own machine, which needs none.

    Raises ValueError with one line when the ticket can't be used.
    """
    if identity.ticket is None:
        return None
    credential = tickets.read(identity.ticket).credential(role)
    if credential is None:
        raise ValueError(f"the ticket {identity.ticket} has no key for {role}s")
    return credential


def name_process(slot: str) -> None:
    """Show the slot in `ps` and `top`."""
    setproctitle(f"stark {slot}")
