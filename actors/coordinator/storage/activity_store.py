"""The books beside the tree: leases, model calls and the money for them, workers and events."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from actors.coordinator.scheduling.budget import Reservation, ReservationState
from actors.coordinator.storage.database import Database
from protocol.messages import Lease
from protocol.values import STOP_LOST, Call, Value


class LeaseRow(Value, frozen=True, kw_only=True):
    """A lease that was open when the last coordinator ended."""

    epoch: int
    work: str
    slot: str
    incarnation: str
    running: bool


class ActivityStore:
    """Who held what, what was bought, who works."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- leases ------------------------------------------------------------------------------

    def grant(self, epoch: int, work: str, slot: str, incarnation: str, at: float) -> None:
        self._db.write(
            "INSERT INTO lease (epoch, work, slot, incarnation, granted, running)"
            " VALUES (?, ?, ?, ?, ?, 0)",
            (epoch, work, slot, incarnation, at),
        )

    def mark_running(self, epoch: int) -> None:
        self._db.write("UPDATE lease SET running = 1 WHERE epoch = ?", (epoch,))

    def end_lease(self, epoch: int, outcome: str, at: float) -> None:
        self._db.write(
            "UPDATE lease SET ended = ?, outcome = ? WHERE epoch = ?", (at, outcome, epoch)
        )

    def was_granted(self, lease: Lease, incarnation: str) -> bool:
        """Whether that lease is or was that incarnation's."""
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
        """Return how often an evaluator was lost while that work's candidate ran."""
        rows = self._db.rows(
            "SELECT work, COUNT(*) FROM lease WHERE running = 1 AND outcome IN ('lost', 'expired')"
            " GROUP BY work"
        )
        return dict(rows)

    def machine_losses(self) -> dict[str, int]:
        """Return how often a machine fell away while that work's candidate ran on it."""
        rows = self._db.rows(
            "SELECT work, COUNT(*) FROM lease WHERE running = 1 AND outcome = 'cut' GROUP BY work"
        )
        return dict(rows)

    # --- calls and workers -------------------------------------------------------------------

    def add_call(self, work: str, role: str, call: Call, at: float) -> None:
        """Record a bought reply; `has_call` says whether it is here already."""
        self._db.write(
            "INSERT INTO call (work, role, model, request, reply, stop, temperature, effort,"
            " input_tokens, cached_tokens, cache_write_tokens, output_tokens, usd, seconds, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                work,
                role,
                call.model,
                call.request,
                call.reply,
                call.stop,
                call.temperature,
                call.effort,
                call.input_tokens,
                call.cached_tokens,
                call.cache_write_tokens,
                call.output_tokens,
                call.usd,
                call.seconds,
                at,
            ),
        )

    def has_call(self, work: str, request: str) -> bool:
        """Whether a reply to this request is recorded."""
        found = self._db.row(
            "SELECT 1 FROM call WHERE work = ? AND request = ? AND stop != ?",
            (work, request, STOP_LOST),
        )
        return found is not None

    def add_lost_call(self, one: Reservation, at: float, heard: Call | None = None) -> None:
        """Record a call whose reply nobody saw whole, at its most; `heard`: what was, of it."""
        known = heard or Call(model=one.model, request="", reply="")
        lost = replace(known, model=one.model, request="", reply="", stop=STOP_LOST, usd=one.usd)
        self.add_call(one.work, one.role, lost, at)
        self._db.write(
            "UPDATE reservation SET call = (SELECT MAX(id) FROM call)"
            " WHERE incarnation = ? AND number = ?",
            one.key,
        )

    # --- the money for calls -----------------------------------------------------------------

    def add_reservation(self, one: Reservation, at: float) -> None:
        self._db.write(
            "INSERT INTO reservation (incarnation, number, work, request, role, model, usd, state,"
            " call, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                one.incarnation,
                one.number,
                one.work,
                one.request,
                one.role,
                one.model,
                one.usd,
                one.state,
                at,
            ),
        )

    def end_reservation(self, one: Reservation) -> None:
        """Record what became of it; the call that stood for a lost one goes when it is found."""
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
        """Return those that can still matter: calls that may be under way, and lost ones."""
        rows = self._db.rows(
            "SELECT incarnation, number, work, request, role, model, usd, state FROM reservation"
            " WHERE state IN ('open', 'lost') ORDER BY id"
        )
        return [
            Reservation(
                incarnation=incarnation,
                number=number,
                work=work,
                request=request,
                role=role,
                model=model,
                usd=usd,
                state=ReservationState(state),
            )
            for incarnation, number, work, request, role, model, usd, state in rows
        ]

    def calls(self, work: str) -> tuple[Call, ...]:
        """Return the replies already bought for a piece of work, in order."""
        rows = self._db.rows(
            "SELECT model, request, reply, stop, temperature, effort, input_tokens, cached_tokens,"
            " cache_write_tokens, output_tokens, usd, seconds FROM call"
            " WHERE work = ? AND stop != ? ORDER BY id",
            (work, STOP_LOST),
        )
        return tuple(
            msgspec.convert(dict(zip(Call.__struct_fields__, row, strict=True)), Call)
            for row in rows
        )

    def worker_up(self, slot: str, role: str, incarnation: str, pid: int, at: float) -> None:
        """Record who sits in a slot; the same one saying hello again is not a new start."""
        self._db.write(
            "INSERT INTO worker (slot, role, incarnation, pid, state, doing, since, starts, how)"
            " VALUES (?, ?, ?, ?, 'up', '', ?, 1, '') ON CONFLICT DO UPDATE SET"
            " starts = starts + (incarnation != excluded.incarnation),"
            " incarnation = excluded.incarnation, pid = excluded.pid, state = 'up',"
            " since = excluded.since, quarantine = ''",
            (slot, role, incarnation, pid, at),
        )

    def workers_up(self) -> list[tuple[str, str, str]]:
        """Return (slot, role, incarnation) of those who were up when they were last heard of."""
        rows = self._db.rows("SELECT slot, role, incarnation FROM worker WHERE state = 'up'")
        return [(slot, role, incarnation) for slot, role, incarnation in rows]

    def worker_doing(self, slot: str, doing: str, at: float) -> None:
        self._db.write(
            "UPDATE worker SET doing = ?, since = ? WHERE slot = ? AND doing != ?",
            (doing, at, slot, doing),
        )

    def worker_gone(self, slot: str, incarnation: str, state: str, how: str, at: float) -> None:
        self._db.write(
            "UPDATE worker SET state = ?, how = ?, doing = '', since = ?, leases = 0, rtt_ms = NULL"
            " WHERE slot = ? AND incarnation = ?",
            (state, how, at, slot, incarnation),
        )

    def worker_health(self, slot: str, leases: int, rtt_ms: float | None) -> None:
        self._db.write(
            "UPDATE worker SET leases = ?, rtt_ms = ? WHERE slot = ?", (leases, rtt_ms, slot)
        )

    def worker_quarantined(self, slot: str, why: str) -> None:
        """Record why nothing is judged on a worker's device; "" when it is well again."""
        self._db.write(
            "UPDATE worker SET quarantine = ? WHERE slot = ? AND quarantine != ?", (why, slot, why)
        )

    # --- events ------------------------------------------------------------------------------

    def add_event(self, at: float, what: str, subject: str, detail: str = "") -> None:
        self._db.write(
            "INSERT INTO event (at, what, subject, detail) VALUES (?, ?, ?, ?)",
            (at, what, subject, detail),
        )

    def spent_usd(self) -> float:
        """Return the dollars paid so far, in this run."""
        usd: float = self._db.value("SELECT COALESCE(SUM(usd), 0.0) FROM call")
        return usd
