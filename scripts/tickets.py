"""Tickets of a run that listens: `python scripts/tickets.py RUN [new | revoke NAME]`.

Without a subcommand it lists the tickets.  `new` writes another ticket, for some roles and some
time.  `revoke` ends one: its machines are refused within a second, also in a run that is under way.
Exit status 2, with one line, when that can't be done.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, from anywhere

from actors.startup_packages import end_without_packages

if __name__ == "__main__":
    end_without_packages()

from actors.cli import OneLineParser, exit_when_reader_closes
from actors.commands import typed_command, with_typed_commands
from actors.exit_status import ExitStatus
from actors.supervisor import guest_tickets
from protocol import key_ring as key_ring_file
from protocol import settings as settings_file
from protocol.key_ring import KeyRing
from protocol.values import WORKER_ROLES, Role

MAX_HOURS = 10 * 365 * 24.0


def main() -> int:
    """Do what the command line asks; return the exit status."""
    parser = OneLineParser(prog=typed_command("tickets"), description=with_typed_commands(__doc__))
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    subcommands = parser.add_subparsers(dest="word")
    new = subcommands.add_parser("new", help="write another ticket")
    new.add_argument("--roles", default=",".join(WORKER_ROLES), help="evaluator,planner,…")
    new.add_argument("--hours", type=float, default=24.0)
    new.add_argument("--out", type=Path, help="its file (ticket-NAME.json in the run folder)")
    subcommands.add_parser("revoke", help="end a ticket").add_argument("name")
    arguments = parser.parse_args()
    if arguments.word is None:
        exit_when_reader_closes()
    try:
        key_ring = key_ring_file.read(arguments.run)
        if key_ring is None and not arguments.run.is_dir():
            raise ValueError(f"{arguments.run}: there is no such folder")
        if key_ring is None:
            raise ValueError(f"{arguments.run} has no keys: it never ran with --listen")
        if arguments.word == "new":
            return make(arguments.run, key_ring, arguments.roles, arguments.hours, arguments.out)
        if arguments.word == "revoke":
            return revoke(arguments.run, key_ring, arguments.name)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return ExitStatus.USAGE
    except OSError as error:
        sys.stderr.write(f"can't write {error.filename or arguments.run}: {error.strerror}\n")
        return ExitStatus.USAGE
    return show(key_ring)


def make(run: Path, key_ring: KeyRing, role_names: str, hours: float, out: Path | None) -> int:
    """Write a new ticket and print its path."""
    unknown = [name for name in role_names.split(",") if name not in WORKER_ROLES]
    if unknown or not 0 < hours <= MAX_HOURS:
        raise ValueError(
            f"--roles takes some of {','.join(WORKER_ROLES)}, --hours a number above 0, at most"
            f" {MAX_HOURS:g} (got {role_names!r}, {hours:g})"
        )
    settings = settings_file.read(run)
    if not settings.public_address:
        raise ValueError(f"{run} does not listen for other machines: resume it with --listen")
    path = out or run / f"ticket-{time.strftime('%Y%m%d-%H%M%S')}.json"
    roles = tuple(Role(name) for name in role_names.split(","))
    addresses = guest_tickets.addresses_of(settings.listen)
    expires = time.time() + hours * 3600
    ticket = guest_tickets.issue_ticket(run, key_ring, path, settings, addresses, roles, expires)
    print(
        f"{path}: ticket {ticket.name} for {role_names}, valid for {hours:g} hours; it is a secret"
    )
    return 0


def revoke(run: Path, key_ring: KeyRing, name: str) -> int:
    """Revoke one ticket."""
    if not key_ring.roles_of_ticket(name):
        raise ValueError(f"{run} has no ticket {name}; without a subcommand this lists them")
    key_ring_file.write(run, key_ring.with_ticket_revoked(name))
    print(f"ticket {name} is revoked")
    return 0


def show(key_ring: KeyRing) -> int:
    """List all tickets."""
    now = time.time()
    for name in dict.fromkeys(one.ticket for one in key_ring.issued):
        one = next(issued for issued in key_ring.issued if issued.ticket == name)
        state = "revoked" if one.revoked else "good" if one.is_valid(now) else "expired"
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.expires))
        print(f"{name}  {state} (until {until})  {', '.join(key_ring.roles_of_ticket(name))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
