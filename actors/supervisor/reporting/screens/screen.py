"""The interface of a screen, and the plain screen: a line an event, for pipes, files and logs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from actors.supervisor.reporting.screens import run_progress
from protocol.settings import Settings

WAIT_NOTICE_S = 5.0  # a shorter wait, or a shorter measurement of a reference, is not reported
SUMMARY_S = 300.0  # how often a line sums up a run that gets on


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
        f" {formatting.counted(settings.search.budget, 'attempt')} for each task,"
        f" {formatting.counted(settings.evaluators, 'evaluator')}",
        f"model {formatting.model_line(settings)}",
    )


class PlainScreen:
    """Lines only; each recorded attempt gets one line."""

    def __init__(
        self,
        stream: TextStream,
        *,
        resumed: bool = False,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings`: of the run, for the lines that sum it up; without them there are none."""
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._held = ""  # why the run does not go on
        self._next_summary = SUMMARY_S
        self._summed_up = 0  # attempts in the last line that summed up
        self._resumed = resumed
        self._shown: set[tuple[str, int]] = set()
        self._shown_again: set[tuple[str, int]] = set()  # after they were judged again
        self._measured: set[str] = set()
        # Slot and what it waits for -> since when, or infinity once it was shown.
        self._waits: dict[tuple[str, str], float] = {}

    def say(self, line: str) -> None:
        try:
            self._stream.write(formatting.printable(line) + "\n")
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
            self._measured = {
                task.name for task in snapshot.tasks if task.reference or task.problem
            }
            budget = sum(task.budget for task in snapshot.tasks)
            self.say(f"resumed: {snapshot.recorded} of {budget} attempts are recorded already")
        is_measured = any(task.reference is not None for task in snapshot.tasks)
        for task in snapshot.tasks:
            if task.name not in self._measured and (
                # Where no task can be measured, the run ends with the reasons.
                task.reference is not None or (task.problem and is_measured)
            ):
                self._measured.add(task.name)
                self._show_reference(task)
            for node in task.attempts:
                if (task.name, node.number) not in self._shown:
                    self._shown.add((task.name, node.number))
                    self.say(formatting.node_line(task, node))
            for node in task.attempts:
                if node.is_judged_again and (task.name, node.number) not in self._shown_again:
                    self._shown_again.add((task.name, node.number))
                    self.say(formatting.second_look_line(task, node))
        self._show_waits(workers, elapsed_s)
        self._show_held(snapshot)
        self._sum_up(snapshot, elapsed_s)

    def _show_reference(self, task: TaskState) -> None:
        if task.reference is None:
            self.say(formatting.best_line(task))
            return
        name = task.reference.device.name or "this machine"
        self.say(f"{task.name}: reference {formatting.duration(task.reference.eager_us)} on {name}")
        for note in task.reference.notes:
            self.say(f"{task.name}: {note}")

    def _show_waits(self, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        """Show once each long wait of a worker, and each long measurement of a reference.

        A worker waits for a model, for permission to ask it, or for a task; an evaluator for its
        device, or for room on its disk.
        """
        waiting = {}
        for worker in workers:
            if worker.is_quarantined:
                waiting[worker.slot, "quarantine"] = f"nothing is judged there: {worker.cause}"
            elif worker.activity.startswith("waiting"):
                waiting[worker.slot, "waiting"] = worker.activity
            elif worker.activity.startswith("measuring"):
                waiting[worker.slot, worker.activity] = worker.activity
        self._waits = {key: self._waits.get(key, elapsed_s) for key in waiting}
        for key, activity in waiting.items():
            if elapsed_s - self._waits[key] >= WAIT_NOTICE_S:
                self._waits[key] = math.inf
                text = activity.replace("(limit", f"({WAIT_NOTICE_S:.0f} s; limit")
                self.say(f"{key[0]}: {text}")

    def _show_held(self, snapshot: Snapshot) -> None:
        """Show when a person pauses the run or lets it go on."""
        is_held = snapshot.is_paused or snapshot.is_finishing
        held = run_progress.state(snapshot) if is_held and snapshot.status == "running" else ""
        if held != self._held and snapshot.status == "running":
            self._held = held
            self.say(held or "the run goes on")

    def _sum_up(self, snapshot: Snapshot, elapsed_s: float) -> None:
        """Show every few minutes how far the run is, if it got on."""
        if elapsed_s < self._next_summary or self._settings is None:
            return
        self._next_summary = elapsed_s + SUMMARY_S
        if snapshot.recorded > self._summed_up:
            self._summed_up = snapshot.recorded
            phrases = run_progress.summary(snapshot, self._settings, self._clock(), elapsed_s)
            self.say(f"after {formatting.clock_time(elapsed_s)}: {', '.join(phrases)}")

    def close(self) -> None:
        """Do nothing: lines need no cleanup."""


class _NullStream:
    """A stream that discards its text."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Do nothing."""
