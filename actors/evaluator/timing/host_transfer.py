"""Fresh calls on the host: the judge writes inputs and reads outputs of a side that stands still.

The clock runs from before a side may go on, with its inputs there, until it stands still again.  No
copy is on it that a patched runner could spare itself, and use the time for its answers: all that
it is asked besides its calls is to say where the outputs lie.
"""

from __future__ import annotations

import os
import secrets
import time
from array import array
from collections.abc import Sequence
from itertools import accumulate

from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import Layout, is_sound, offsets, tensor_leaves, total_bytes
from actors.evaluator.ipc.runner_orders import (
    FromRunner,
    InputAddresses,
    LocateInputs,
    OutputAddresses,
    SetInputBatch,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import InputBatch
from actors.evaluator.sandbox.child_failures import CandidateFault, wrong_result
from actors.evaluator.timing import process_memory
from actors.evaluator.timing.process_memory import MemoryPiece, ProcessMemoryError
from actors.evaluator.timing.sides import SETTLE_S, CandidateFaultError, Sides, TimedWindow
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_statistics import Side
from protocol.values import Outcome, Value

MAX_BYTES_COMPARED = 1 << 20  # bytes of an input that are held against what it was


class SlotContents(Value, frozen=True, kw_only=True):
    """The slots of a side: what lies in each, and where."""

    inputs: tuple[Layout, ...] = ()
    pieces: tuple[tuple[MemoryPiece, ...], ...] = ()


class HostTransfer:
    """Written to and read from."""

    def __init__(
        self, fixture: ReferenceFixture, sides: Sides, spot_checks: SpotChecks, each: int
    ) -> None:
        """`each`: the bytes that one call reads and writes, at most."""
        self._each = each
        self._fixture = fixture
        self._sides = sides
        self._spot_checks = spot_checks
        self._laid: dict[Side, SlotContents] = {
            "reference": SlotContents(),
            "candidate": SlotContents(),
        }

    def is_possible(self) -> bool:
        """Whether this machine lets us into the memory of the reference."""
        batch = self.draw_batch(1)
        try:
            self._set_inputs("reference", batch.inputs)
            self._deliver("reference", batch)
        except ProcessMemoryError:
            return False
        finally:
            batch.close()
            self._fixture.referee.forget(batch.first)
        return True

    def draw_batch(self, calls: int) -> InputBatch:
        """Return fresh inputs, their bytes as they are to lie."""
        return self._fixture.referee.draw_batch(calls, strided=True)

    def timed_batch(self, side: Side, batch: InputBatch) -> TimedWindow:
        """Write, call, read; nothing of a candidate runs before or after."""
        self._set_inputs(side, batch.inputs)
        time.sleep(SETTLE_S)
        try:
            self._deliver(side, batch)
            timed, answer = self._sides.timed_window(side, len(batch.inputs))
            self._read(side, answer, len(batch.inputs))
            self._spot_checks.note_inputs(side, changed=self._changed(side, batch))
        except ProcessMemoryError as error:
            if side == "reference":
                raise self._fixture.failure(error) from error
            reason = f"its memory can't be written or read from outside: {error.strerror}"
            raise CandidateFaultError(
                CandidateFault(outcome=Outcome.REJECTED, stage="time", reason=reason)
            ) from error
        return timed

    def _set_inputs(self, side: Side, inputs: tuple[Layout, ...]) -> None:
        """Have slots that these inputs fit into; what lies there meanwhile is nothing."""
        if self._laid[side].inputs[: len(inputs)] == inputs:
            return
        zeros = shared_memory.allocate(sum(map(total_bytes, inputs)), "zeros")
        try:
            with self._sides.running(side):
                self._sides.ask(side, SetInputBatch(inputs=inputs), [zeros])
                _seconds, answer = self._sides.ask(side, LocateInputs(slots=len(inputs)))
        finally:
            os.close(zeros)
        pieces = (
            _pieces(inputs, _words(answer.places)) if isinstance(answer, InputAddresses) else None
        )
        if pieces is None:
            raise CandidateFaultError(
                wrong_result("in a timed block: its inputs are not where they were put", "time")
            )
        self._laid[side] = SlotContents(inputs=inputs, pieces=pieces)

    def _deliver(self, side: Side, batch: InputBatch) -> None:
        slots = self._laid[side].pieces[: len(batch.inputs)]
        pieces = [piece for slot in slots for piece in slot]
        process_memory.write(self._sides.frozen_runner_pid(side), batch.buffers[0], pieces)

    def _read(self, side: Side, answer: FromRunner, calls: int) -> None:
        """Put some outputs aside; which ones is drawn only now."""
        outputs, places = _output_addresses(answer, calls)
        choices = self._spot_checks.choose(outputs)
        if any(total_bytes(output) > self._each for _call, output in choices):
            raise CandidateFaultError(
                wrong_result("in a timed block: outputs are larger than expected", "time")
            )
        ends = list(accumulate(total_bytes(output) for _call, output in choices))
        begins = [0, *ends[:-1]] if ends else []
        pieces = [
            piece
            for (call, output), begin in zip(choices, begins, strict=True)
            for piece in _pieces_of(output, begin, places[call])
        ]
        size = ends[-1] if ends else 0
        copied = shared_memory.allocate(size, "outputs")
        try:
            process_memory.read(self._sides.frozen_runner_pid(side), copied, pieces)
            parts = list(zip(begins, ends, strict=True))
            self._spot_checks.stash(side, choices, copied, size, parts, strided=True)
        finally:
            os.close(copied)

    def _changed(self, side: Side, batch: InputBatch) -> bool:
        """Whether the inputs of some call, drawn only now, are no longer what they were."""
        pid, parcel = self._sides.frozen_runner_pid(side), batch.buffers[0]
        for piece in self._laid[side].pieces[secrets.randbelow(len(batch.inputs))]:
            size = min(piece.size, MAX_BYTES_COMPARED)
            begin = secrets.randbelow(piece.size - size + 1)
            copied = shared_memory.allocate(size, "inputs")
            try:
                process_memory.read(
                    pid, copied, [MemoryPiece(begin=0, size=size, place=piece.place + begin)]
                )
                if os.pread(copied, size, 0) != os.pread(parcel, size, piece.begin + begin):
                    return True
            finally:
                os.close(copied)
        return False

    def overheads_s(self) -> tuple[float, float]:
        """Return what an empty block takes at least, and one on fresh inputs: going on is in it."""
        return self._sides.overhead_s(), self._sides.timed_window_overhead_s()

    def close(self) -> None:
        """Nothing is kept."""


def _pieces(
    inputs: Sequence[Layout], places: Sequence[int]
) -> tuple[tuple[MemoryPiece, ...], ...] | None:
    """Return where each slot's bytes go from a parcel; None when there are not enough places."""
    found: list[tuple[MemoryPiece, ...]] = []
    begin = used = 0
    for layout in inputs:
        count = sum(1 for _leaf in tensor_leaves(layout))
        if used + count > len(places):
            return None
        found.append(tuple(_pieces_of(layout, begin, places[used : used + count])))
        begin, used = begin + total_bytes(layout), used + count
    return tuple(found)


def _pieces_of(layout: Layout, begin: int, places: Sequence[int]) -> list[MemoryPiece]:
    """Return the pieces of one value whose bytes begin at `begin`."""
    trio = zip(tensor_leaves(layout), offsets(layout), places, strict=False)
    return [
        MemoryPiece(begin=begin + offset, size=leaf.nbytes, place=place)
        for leaf, offset, place in trio
        if leaf.nbytes
    ]


def _output_addresses(answer: FromRunner, calls: int) -> tuple[list[Layout], list[Sequence[int]]]:
    """Return what each output looks like and where its tensors lie, as far as that can be so."""
    missing = CandidateFaultError(
        wrong_result("in a timed block: an output for each call is not there", "time")
    )
    if not isinstance(answer, OutputAddresses) or len(answer.kinds) != 2 * calls:
        raise missing
    kinds = array("H", answer.kinds)
    if max(kinds) >= len(answer.layouts):
        raise missing
    if not all(map(is_sound, answer.layouts)):
        raise CandidateFaultError(
            wrong_result("in a timed block: outputs are not what is expected", "time")
        )
    counts = [sum(1 for _leaf in tensor_leaves(layout)) for layout in answer.layouts]
    places = _words(answer.places)
    ends = list(accumulate(counts[kind] for kind in kinds))
    if ends[-1] != len(places):
        raise missing
    outputs = [answer.layouts[kind] for kind in kinds]
    return outputs, [
        places[end - counts[kind] : end] for end, kind in zip(ends, kinds, strict=True)
    ]


def _words(raw: bytes) -> Sequence[int]:
    return array("Q", raw[: len(raw) // 8 * 8])
