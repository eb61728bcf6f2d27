"""Whose word a message is: the key that it came under."""

from __future__ import annotations

from protocol.values import Role, Value


class PeerIdentity(Value, frozen=True, kw_only=True):
    """A ticket's key, or none: then it came through the socket file that only this user opens."""

    ticket: str = ""
    role: Role | None = None  # what the key is for; None: any
    is_revoked: bool = False  # the ticket has expired or was revoked since

    @property
    def is_local(self) -> bool:
        return not self.ticket


LOCAL_PEER = PeerIdentity()


def machine_of(slot: str) -> str:
    """Return the machine's part of a slot: "gpu7-1f.5c2e1a"; "" for the run's own machine."""
    return slot.partition("@")[2]
