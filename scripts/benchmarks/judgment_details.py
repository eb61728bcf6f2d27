"""All that was measured in judgments, a JSON line each, to find the cause of a false one later.

A line has the verdict's figures, where its seconds went, and for each process of the candidate what
every block took: both sides' and empty ones, with the parts that the figure is made of, and each
group's clocks and temperature.  Microseconds, unless a name says otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from actors.evaluator import evaluation
from actors.evaluator.ipc.runner_orders import CallDependent, CallRepeatedly, FromRunner
from actors.evaluator.reference.fixture import TaskProblem
from actors.evaluator.timing.net_time import BlockTimes, TimedWindow
from actors.evaluator.timing.paired_benchmark import PairedBenchmark
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side, TimedGroup
from protocol.values import Value, Verdict


class RecordedBlock(Value, frozen=True, kw_only=True, array_like=True):
    """What one block took, as the judge's clock saw it."""

    kind: str  # "reference", "candidate", "empty"
    calls: int
    block_us: float
    hand_over_us: float
    waited_us: float  # of its threads, for a processor
    told_call_us: float  # a call, by the side's own clock; the judge believes the reference alone
    left_us: float


class RecordedGroup(Value, frozen=True, kw_only=True, array_like=True):
    """One group: microseconds a call in its blocks, and what the sensors said after it."""

    blocks: int  # recorded before its end
    reference_us: tuple[float, float]
    candidate_us: tuple[float, float]
    reference_wait_share: float
    candidate_wait_share: float
    sm_mhz: int = 0
    memory_mhz: int = 0
    celsius: int = 0
    throttled: str = ""


class RecordedProcess(msgspec.Struct, kw_only=True):
    """The timing of one process of a candidate."""

    processor: int | None
    blocks: list[RecordedBlock] = []
    groups: list[RecordedGroup] = []
    dependent: list[RecordedBlock] = []  # blocks in which outputs decide inputs


class RecordedTimes(BlockTimes):
    """Block times that are written down as well."""

    def __init__(self, *, on_host: bool, process: RecordedProcess, told_s: list[float]) -> None:
        """`told_s`: what the candidate has told of its last blocks' calls."""
        super().__init__(on_host=on_host)
        self._process = process
        self._told_s = told_s

    def add(self, side: Side, window: TimedWindow, calls: int) -> None:
        """Add a block of a side."""
        told_s = window.call_s if side == "reference" else self._told_s[-1]
        self._process.blocks.append(_block(side, window, calls, told_s))
        super().add(side, window, calls)

    def add_empty(self, window: TimedWindow, calls: int) -> None:
        """Add an empty block."""
        self._process.blocks.append(_block("empty", window, calls, 0.0))
        super().add_empty(window, calls)


def _block(kind: str, window: TimedWindow, calls: int, told_s: float) -> RecordedBlock:
    return RecordedBlock(
        kind=kind,
        calls=calls,
        block_us=_us(window.block_s),
        hand_over_us=_us(window.hand_over_s),
        waited_us=_us(window.waited_s),
        told_call_us=_us(told_s),
        left_us=_us(window.left_s),
    )


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


@contextmanager
def recorded_processes() -> Iterator[list[RecordedProcess]]:
    """Have all timing written down; yield the list, which the caller empties."""
    processes: list[RecordedProcess] = []

    class RecordedBenchmark(PairedBenchmark):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.record = RecordedProcess(processor=self.processor)
            processes.append(self.record)
            self._block_times = RecordedTimes(
                on_host=self._on_host, process=self.record, told_s=self._sides.told_call_s
            )

            self._record_dependent()

        def _record_dependent(self) -> None:
            sides, timed_window = self._sides, self._sides.timed_window

            def recorded(
                side: Side, block: CallRepeatedly, *others: Any, **named: Any
            ) -> tuple[TimedWindow, FromRunner]:
                window, answer = timed_window(side, block, *others, **named)
                if isinstance(block, CallDependent):
                    kind = f"{side}, empty" if block.is_empty else side
                    told_s = window.call_s if side == "reference" else sides.told_call_s[-1]
                    self.record.dependent.append(_block(kind, window, block.calls, told_s))
                return window, answer

            vars(sides)["timed_window"] = recorded

        def _group(self) -> TimedGroup:
            group = super()._group()
            reading = self.reading
            self.record.groups.append(
                RecordedGroup(
                    blocks=len(self.record.blocks),
                    reference_us=group.reference,
                    candidate_us=group.candidate,
                    reference_wait_share=group.reference_wait_share,
                    candidate_wait_share=group.candidate_wait_share,
                    sm_mhz=reading.sm_mhz if reading else 0,
                    memory_mhz=reading.memory_mhz if reading else 0,
                    celsius=reading.celsius if reading else 0,
                    throttled=reading.throttled if reading else "",
                )
            )
            return group

    with mock.patch.object(evaluation, "PairedBenchmark", RecordedBenchmark):
        yield processes


class DetailsFile:
    """The file of a command's judgments; without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            head = {"policy": msgspec.structs.asdict(POLICY), "load": os.getloadavg()}
            path.write_text(f"{json.dumps(head)}\n", encoding="utf-8")

    def add(
        self,
        about: Mapping[str, object],
        verdict: Verdict | TaskProblem,
        stages_s: Mapping[str, float],
        processes: list[RecordedProcess],
    ) -> None:
        """Write a judgment; `about`: what was judged, and how."""
        if self._path is None:
            return
        line = {
            **about,
            "verdict": msgspec.to_builtins(verdict),
            "stages_s": {stage: round(seconds, 3) for stage, seconds in stages_s.items()},
            "load": os.getloadavg()[0],
            "processes": msgspec.to_builtins(processes),
        }
        line["verdict"].pop("facts", None)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")
