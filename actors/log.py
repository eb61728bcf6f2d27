"""The log of an actor in the run folder, one line an event.

`logs/SLOT.log` is for people who follow it, `logs/SLOT.jsonl` has the same events for programs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Make imports of an optional package fail in this block, unless it is there already."""
    is_new = package not in sys.modules
    if is_new:
        sys.modules[package] = None  # type: ignore[assignment]  # the documented way to forbid it
    try:
        yield
    finally:
        if is_new:
            del sys.modules[package]


# structlog imports rich for tracebacks in colour, which no log has; each actor would take 0.1 s of
# a processor longer to start.
with _hidden("rich"):
    import structlog
    from structlog.typing import EventDict
    from structlog.typing import FilteringBoundLogger as FilteringBoundLogger

OWN_PLACE = ("timestamp", "level", "event", "work", "slot")  # in a plain line
TRACEBACKS = structlog.processors.ExceptionRenderer(
    # Local variables hold prompts, sources and keys: they stay out of the log.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)
)


class LogFile:
    """A log file that drops lines when the disk is full, and does not raise."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self.dropped = 0

    def write(self, line: str) -> None:
        try:
            self._file.write(line)
        except OSError:
            self.dropped += 1

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


class PlainLines:
    """A processor that also writes each event as plain text: time, work, event, fields."""

    def __init__(self, file: LogFile) -> None:
        self._file = file

    def __call__(self, _logger: object, _method: str, line: EventDict) -> EventDict:
        self._file.write(plain_line(line) + "\n")
        return line


def plain_line(line: EventDict) -> str:
    """Return one event as a line: `09:42:54.278 gelu/3/evaluate: built, seconds=1.2`."""
    fields = {key: value for key, value in line.items() if key not in OWN_PLACE}
    for trace in fields.pop("exception", None) or ():  # the whole of it is in the other file
        fields[trace["exc_type"]] = trace["exc_value"]
    work = f"{line['work']}: " if "work" in line else ""
    level = f"{line['level'].upper()} " if line["level"] != "info" else ""
    values = "".join(
        f", {key}={_short(value)}" for key, value in fields.items() if value is not None
    )
    text = f"{line['timestamp'][11:23]} {level}{work}{line['event']}{values}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _short(value: object) -> object:
    """Return a figure with the digits that a person reads; the other file has all of them."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def open_log(run_dir: Path, slot: str) -> FilteringBoundLogger:
    """Return a logger that appends to `logs/SLOT.log` and `logs/SLOT.jsonl`, a line a call."""
    folder = run_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    file = LogFile(folder / f"{slot}.jsonl")
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(file),  # type: ignore[arg-type]  # it needs write and flush
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            TRACEBACKS,
            PlainLines(LogFile(folder / f"{slot}.log")),
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
    return logger.bind(slot=slot)
