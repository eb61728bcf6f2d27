"""Host transfer: the judge writes the inputs and reads the outputs of a frozen side.

The clock starts right before the side may run, with its inputs in place, and stops when the side is
frozen again.  No copy is timed that a patched runner could leave out to gain time for its answers.
Besides its calls, the runner is only asked where the outputs are.
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
from actors.evaluator.sandbox.child_failures import Accusation, wrong_result
from actors.evaluator.timing import process_memory
from actors.evaluator.timing.process_memory import MemoryPiece, ProcessMemoryError
from actors.evaluator.timing.sides import CandidateFaultError, Sides, TimedWindow, rejection
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side
from protocol.values import Value


class SlotContents(Value, frozen=True, kw_only=True):
    """The input slots of a side: the layout of each, and where its bytes are."""

    inputs: tuple[Layout, ...] = ()
    pieces: tuple[tuple[MemoryPiece, ...], ...] = ()


class HostTransfer:
    """The memory of both sides, written and read while they are frozen."""

    def __init__(
        self, fixture: ReferenceFixture, sides: Sides, spot_checks: SpotChecks, bytes_per_call: int
    ) -> None:
        """`bytes_per_call`: the bytes that one call reads and writes, at most."""
        self._bytes_per_call = bytes_per_call
        self._fixture = fixture
        self._sides = sides
        self._spot_checks = spot_checks
        self._slots: dict[Side, SlotContents] = {
            "reference": SlotContents(),
            "candidate": SlotContents(),
        }

    def is_possible(self) -> bool:
        """Whether this machine permits access to the memory of the reference."""
        batch = self.draw_batch(1)
        try:
            self._lay_out_slots("reference", batch.inputs)
            self._write_inputs("reference", batch)
        except ProcessMemoryError:
            return False
        finally:
            batch.close()
            self._fixture.referee.forget(batch.first)
        return True

    def draw_batch(self, calls: int) -> InputBatch:
        """Return fresh inputs, their bytes in the order that their strides say."""
        return self._fixture.referee.draw_batch(calls, strided=True)

    def timed_batch(self, side: Side, batch: InputBatch) -> TimedWindow:
        """Write inputs, call, read outputs; the candidate is frozen before and after."""
        self._lay_out_slots(side, batch.inputs)
        time.sleep(POLICY.settle_s)
        try:
            self._write_inputs(side, batch)
            timed, answer = self._sides.timed_window(side, len(batch.inputs))
            self._stash_some(side, answer, len(batch.inputs))
            self._spot_checks.note_inputs(side, changed=self._has_changed_inputs(side, batch))
        except ProcessMemoryError as error:
            if side == "reference":
                raise self._fixture.failure(error) from error
            reason = f"its memory can't be written or read from outside: {error.strerror}"
            fault = rejection(Accusation.MEMORY_OUT_OF_REACH, reason)
            raise CandidateFaultError(fault) from error
        return timed

    def _lay_out_slots(self, side: Side, inputs: tuple[Layout, ...]) -> None:
        """Have a side make slots that these inputs fit into, filled with zeros."""
        if self._slots[side].inputs[: len(inputs)] == inputs:
            return
        zeros = shared_memory.allocate(sum(map(total_bytes, inputs)), "zeros")
        try:
            with self._sides.running(side):
                self._sides.ask(side, SetInputBatch(inputs=inputs), [zeros])
                _seconds, answer = self._sides.ask(side, LocateInputs(slots=len(inputs)))
        finally:
            os.close(zeros)
        pieces = (
            _pieces(inputs, _addresses(answer.places))
            if isinstance(answer, InputAddresses)
            else None
        )
        if pieces is None:
            raise CandidateFaultError(
                wrong_result("in a timed block: its inputs are not where they were put", "time")
            )
        self._slots[side] = SlotContents(inputs=inputs, pieces=pieces)

    def _write_inputs(self, side: Side, batch: InputBatch) -> None:
        slots = self._slots[side].pieces[: len(batch.inputs)]
        pieces = [piece for slot in slots for piece in slot]
        process_memory.write(self._sides.frozen_runner_pid(side), batch.buffers[0], pieces)

    def _stash_some(self, side: Side, answer: FromRunner, calls: int) -> None:
        """Read some outputs and have them copied; they are drawn by lot only now."""
        outputs, addresses = _output_addresses(answer, calls)
        choices = self._spot_checks.choose(outputs)
        if any(total_bytes(output) > self._bytes_per_call for _call, output in choices):
            raise CandidateFaultError(
                wrong_result("in a timed block: outputs are larger than expected", "time")
            )
        ends = list(accumulate(total_bytes(output) for _call, output in choices))
        begins = [0, *ends[:-1]] if ends else []
        pieces = [
            piece
            for (call, output), begin in zip(choices, begins, strict=True)
            for piece in _pieces_of(output, begin, addresses[call])
        ]
        size = ends[-1] if ends else 0
        copied = shared_memory.allocate(size, "outputs")
        try:
            process_memory.read(self._sides.frozen_runner_pid(side), copied, pieces)
            parts = list(zip(begins, ends, strict=True))
            self._spot_checks.stash(side, choices, copied, size, parts, strided=True)
        finally:
            os.close(copied)

    def _has_changed_inputs(self, side: Side, batch: InputBatch) -> bool:
        """Whether the inputs of one call, drawn by lot only now, are not as they were written."""
        pid, drawn = self._sides.frozen_runner_pid(side), batch.buffers[0]
        for piece in self._slots[side].pieces[secrets.randbelow(len(batch.inputs))]:
            size = min(piece.size, POLICY.max_input_bytes_compared)
            begin = secrets.randbelow(piece.size - size + 1)
            copied = shared_memory.allocate(size, "inputs")
            try:
                process_memory.read(
                    pid, copied, [MemoryPiece(begin=0, size=size, address=piece.address + begin)]
                )
                if os.pread(copied, size, 0) != os.pread(drawn, size, piece.begin + begin):
                    return True
            finally:
                os.close(copied)
        return False

    def overheads_s(self) -> tuple[float, float]:
        """Return what an empty block takes at least, and an empty fresh one, waking up included."""
        return self._sides.overhead_s(), self._sides.timed_window_overhead_s()

    def close(self) -> None:
        """Release nothing: no memory is held between blocks."""


def _pieces(
    inputs: Sequence[Layout], addresses: Sequence[int]
) -> tuple[tuple[MemoryPiece, ...], ...] | None:
    """Return where each slot's bytes belong; None when there are not enough addresses."""
    found: list[tuple[MemoryPiece, ...]] = []
    begin = used = 0
    for layout in inputs:
        count = sum(1 for _leaf in tensor_leaves(layout))
        if used + count > len(addresses):
            return None
        found.append(tuple(_pieces_of(layout, begin, addresses[used : used + count])))
        begin, used = begin + total_bytes(layout), used + count
    return tuple(found)


def _pieces_of(layout: Layout, begin: int, addresses: Sequence[int]) -> list[MemoryPiece]:
    """Return the pieces of one value whose bytes begin at `begin`."""
    tensors = zip(tensor_leaves(layout), offsets(layout), addresses, strict=False)
    return [
        MemoryPiece(begin=begin + offset, size=leaf.nbytes, address=address)
        for leaf, offset, address in tensors
        if leaf.nbytes
    ]


def _output_addresses(answer: FromRunner, calls: int) -> tuple[list[Layout], list[Sequence[int]]]:
    """Return each output's layout and its tensors' addresses; refuse what can't be so."""
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
    addresses = _addresses(answer.places)
    ends = list(accumulate(counts[kind] for kind in kinds))
    if ends[-1] != len(addresses):
        raise missing
    outputs = [answer.layouts[kind] for kind in kinds]
    return outputs, [
        addresses[end - counts[kind] : end] for end, kind in zip(ends, kinds, strict=True)
    ]


def _addresses(raw: bytes) -> Sequence[int]:
    return array("Q", raw[: len(raw) // 8 * 8])
