"""The interface of a screen, and the plain screen: a line an event, for pipes, files and logs."""

from __future__ import annotations

import math
from typing import Protocol

from actors.supervisor.reporting import formatting
from actors.supervisor.reporting.snapshot import Snapshot
from actors.supervisor.reporting.worker_status import WorkerStatus
from protocol.settings import Settings

WAIT_NOTICE_S = 5.0  # a shorter wait is not reported


class TextStream(Protocol):
    """A text stream that lines are written to."""

    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...


class Screen(Protocol):
    """A view of a run for its user."""

    def say(self, line: str) -> None:
        """Show one line about an event; the line stays readable."""

    def show(self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        """Show the run as it is now; called a few times a second."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def opening_lines(settings: Settings, folder: str) -> tuple[str, ...]:
    """Return the first lines of a run: folder, tasks, device, model."""
    return (
        f"run {folder}: {', '.join(settings.tasks)} on {settings.device},"
        f" {settings.search.budget} attempts each, {settings.evaluators} evaluators",
        f"model {formatting.model_line(settings)}",
    )


class PlainScreen:
    """Lines only; each recorded attempt gets one line."""

    def __init__(self, stream: TextStream, *, resumed: bool = False) -> None:
        self._stream = stream
        self._resumed = resumed
        self._shown: set[tuple[str, int]] = set()
        self._shown_again: set[tuple[str, int]] = set()  # after they were judged again
        self._measured: set[str] = set()
        self._waits: dict[str, float] = {}  # slot -> since when, or infinity once it was shown

    def say(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # The reader has ended (`| head`): the run goes on, its results are in the folder.
            self._stream = _NullStream()
        except OSError:
            pass  # a file on a full disk: a missing line must not end the run

    def show(self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        if self._resumed and snapshot.tasks:
            self._resumed = False
            self._shown = {
                (task.name, node.number) for task in snapshot.tasks for node in task.nodes
            }
            self._shown_again = {
                (task.name, node.number)
                for task in snapshot.tasks
                for node in task.nodes
                if node.is_judged_again
            }
            self._measured = {task.name for task in snapshot.tasks if task.reference}
            budget = sum(task.budget for task in snapshot.tasks)
            self.say(f"resumed: {snapshot.recorded} of {budget} attempts are recorded already")
        for task in snapshot.tasks:
            if task.reference is not None and task.name not in self._measured:
                self._measured.add(task.name)
                name = task.reference.device.name or "this machine"
                self.say(
                    f"{task.name}: reference {formatting.duration(task.reference.eager_us)} on "
                    f"{name}"
                )
                for note in task.reference.notes:
                    self.say(f"{task.name}: {note}")
            for node in task.attempts:
                if (task.name, node.number) not in self._shown:
                    self._shown.add((task.name, node.number))
                    self.say(formatting.node_line(task, node))
            for node in task.attempts:
                if node.is_judged_again and (task.name, node.number) not in self._shown_again:
                    self._shown_again.add((task.name, node.number))
                    self.say(formatting.second_look_line(task, node))
        self._show_waits(workers, elapsed_s)

    def _show_waits(self, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        """Show once each long wait of a worker: for a model, for permission to ask, for a task."""
        for worker in workers:
            if not worker.activity.startswith("waiting"):
                self._waits.pop(worker.slot, None)
            elif elapsed_s - self._waits.setdefault(worker.slot, elapsed_s) >= WAIT_NOTICE_S:
                self._waits[worker.slot] = math.inf
                activity = worker.activity.replace("(limit", f"({WAIT_NOTICE_S:.0f} s; limit")
                self.say(f"{worker.slot}: {activity}")

    def close(self) -> None:
        """Do nothing: lines need no cleanup."""


class _NullStream:
    """A stream that discards its text."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Do nothing."""
