"""The log of an actor, one JSON line an event: `logs/SLOT.jsonl` in the run folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

import structlog
from structlog.typing import FilteringBoundLogger

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


def open_log(run_dir: Path, slot: str) -> FilteringBoundLogger:
    """Return a logger that appends to `run_dir/logs/SLOT.jsonl`, a line a call."""
    folder = run_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    file = LogFile(folder / f"{slot}.jsonl")
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(file),  # type: ignore[arg-type]  # it needs write and flush
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            TRACEBACKS,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
    return logger.bind(slot=slot)
