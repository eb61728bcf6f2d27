"""Prints how long each release check of an honest CUDA candidate takes: a program for people."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from test_release_on_a_card import HONEST, TASK

from actors.evaluator.judge import Judge
from protocol.settings import Limits
from protocol.values import Task


def main() -> None:
    """Release one candidate, and print seconds since the last line at each step."""
    judge = Judge("cuda", Limits(), Path(tempfile.mkdtemp()) / "scratch", log_line=print)
    task = Task(name="fused", source=TASK, device="cuda", backend="cuda")
    last = [time.monotonic(), "measuring"]

    def doing(words: str) -> None:
        now = time.monotonic()
        print(f"{now - float(last[0]):7.1f} s  {last[1]}", flush=True)
        last[:] = [now, words]

    try:
        judge.measure(task)
        doing("building")
        found = judge.release(task, HONEST, doing)
        doing("")
        print(found)
    finally:
        judge.close()


if __name__ == "__main__":
    main()
