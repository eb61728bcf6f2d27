"""Failpoints: named moments in our processes at which a test makes something go wrong.

Armed by `STARK_FAILPOINTS`, for instance `coordinator.before-commit=kill@3;coder.after-spool=stop`:

    PLACE.POINT=ACTION[:SECONDS][@HIT|@each|%PROBABILITY]

PLACE is a role or a slot (`evaluator`, `evaluator-1`).  ACTION is kill (-9), stop (SIGSTOP), sleep,
raise, and for a message about to be sent drop, duplicate or corrupt.  Without `@` it happens at
the first hit, with `@3` at the third in one process.  Both happen once in a run: a marker file in
`RUN/failpoints` lets later processes pass.  `@each` and `%` have no such limit; the draws of `%`
come from `STARK_FAILPOINTS_SEED`.

Every process of a run calls `arm` at its start and `hit` at its points; an unarmed point costs the
check of an empty dict.  `POINTS` lists all points, so that a typo is found at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import get_args

from protocol import messages
from protocol.values import AGENT_ROLES, Role

FAILPOINTS_VARIABLE = "STARK_FAILPOINTS"
SEED_VARIABLE = "STARK_FAILPOINTS_SEED"
MARKER_FOLDER = "failpoints"
ACTIONS = ("kill", "stop", "sleep", "raise")
WIRE_ACTIONS = ("drop", "duplicate", "corrupt")
SLEEP_S = 1.0
NOT_MESSAGEPACK = b"\xc1"


def _send_points(*unions: object) -> frozenset[str]:
    """Return the points around every message: before and after sending it."""
    names = [kind.__name__ for union in unions for kind in get_args(union)]
    return frozenset(f"{moment}.{name}" for name in names for moment in ("send", "sent"))


def _receive_points(*unions: object) -> frozenset[str]:
    names = [kind.__name__ for union in unions for kind in get_args(union)]
    return frozenset(f"{moment}.{name}" for name in names for moment in ("hear", "heard"))


_WORKER = frozenset({"before-work", "after-work"})
_MODEL_CALLS = frozenset({"before-call", "after-call", "after-spool", "after-stored", "after-drop"})
_AGENT = (
    _WORKER | _MODEL_CALLS | _send_points(messages.FromAgent) | _receive_points(messages.ToWorker)
)
POINTS: dict[str, frozenset[str]] = {
    "coordinator": frozenset({"before-commit", "after-commit", "after-told"})
    | {f"directive.{moment}" for moment in ("taken", "applied", "committed", "removed")}
    | _receive_points(messages.ToCoordinator)
    | _send_points(messages.ToWorker),
    **{role: _AGENT for role in AGENT_ROLES},
    Role.EVALUATOR: _WORKER
    | {"before-child", "after-child"}
    | _send_points(messages.FromEvaluator)
    | _receive_points(messages.ToWorker),
    Role.SUPERVISOR: frozenset({"before-spawn", "after-spawn", "before-reap", "after-reap"})
    | _send_points(messages.FromSupervisor)
    | _receive_points(messages.ToWorker),
}


class FailpointError(Exception):
    """Raised by the action `raise`; no code of ours expects it."""


@dataclass(kw_only=True)
class Failpoint:
    """One armed point of this process."""

    place: str
    point: str
    action: str
    seconds: float = SLEEP_S
    hit_number: int = 1  # 0: at each
    probability: float = 1.0
    hits: int = 0
    rng: Random = field(default_factory=Random)
    marker: Path | None = None  # None: not limited to once in a run

    def is_due(self) -> bool:
        """Count a hit; return whether the action is due, and no process has done it before."""
        self.hits += 1
        if self.hit_number and self.hits < self.hit_number:
            return False
        if self.probability < 1.0 and self.rng.random() >= self.probability:
            return False
        return self.marker is None or _create_marker(self.marker)


_armed: dict[str, list[Failpoint]] = {}
_lock = threading.Lock()


def parse(text: str) -> list[Failpoint]:
    """Return the failpoints in `text`; raise ValueError with one line on a mistake."""
    return [_parse_one(part.strip()) for part in text.split(";") if part.strip()]


def arm(slot: str, run_dir: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Arm the environment's failpoints for the process in `slot`; raise ValueError on a typo."""
    _armed.clear()
    role = slot.partition("@")[0].rstrip("0123456789").rstrip("-")
    for number, failpoint in enumerate(parse(environ.get(FAILPOINTS_VARIABLE, ""))):
        if failpoint.place not in (slot, role):
            continue
        seed = f"{environ.get(SEED_VARIABLE, '0')}/{number}/{slot}"
        failpoint.rng = Random(seed)  # noqa: S311  # a test that failed must fail again
        if failpoint.hit_number and failpoint.probability == 1.0:
            failpoint.marker = (
                run_dir / MARKER_FOLDER / f"{number}.{failpoint.place}.{failpoint.point}"
            )
        _armed.setdefault(failpoint.point, []).append(failpoint)


def hit(point: str) -> None:
    """Pass a point: do the armed actions that are due, if there are any."""
    if _armed:
        for action, seconds in _due(point):
            _act(point, action, seconds)


def frames_to_send(message: messages.Message, frames: list[bytes]) -> list[list[bytes]]:
    """Return the frames to send in place of `frames`; usually these, once."""
    if not _armed:
        return [frames]
    out = [frames]
    point = f"send.{type(message).__name__}"
    for action, seconds in _due(point):
        match action:
            case "drop":
                out = []
            case "duplicate":
                out = out * 2
            case "corrupt":
                out = [[frames[0], NOT_MESSAGEPACK + frames[1][1:]]]
            case _:
                _act(point, action, seconds)
    return out


def hit_message(moment: str, message: object) -> None:
    """Pass the point `MOMENT.MESSAGE`; moments are sent, hear and heard."""
    if _armed:
        hit(f"{moment}.{type(message).__name__}")


def _due(point: str) -> list[tuple[str, float]]:
    with _lock:
        found = [one for one in _armed.get(point, ()) if one.is_due()]
    return [(one.action, one.seconds) for one in found]


def _act(point: str, action: str, seconds: float) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(seconds)
        case "raise":
            raise FailpointError(f"failpoint {point}")


def _create_marker(marker: Path) -> bool:
    """Create the marker file; return whether it did not exist."""
    marker.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _parse_one(text: str) -> Failpoint:
    where, equals, action_text = text.partition("=")
    place, dot, point = where.strip().partition(".")
    if not (equals and dot):
        raise ValueError(f"{FAILPOINTS_VARIABLE}: expected PLACE.POINT=ACTION, got {text!r}")
    known = POINTS.get(place.rstrip("0123456789").rstrip("-"))
    if known is None:
        raise ValueError(
            f"{FAILPOINTS_VARIABLE}: no place {place!r}: expected {', '.join(POINTS)}, or a slot"
        )
    if point not in known:
        raise ValueError(f"{FAILPOINTS_VARIABLE}: {place} has no point {point!r}")
    action, percent, probability = action_text.strip().partition("%")
    action, _, hit = action.partition("@")
    action, _, seconds = action.partition(":")
    allowed = (*ACTIONS, *WIRE_ACTIONS) if point.startswith("send.") else ACTIONS
    if action not in allowed:
        raise ValueError(
            f"{FAILPOINTS_VARIABLE}: {where} can't {action!r}: expected {', '.join(allowed)}"
        )
    try:
        return Failpoint(
            place=place,
            point=point,
            action=action,
            seconds=float(seconds) if seconds else SLEEP_S,
            hit_number=0 if hit == "each" else int(hit or 1),
            probability=float(probability) if percent else 1.0,
        )
    except ValueError as error:
        raise ValueError(
            f"{FAILPOINTS_VARIABLE}: a number in {text!r} can't be read: {error}"
        ) from error
