"""Print how long each release check of a correct CUDA candidate takes (needs a GPU)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from test_release_on_a_card import CORRECT, TASK

from actors.evaluator.judge import Judge
from actors.work_context import StandaloneContext
from protocol.settings import Limits
from protocol.values import Task


class PrintedSteps(StandaloneContext):
    """A context that prints how long each activity took."""

    def __init__(self) -> None:
        self._began, self._activity = time.monotonic(), "measuring"

    def set_activity(self, text: str) -> None:
        """Print the last activity with its seconds; begin another."""
        now = time.monotonic()
        print(f"{now - self._began:7.1f} s  {self._activity}", flush=True)
        self._began, self._activity = now, text


def main() -> None:
    """Release one candidate; print the duration of each step."""
    judge = Judge("cuda", Limits(), Path(tempfile.mkdtemp()) / "scratch", log_line=print)
    task = Task(name="fused", source=TASK, device="cuda", backend="cuda")
    steps = PrintedSteps()
    try:
        judge.measure(task)
        steps.set_activity("building")
        found = judge.release(task, CORRECT, steps)
        steps.set_activity("")
        print(found)
    finally:
        judge.close()


if __name__ == "__main__":
    main()
