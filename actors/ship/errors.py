"""The errors of this room: one line for the user."""

from __future__ import annotations


class ShipError(Exception):
    """What was asked for can't be shipped; the message says why, and what to do."""


class NothingToShipError(ShipError):
    """The run has an answer, and it is not a winner."""
