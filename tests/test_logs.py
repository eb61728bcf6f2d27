"""An actor's log: one file for people who follow it, one for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import log as log_module
from actors.log import LogFile, open_log, plain_line


@pytest.fixture(autouse=True)
def _close_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files at the test's end: a process keeps its log open for its whole life."""
    opened: list[LogFile] = []

    class ClosedLogFile(LogFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            opened.append(self)

    monkeypatch.setattr(log_module, "LogFile", ClosedLogFile)
    yield
    for file in opened:
        file._file.close()


def test_both_files_have_every_event(tmp_path: Path) -> None:
    """`tail -f` shows a line an event in words; a program reads the same one as JSON."""
    log = open_log(tmp_path, "evaluator-0")
    log.bind(work="gelu/3/evaluate").info(
        "built", how="compiled by c++", seconds=1.25000001, reason=None
    )
    (line,) = (tmp_path / "logs" / "evaluator-0.log").read_text().splitlines()
    (stored,) = map(json.loads, (tmp_path / "logs" / "evaluator-0.jsonl").read_text().splitlines())
    time, _, text = line.partition(" ")
    assert "gelu/3/evaluate: built, how=compiled by c++, seconds=1.25" == text
    assert stored["timestamp"][11:23] == time
    assert ("built", "gelu/3/evaluate", "evaluator-0", "info", 1.25000001) == tuple(
        stored[key] for key in ("event", "work", "slot", "level", "seconds")
    )


def test_a_candidates_text_stays_on_its_line() -> None:
    """Line ends and control sequences of a compiler or a model do not reach the terminal."""
    line = {"timestamp": "2026-01-02T03:04:05.678901Z", "level": "warning", "event": "a\nb",
            "reason": "\x1b[2Jgone\r"}  # fmt: skip
    assert "03:04:05.678 WARNING a\\nb, reason=\\x1b[2Jgone\\r" == plain_line(line)


def test_an_exception_is_one_line_for_people(tmp_path: Path) -> None:
    """The cause is on the line; its frames are in the other file, without local variables."""
    log = open_log(tmp_path, "coder-0")
    try:
        raise ValueError("no such\nthing")
    except ValueError as error:
        log.error("bug", exc_info=error)
    (line,) = (tmp_path / "logs" / "coder-0.log").read_text().splitlines()
    assert line.endswith("ERROR bug, ValueError=no such\\nthing")
    assert "frames" in (tmp_path / "logs" / "coder-0.jsonl").read_text()
