"""What the log says while headers for fast builds are prepared."""

from __future__ import annotations

import threading

import pytest

from actors.evaluator.build.toolkits import told_if_long


def test_a_long_preparation_is_told_while_it_lasts() -> None:
    """A user's first verdict waits for it: the log says for what."""
    lines: list[str] = []
    told = threading.Event()

    def log_line(text: str) -> None:
        lines.append(text)
        told.set()

    with told_if_long(log_line, after_s=0.01):
        assert told.wait(20.0)
    assert len(lines) == 1
    assert "preparing torch's headers" in lines[0]


def test_headers_that_are_there_are_not_told() -> None:
    """Each candidate asks for its headers; the log has no line for each."""
    lines: list[str] = []
    with told_if_long(lines.append, after_s=30.0):
        pass
    assert lines == []


def test_a_failure_is_passed_on() -> None:
    """The caller says why fast builds are off."""
    with pytest.raises(KeyError), told_if_long(list[str]().append, after_s=30.0):
        raise KeyError
