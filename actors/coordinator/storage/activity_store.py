"""The tables of a run's activity: leases, model calls, reservations, workers and events."""

from __future__ import annotations

from functools import cached_property

import msgspec
from msgspec.structs import replace

from actors.coordinator.scheduling.budget import Reservation, ReservationState
from actors.coordinator.storage.database import Database
from protocol.messages import Lease
from protocol.values import STOP_LOST, Call, Value

# The stored fields of a `Reservation`, which are columns of the same name.
RESERVATION_COLUMNS = (
    "incarnation",
    "number",
    "work",
    "request",
    "role",
    "model",
    "usd",
    "state",
)


class LeaseRow(Value, frozen=True, kw_only=True):
    """A lease that was open when the last coordinator ended."""

    epoch: int
    work: str
    slot: str
    incarnation: str
    running: bool


class ActivityStore:
    """The reads and writes of leases, calls, reservations, workers and events."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- leases ------------------------------------------------------------------------------

    def grant(self, epoch: int, work: str, slot: str, incarnation: str, at: float) -> None:
        self._db.insert(
            "lease",
            epoch=epoch,
            work=work,
            slot=slot,
            incarnation=incarnation,
            granted=at,
            running=0,
        )

    def mark_running(self, epoch: int) -> None:
        self._db.write("UPDATE lease SET running = 1 WHERE epoch = ?", (epoch,))

    def end_lease(self, epoch: int, outcome: str, at: float) -> None:
        self._db.write(
            "UPDATE lease SET ended = ?, outcome = ? WHERE epoch = ?", (at, outcome, epoch)
        )

    def was_granted(self, lease: Lease, incarnation: str) -> bool:
        """Whether that incarnation holds or held that lease."""
        row = self._db.row(
            "SELECT 1 FROM lease WHERE epoch = ? AND work = ? AND incarnation = ?",
            (lease.epoch, lease.work, incarnation),
        )
        return row is not None

    def last_epoch(self) -> int:
        epoch: int = self._db.value("SELECT COALESCE(MAX(epoch), 0) FROM lease")
        return epoch

    def open_leases(self) -> list[LeaseRow]:
        rows = self._db.rows(
            "SELECT epoch, work, slot, incarnation, running FROM lease WHERE ended IS NULL"
        )
        return [
            LeaseRow(
                epoch=epoch, work=work, slot=slot, incarnation=incarnation, running=bool(running)
            )
            for epoch, work, slot, incarnation, running in rows
        ]

    def evaluator_losses(self) -> dict[str, int]:
        """Return the evaluators lost while a candidate ran, by work."""
        rows = self._db.rows(
            "SELECT work, COUNT(*) FROM lease WHERE running = 1 AND outcome IN ('lost', 'expired')"
            " GROUP BY work"
        )
        return dict(rows)

    def machine_losses(self) -> dict[str, int]:
        """Return the machines that fell away while a candidate ran there, by work."""
        rows = self._db.rows(
            "SELECT work, COUNT(*) FROM lease WHERE running = 1 AND outcome = 'cut' GROUP BY work"
        )
        return dict(rows)

    # --- calls and workers -------------------------------------------------------------------

    def add_call(self, work: str, role: str, call: Call, at: float) -> None:
        """Record a reply and its cost; `has_call` says whether it is recorded already."""
        self._db.insert("call", work=work, role=role, at=at, **msgspec.structs.asdict(call))

    def has_call(self, work: str, request: str) -> bool:
        """Whether a reply to this request is recorded."""
        found = self._db.row(
            "SELECT 1 FROM call WHERE work = ? AND request = ? AND stop != ?",
            (work, request, STOP_LOST),
        )
        return found is not None

    def add_lost_call(self, one: Reservation, at: float, partial: Call | None = None) -> None:
        """Record a call without a whole reply, at its maximum; `partial`: the part that arrived."""
        known = partial or Call(model=one.model, request="", reply="")
        lost = replace(known, model=one.model, request="", reply="", stop=STOP_LOST, usd=one.usd)
        self.add_call(one.work, one.role, lost, at)
        self._db.write(
            "UPDATE reservation SET call = (SELECT MAX(id) FROM call)"
            " WHERE incarnation = ? AND number = ?",
            one.key,
        )

    # --- reservations ------------------------------------------------------------------------

    def add_reservation(self, one: Reservation, at: float) -> None:
        values = {column: getattr(one, column) for column in RESERVATION_COLUMNS}
        self._db.insert("reservation", at=at, **values)

    def end_reservation(self, one: Reservation) -> None:
        """Record the state of a reservation; delete the row of its lost call, if there is one."""
        self._db.write(
            "DELETE FROM call WHERE stop = ? AND id ="
            " (SELECT call FROM reservation WHERE incarnation = ? AND number = ?)",
            (STOP_LOST, *one.key),
        )
        self._db.write(
            "UPDATE reservation SET state = ?, usd = ?, call = NULL"
            " WHERE incarnation = ? AND number = ?",
            (one.state, one.usd, *one.key),
        )

    def has_reservation(self, incarnation: str, number: int) -> bool:
        row = self._db.row(
            "SELECT 1 FROM reservation WHERE incarnation = ? AND number = ?", (incarnation, number)
        )
        return row is not None

    def reservations(self) -> list[Reservation]:
        """Return the reservations that can still change: open and lost ones."""
        states = (ReservationState.OPEN, ReservationState.LOST)
        condition = "WHERE state IN (?, ?) ORDER BY id"
        rows = self._db.select("reservation", RESERVATION_COLUMNS, condition, states)
        found = [dict(zip(RESERVATION_COLUMNS, row, strict=True)) for row in rows]
        return [msgspec.convert(values, Reservation) for values in found]

    def calls(self, work: str) -> tuple[Call, ...]:
        """Return the stored replies for a piece of work, in order."""
        columns = self._call_columns
        condition = "WHERE work = ? AND stop != ? ORDER BY id"
        rows = self._db.select("call", columns, condition, (work, STOP_LOST))
        return tuple(msgspec.convert(dict(zip(columns, row, strict=True)), Call) for row in rows)

    @cached_property
    def _call_columns(self) -> tuple[str, ...]:
        """The fields of a call that this run stores: one of an older version lacks some."""
        there = self._db.columns("call")
        return tuple(name for name in Call.__struct_fields__ if name in there)

    def worker_up(
        self, slot: str, role: str, incarnation: str, pid: int, at: float, device: str = ""
    ) -> None:
        """Record the incarnation in a slot; a repeated Hello does not count as a new start."""
        self._db.write(
            "INSERT INTO worker"
            " (slot, role, incarnation, pid, state, doing, since, starts, how, device)"
            " VALUES (?, ?, ?, ?, 'up', '', ?, 1, '', ?) ON CONFLICT DO UPDATE SET"
            " starts = starts + (incarnation != excluded.incarnation),"
            " incarnation = excluded.incarnation, pid = excluded.pid, state = 'up',"
            " since = excluded.since, quarantine = '', device = excluded.device",
            (slot, role, incarnation, pid, at, device),
        )

    def workers_up(self) -> list[tuple[str, str, str]]:
        """Return (slot, role, incarnation) of the workers in state `up`."""
        rows = self._db.rows("SELECT slot, role, incarnation FROM worker WHERE state = 'up'")
        return [(slot, role, incarnation) for slot, role, incarnation in rows]

    def worker_doing(self, slot: str, doing: str, at: float) -> None:
        self._db.write(
            "UPDATE worker SET doing = ?, since = ? WHERE slot = ? AND doing != ?",
            (doing, at, slot, doing),
        )

    def worker_gone(self, slot: str, incarnation: str, state: str, reason: str, at: float) -> None:
        self._db.write(
            "UPDATE worker SET state = ?, how = ?, doing = '', since = ?, leases = 0, rtt_ms = NULL"
            " WHERE slot = ? AND incarnation = ?",
            (state, reason, at, slot, incarnation),
        )

    def worker_health(self, slot: str, leases: int, rtt_ms: float | None) -> None:
        self._db.write(
            "UPDATE worker SET leases = ?, rtt_ms = ? WHERE slot = ?", (leases, rtt_ms, slot)
        )

    def worker_quarantined(self, slot: str, reason: str) -> None:
        """Record why a worker's device is quarantined; "": it is not any more."""
        self._db.write(
            "UPDATE worker SET quarantine = ? WHERE slot = ? AND quarantine != ?",
            (reason, slot, reason),
        )

    # --- events ------------------------------------------------------------------------------

    def add_event(self, at: float, what: str, subject: str, detail: str = "") -> None:
        self._db.insert("event", at=at, what=what, subject=subject, detail=detail)

    def spent_usd(self) -> float:
        """Return the dollars that this run's calls have cost so far."""
        usd: float = self._db.value("SELECT COALESCE(SUM(usd), 0.0) FROM call")
        return usd
