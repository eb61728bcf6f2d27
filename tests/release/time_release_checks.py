"""Print how long each release check of a correct CUDA candidate takes (needs a GPU)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from test_release_on_a_card import CORRECT, TASK

from actors.evaluator.judge import Judge
from protocol.settings import Limits
from protocol.values import Task


def main() -> None:
    """Release one candidate; print the duration of each step."""
    judge = Judge("cuda", Limits(), Path(tempfile.mkdtemp()) / "scratch", log_line=print)
    task = Task(name="fused", source=TASK, device="cuda", backend="cuda")
    began, activity = time.monotonic(), "measuring"

    def set_activity(name: str) -> None:
        nonlocal began, activity
        now = time.monotonic()
        print(f"{now - began:7.1f} s  {activity}", flush=True)
        began, activity = now, name

    try:
        judge.measure(task)
        set_activity("building")
        release = judge.release(task, CORRECT, set_activity)
        set_activity("")
        print(release)
    finally:
        judge.close()


if __name__ == "__main__":
    main()
