"""The judge's hold on a task's referee: draws inputs, keeps what is expected of them, compares.

The referee runs the task's own code, which is trusted; what it compares are bytes that a candidate
wrote.  If it gives no good answer that is nobody's verdict: `failed` makes the error.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Literal

from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.verdicts import Fault, fault_of
from actors.evaluator.wire import region
from actors.evaluator.wire.layout import Layout, difference, total_bytes
from actors.evaluator.wire.orders import Kind, Order, Raised
from actors.evaluator.wire.referee_orders import (
    Compare,
    Compared,
    Deal,
    Dealt,
    Draw,
    Drawn,
    Expect,
    Expected,
    Forget,
    FromReferee,
    Lend,
    Renew,
    Restore,
    Take,
)
from actors.evaluator.wire.runner_orders import Called, Feed, FromRunner, Write
from protocol.values import Stage, Value


class Drawing(Value, frozen=True, kw_only=True):
    """Fresh inputs: their number with the referee, what they look like, where their bytes are."""

    number: int
    inputs: Layout
    parcel: int
    seed: int

    def feed(self, slot: int) -> tuple[Feed, list[int]]:
        """Return the order that puts these inputs into a slot."""
        return Feed(slot=slot, inputs=self.inputs), [self.parcel]


class Hand(Value, frozen=True, kw_only=True):
    """Fresh inputs of the calls of one block."""

    first: int  # the first one's number with the referee
    inputs: tuple[Layout, ...]
    parcels: list[int]  # the reference's first; on the host one does for both

    def close(self) -> None:
        """Let the bytes go."""
        for parcel in self.parcels:
            os.close(parcel)


class Examiner:
    """One task's referee, asked."""

    def __init__(
        self,
        referee: Child[FromReferee],
        failed: Callable[[object], Exception],
        *,
        check_s: float,
        lends: bool,
    ) -> None:
        """`lends`: whether bytes are handed over in the device's memory, not the host's."""
        self._child = referee
        self._failed = failed
        self._check_s = check_s
        self.lends = lends
        self._restored: tuple[str, ...] = ()
        self._seeds: dict[int, int] = {}  # of the calls on each draw

    def renew(self) -> list[int]:
        """Return what modules are made of in memory that no candidate has held."""
        return self._ask(Renew())[1]

    def restore(self, names: tuple[str, ...]) -> None:
        """Let the reference have these parameters as they were constructed, for one candidate."""
        if names != self._restored:
            self._ask(Restore(names=names))
            self._restored = names

    def draw(self, kind: Kind = "plain") -> Drawing:
        """Draw fresh inputs with a fresh secret seed; the caller closes the parcel."""
        said, carried = self._ask(Draw(seed=secrets.randbits(62), kind=kind))
        if not isinstance(said, Drawn):
            raise self._failed(said)
        call_seed = secrets.randbits(62)
        self._seeds[said.draw] = call_seed
        return Drawing(number=said.draw, inputs=said.inputs, parcel=carried[0], seed=call_seed)

    def expect(self, draw: int) -> Layout:
        """Return what the outputs of a draw look like; the reference is computed now, or was."""
        said, _carried = self._ask(Expect(draw=draw, seed=self._seeds[draw]))
        if not isinstance(said, Expected):
            raise self._failed(said)
        return said.outputs

    def deal(self, count: int, *, strided: bool = False) -> Hand:
        """Draw fresh inputs `count` times, for timed calls; the caller closes the hand.

        `strided`: their bytes are to lie as strides say, not in logical order.
        """
        order = Deal(seed=secrets.randbits(62), count=count, strided=strided)
        said, carried = self._ask(order)
        if not isinstance(said, Dealt):
            raise self._failed(said)
        for draw in range(said.first, said.first + count):
            self._seeds[draw] = secrets.randbits(62)
        return Hand(first=said.first, inputs=said.inputs, parcels=carried)

    def lend(self, size: int) -> int:
        """Return memory that `size` bytes of results can be written to; the caller closes it."""
        if not self.lends:
            return region.lend(size)
        _said, carried = self._ask(Lend(size=size))
        return carried[0]

    def take(
        self,
        memory: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        *,
        strided: tuple[Layout, ...] = (),
        kept: bool = True,
    ) -> None:
        """Copy parts out of memory that a candidate may still write to.

        `strided`: what each part is, where bytes lie as strides say instead of in logical order.
        """
        self._ask(Take(parts=tuple(parts), size=size, strided=strided, kept=kept), [memory])

    def judge_taken(self, number: int, output: Layout, draw: int) -> str:
        """Compare one of the outputs that were taken; return what is wrong with it."""
        differs = difference(self.expect(draw), output)
        if differs:
            return differs
        said, _carried = self._ask(Compare(draw=draw, what="output", taken=number))
        if not isinstance(said, Compared):
            raise self._failed(said)
        return said.reason

    def forget(self, draw: int, count: int = 1) -> None:
        """Let the memory of draws go."""
        for number in range(draw, draw + count):
            self._seeds.pop(number, None)
        self._ask(Forget(draw=draw, count=count))

    def judge_output(
        self,
        candidate: Child[FromRunner],
        draw: int,
        stage: Stage,
        called: Called,
        number: int,
        *,
        share: bool = False,
    ) -> Compared | Fault:
        """Compare an output that the candidate holds with what is expected of `draw`."""
        expected = self.expect(draw)
        differs = difference(expected, called.output)
        if differs:
            return Compared(reason=differs)
        order = Write(what="output", number=number)
        return self._compare(candidate, order, expected, draw, stage, share=share)

    def judge_inputs(
        self, candidate: Child[FromRunner], slot: int, drawing: Drawing
    ) -> Compared | Fault:
        """Compare a slot's inputs, after the call, with what the reference leaves of them."""
        order = Write(what="inputs", number=slot)
        return self._compare(candidate, order, drawing.inputs, drawing.number, "check")

    def _compare(
        self,
        candidate: Child[FromRunner],
        order: Write,
        layout: Layout,
        draw: int,
        stage: Stage,
        *,
        share: bool = False,
    ) -> Compared | Fault:
        size = total_bytes(layout)
        memory = self.lend(size)
        try:
            written = Write(what=order.what, number=order.number, limit=size)
            answer = candidate.ask(written, self._check_s, [memory])
            if isinstance(answer, Gone) or isinstance(answer[0], Raised):
                return fault_of(answer, stage, candidate.output.text())
            what: Literal["output", "inputs"] = "inputs" if order.what == "inputs" else "output"
            said, _carried = self._ask(Compare(draw=draw, what=what, share=share), [memory])
        finally:
            os.close(memory)
        if not isinstance(said, Compared):
            raise self._failed(said)
        return said

    def _ask(self, order: Order, carried: list[int] | None = None) -> tuple[FromReferee, list[int]]:
        answer = self._child.ask(order, self._check_s, carried or [])
        if isinstance(answer, Gone):
            raise self._failed(answer)
        return answer
