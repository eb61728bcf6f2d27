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

from actors.evaluator.examiner import Hand
from actors.evaluator.racing import memory
from actors.evaluator.racing.memory import Piece, Unreachable
from actors.evaluator.racing.results import Results
from actors.evaluator.racing.sides import SETTLE_S, Refused, Sides, Spent
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Side
from actors.evaluator.verdicts import Fault, wrong
from actors.evaluator.wire import region
from actors.evaluator.wire.layout import Layout, leaves, offsets, sound, total_bytes
from actors.evaluator.wire.runner_orders import FeedAll, FromRunner, Places, Presented, Where
from protocol.values import Value, Word

LOOKED_AT = 1 << 20  # bytes of an input that are held against what it was


class Laid(Value, frozen=True, kw_only=True):
    """The slots of a side: what lies in each, and where."""

    inputs: tuple[Layout, ...] = ()
    pieces: tuple[tuple[Piece, ...], ...] = ()


class Outside:
    """Written to and read from."""

    def __init__(self, standard: Standard, sides: Sides, results: Results, each: int) -> None:
        """`each`: the bytes that one call reads and writes, at most."""
        self._each = each
        self._standard = standard
        self._sides = sides
        self._results = results
        self._laid: dict[Side, Laid] = {"reference": Laid(), "candidate": Laid()}

    def possible(self) -> bool:
        """Whether this machine lets us into the memory of the reference."""
        hand = self.deal(1)
        try:
            self._lay("reference", hand.inputs)
            self._deliver("reference", hand)
        except Unreachable:
            return False
        finally:
            hand.close()
            self._standard.examiner.forget(hand.first)
        return True

    def deal(self, calls: int) -> Hand:
        """Return fresh inputs, their bytes as they are to lie."""
        return self._standard.examiner.deal(calls, strided=True)

    def fresh(self, side: Side, hand: Hand) -> Spent:
        """Write, call, read; nothing of a candidate runs before or after."""
        self._lay(side, hand.inputs)
        time.sleep(SETTLE_S)
        try:
            self._deliver(side, hand)
            spent, answer = self._sides.window(side, len(hand.inputs))
            self._read(side, answer, len(hand.inputs))
            self._results.note_inputs(side, changed=self._changed(side, hand))
        except Unreachable as error:
            if side == "reference":
                raise self._standard.failed(error) from error
            reason = f"its memory can't be written or read from outside: {error.strerror}"
            raise Refused(Fault(word=Word.REJECTED, stage="time", reason=reason)) from error
        return spent

    def _lay(self, side: Side, inputs: tuple[Layout, ...]) -> None:
        """Have slots that these inputs fit into; what lies there meanwhile is nothing."""
        if self._laid[side].inputs[: len(inputs)] == inputs:
            return
        zeros = region.make(sum(map(total_bytes, inputs)), "zeros")
        try:
            with self._sides.moving(side):
                self._sides.ask(side, FeedAll(inputs=inputs), [zeros])
                _seconds, answer = self._sides.ask(side, Where(slots=len(inputs)))
        finally:
            os.close(zeros)
        pieces = _pieces(inputs, _words(answer.places)) if isinstance(answer, Places) else None
        if pieces is None:
            raise Refused(wrong("in a timed block: its inputs are not where they were put", "time"))
        self._laid[side] = Laid(inputs=inputs, pieces=pieces)

    def _deliver(self, side: Side, hand: Hand) -> None:
        slots = self._laid[side].pieces[: len(hand.inputs)]
        pieces = [piece for slot in slots for piece in slot]
        memory.write(self._sides.reach(side), hand.parcels[0], pieces)

    def _read(self, side: Side, answer: FromRunner, calls: int) -> None:
        """Put some outputs aside; which ones is drawn only now."""
        outputs, places = _presented(answer, calls)
        choices = self._results.choose(outputs)
        if any(total_bytes(output) > self._each for _call, output in choices):
            raise Refused(wrong("in a timed block: outputs are larger than expected", "time"))
        ends = list(accumulate(total_bytes(output) for _call, output in choices))
        begins = [0, *ends[:-1]] if ends else []
        pieces = [
            piece
            for (call, output), begin in zip(choices, begins, strict=True)
            for piece in _of(output, begin, places[call])
        ]
        size = ends[-1] if ends else 0
        copied = region.make(size, "outputs")
        try:
            memory.read(self._sides.reach(side), copied, pieces)
            parts = list(zip(begins, ends, strict=True))
            self._results.put_aside(side, choices, copied, size, parts, strided=True)
        finally:
            os.close(copied)

    def _changed(self, side: Side, hand: Hand) -> bool:
        """Whether the inputs of some call, drawn only now, are no longer what they were."""
        pid, parcel = self._sides.reach(side), hand.parcels[0]
        for piece in self._laid[side].pieces[secrets.randbelow(len(hand.inputs))]:
            size = min(piece.size, LOOKED_AT)
            begin = secrets.randbelow(piece.size - size + 1)
            copied = region.make(size, "inputs")
            try:
                memory.read(pid, copied, [Piece(begin=0, size=size, place=piece.place + begin)])
                if os.pread(copied, size, 0) != os.pread(parcel, size, piece.begin + begin):
                    return True
            finally:
                os.close(copied)
        return False

    def overheads_s(self) -> tuple[float, float]:
        """Return what an empty block takes at least, and one on fresh inputs: going on is in it."""
        return self._sides.overhead_s(), self._sides.window_overhead_s()

    def close(self) -> None:
        """Nothing is kept."""


def _pieces(
    inputs: Sequence[Layout], places: Sequence[int]
) -> tuple[tuple[Piece, ...], ...] | None:
    """Return where each slot's bytes go from a parcel; None when there are not enough places."""
    found: list[tuple[Piece, ...]] = []
    begin = used = 0
    for layout in inputs:
        count = sum(1 for _leaf in leaves(layout))
        if used + count > len(places):
            return None
        found.append(tuple(_of(layout, begin, places[used : used + count])))
        begin, used = begin + total_bytes(layout), used + count
    return tuple(found)


def _of(layout: Layout, begin: int, places: Sequence[int]) -> list[Piece]:
    """Return the pieces of one value whose bytes begin at `begin`."""
    trio = zip(leaves(layout), offsets(layout), places, strict=False)
    return [
        Piece(begin=begin + offset, size=leaf.nbytes, place=place)
        for leaf, offset, place in trio
        if leaf.nbytes
    ]


def _presented(answer: FromRunner, calls: int) -> tuple[list[Layout], list[Sequence[int]]]:
    """Return what each output looks like and where its tensors lie, as far as that can be so."""
    missing = Refused(wrong("in a timed block: an output for each call is not there", "time"))
    if not isinstance(answer, Presented) or len(answer.kinds) != 2 * calls:
        raise missing
    kinds = array("H", answer.kinds)
    if max(kinds) >= len(answer.layouts):
        raise missing
    if not all(map(sound, answer.layouts)):
        raise Refused(wrong("in a timed block: outputs are not what is expected", "time"))
    counts = [sum(1 for _leaf in leaves(layout)) for layout in answer.layouts]
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
