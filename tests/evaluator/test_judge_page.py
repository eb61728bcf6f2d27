"""The page of the judge's figures, stopped in the middle."""

from __future__ import annotations

import signal
import sys

import pytest

from scripts.benchmarks import judge_page

SUMS_UP = """
import os, signal, sys, time
def stop(*_):
    print("summed up", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
print("a row", flush=True)
time.sleep(0.5)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""


def test_a_page_that_is_stopped_says_so_and_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What there is until then is a page; the status is that of Ctrl-C."""

    def stopped(*_words: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(judge_page, "print_output", stopped)
    assert judge_page.main(["--device", "cpu", "--commit", "abc"]) == 128 + signal.SIGINT
    assert capsys.readouterr().out.endswith("```text\n```\n\nStopped with Ctrl-C before its end.\n")


def test_a_command_that_is_stopped_sums_up(capfd: pytest.CaptureFixture[str]) -> None:
    """Its last lines are on the page, too."""
    # A process that a shell started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            judge_page.print_output([sys.executable, "-c", SUMS_UP], 60.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().out.split() == ["a", "row", "summed", "up"]
