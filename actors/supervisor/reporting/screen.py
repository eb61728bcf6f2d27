"""What a screen is, and the plain one: a line an event, for pipes, files and logs."""

from __future__ import annotations

import math
from typing import Protocol

from actors.supervisor.reporting import formatting
from actors.supervisor.reporting.snapshot import Snapshot
from actors.supervisor.reporting.worker_status import WorkerStatus
from protocol.settings import Settings

WAIT_NOTICE_S = 5.0  # what passes sooner is nobody's business


class TextStream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...


class Screen(Protocol):
    """Where people see a run."""

    def say(self, line: str) -> None:
        """Tell something that happened; stays readable."""

    def show(self, snapshot: Snapshot, crew: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        """Show the run as it is now; called a few times a second."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def opening_lines(settings: Settings, folder: str) -> tuple[str, ...]:
    """Return the first lines of a run: where, what, on which device, by which model."""
    return (
        f"run {folder}: {', '.join(settings.tasks)} on {settings.device},"
        f" {settings.search.budget} attempts each, {settings.evaluators} evaluators",
        f"model {formatting.model_line(settings)}",
    )


class PlainScreen:
    """Lines only; each recorded attempt is told once."""

    def __init__(self, stream: TextStream, *, resumed: bool = False) -> None:
        self._stream = stream
        self._resumed = resumed
        self._told: set[tuple[str, int]] = set()
        self._told_again: set[tuple[str, int]] = set()  # that they were judged again
        self._measured: set[str] = set()
        self._waits: dict[str, float] = {}  # slot -> since when, or infinity once it was told

    def say(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # The reader has gone (`| head`): the run goes on, its results are in the folder.
            self._stream = _NullStream()
        except OSError:
            pass  # a file on a disk that is full: what a person misses must not end the run

    def show(self, snapshot: Snapshot, crew: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        if self._resumed and snapshot.tasks:
            self._resumed = False
            self._told = {
                (task.name, node.number) for task in snapshot.tasks for node in task.nodes
            }
            self._told_again = {
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
                if (task.name, node.number) not in self._told:
                    self._told.add((task.name, node.number))
                    self.say(formatting.node_line(task, node))
            for node in task.attempts:
                if node.is_judged_again and (task.name, node.number) not in self._told_again:
                    self._told_again.add((task.name, node.number))
                    self.say(formatting.second_look_line(task, node))
        self._tell_waits(crew, elapsed_s)

    def _tell_waits(self, crew: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        """Say once what is waited for longer than a moment: a model, leave to ask it, a task."""
        for worker in crew:
            if not worker.activity.startswith("waiting"):
                self._waits.pop(worker.slot, None)
            elif elapsed_s - self._waits.setdefault(worker.slot, elapsed_s) >= WAIT_NOTICE_S:
                self._waits[worker.slot] = math.inf
                said = worker.activity.replace("(limit", f"({WAIT_NOTICE_S:.0f} s; limit")
                self.say(f"{worker.slot}: {said}")

    def close(self) -> None:
        """Nothing to leave."""


class _NullStream:
    """A stream that swallows what is written."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""
