"""The standard that candidates of one task are held to: a referee and a reference runner, warm.

Both run the task's own code, which is trusted.  If one of them dies it is nobody's verdict: the
world failed, and the judge tries again.
"""

from __future__ import annotations

import os
import re
import secrets
from itertools import accumulate
from typing import Literal

from actors.evaluator import evidence, region
from actors.evaluator.child import Child, Gone
from actors.evaluator.layout import Layout, difference, total_bytes
from actors.evaluator.nursery import Crowded, Nursery, ReferenceFailed
from actors.evaluator.orders import Confinement, Import, Kind, Order, Raised
from actors.evaluator.referee_orders import (
    Bear,
    Bears,
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
    Prepare,
    Prepared,
    Renew,
    Restore,
    Take,
    Unfit,
)
from actors.evaluator.runner_orders import Called, Construct, Feed, FromRunner, Load, Write
from actors.evaluator.stillness import Stillness, born
from actors.evaluator.verdicts import Fault, fault_of
from protocol.settings import Limits, Precision
from protocol.values import Stage, Task, Value

KINDS: tuple[Kind, ...] = ("shifted", "sparse", "scaled", "spikes", "blocks", "permuted")


# What torch and the driver (CUDA_ERROR_OUT_OF_MEMORY) say of a full card.
FULL = re.compile(r"CUDA out of memory|failed with CUDA error 2\b")
LARGE_BYTES, FEW_KINDS = 1 << 30, 1  # with gigabytes of inputs one other kind must do


class Problem(Value, frozen=True, kw_only=True):
    """Why a task can't be judged: the user's to repair."""

    words: str


class Drawing(Value, frozen=True, kw_only=True):
    """Fresh inputs: their number with the referee, what they look like, where their bytes are."""

    number: int
    inputs: Layout
    parcel: int
    seed: int


class Hand(Value, frozen=True, kw_only=True):
    """Fresh inputs of the calls of one block."""

    first: int  # the first one's number with the referee
    inputs: tuple[Layout, ...]
    parcels: list[int]  # the reference's first; on the host one does for both

    def close(self) -> None:
        """Let the bytes go."""
        for parcel in self.parcels:
            os.close(parcel)


class Standard:
    """One task's referee and reference runner."""

    def __init__(
        self,
        nursery: Nursery,
        task: Task,
        limits: Limits,
        confinement: Confinement,
        *,
        precision: Precision = "task",
    ) -> None:
        self.nursery = nursery
        self.task = task
        self._precision = precision
        self.limits = limits
        self.confinement = confinement
        self.seed = secrets.randbits(62)  # of the construction: candidates get the same
        self.facts: Prepared
        self.referee: Child[FromReferee]
        self.runner: Child[FromRunner]
        self.stillness = Stillness(set())
        self.kinds: list[Kind] = []  # other draws that the task bears
        self.lends = False  # whether bytes are handed over in device memory
        self._restored: tuple[str, ...] = ()
        self._parcels: list[int] = []
        self._seeds: dict[int, int] = {}
        self._started: list[Child[FromReferee] | Child[FromRunner]] = []

    @property
    def steady(self) -> bool:
        return self.facts.steady

    def open(self) -> Problem | None:
        """Start both; say what is wrong with the task, if anything is."""
        # Device memory as far as the driver shares it between such processes; else the host's.
        tries = (True, False) if self.nursery.device == "cuda" else (False,)
        for lend in tries:
            problem = self._open(lend)
            if problem is None and self._fits():
                self.lends = lend
                return self._try_kinds()
            self.close()
            if problem is not None and not lend:
                return problem
        raise self.failed("it can't take its own parameters")

    def _open(self, lend: bool) -> Problem | None:
        with born(self.nursery) as still:
            self.referee = self.nursery.spawn(
                "referee", self.confinement, FromReferee, trusted=True
            )
        self._started.append(self.referee)
        still.favour()
        order = Prepare(
            source=self.task.source, seed=self.seed, lend=lend, precision=self._precision
        )
        answer = self.referee.ask(order, self._patience)
        if isinstance(answer, Gone):
            return self._problem_of(answer)
        said, self._parcels = answer
        if isinstance(said, Unfit):
            return Problem(words=self._clean(said.words))
        if not isinstance(said, Prepared):
            raise self.failed(answer)
        self.facts = said
        return None

    @property
    def _patience(self) -> float:
        return self.limits.import_s + self.limits.check_s

    def _fits(self) -> bool:
        """Start the runner; whether it can take what the referee hands over."""
        with born(self.nursery) as self.stillness:
            self.runner = self.nursery.spawn("runner", self.confinement, FromRunner, trusted=False)
        self._started.append(self.runner)
        self._tell(Import(source=self.task.source, class_name="Model"))
        for order, carried in (self.construct(), self.load()):
            answer = self.runner.ask(order, self._patience, carried)
            if isinstance(answer, Gone):
                raise self.failed(answer)
            if isinstance(answer[0], Raised):
                return False
        return True

    def _try_kinds(self) -> Problem | None:
        """Find out which other draws the task bears; one that kills the referee is not borne."""
        large = total_bytes(self.facts.inputs) > LARGE_BYTES
        for kind in KINDS[:FEW_KINDS] if large else KINDS:
            answer = self.referee.ask(Bear(kind=kind, seed=secrets.randbits(62)), self._patience)
            if not isinstance(answer, Gone):
                if isinstance(answer[0], Bears) and answer[0].bears:
                    self.kinds.append(kind)
                continue
            # A device-side assertion ends a CUDA context: begin again, and ask no more of it.
            self.close()
            problem = self._open(self.lends)
            if problem is not None or not self._fits():
                return problem
            return None
        return None

    def _problem_of(self, gone: Gone) -> Problem:
        said = evidence.one_line(self.referee.output.text()[-300:])
        if gone.how == "lost":
            raise self.failed(gone)
        return Problem(words=self._clean(f"the task could not be prepared: {gone.said()}. {said}"))

    def _clean(self, words: str) -> str:
        return evidence.one_line(evidence.clean(words, [self.confinement.folder]))

    def renew(self) -> None:
        """Have what modules are made of in memory that no candidate has held.

        On the host it is sealed; what is handed over on the card can be written to.
        """
        if self.lends:
            _said, fresh = self._referee(Renew())
            self._drop_parcels()
            self._parcels = fresh

    def construct(self) -> tuple[Construct, list[int]]:
        """Return the order that constructs a module as the reference was."""
        return Construct(seed=self.seed, init=self.facts.init), self._parcels[:1]

    def load(self) -> tuple[Load, list[int]]:
        """Return the order that copies the reference's parameters and buffers in."""
        return Load(state=self.facts.state), self._parcels[1:3]

    def restore(self, names: tuple[str, ...]) -> None:
        """Let the reference have these parameters as they were constructed, for one candidate."""
        if names != self._restored:
            self._referee(Restore(names=names))
            self._restored = names

    def _tell(self, order: Order, carried: list[int] | None = None) -> None:
        seconds = self.limits.import_s + self.limits.check_s
        answer = self.runner.ask(order, seconds, carried or [])
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            raise self.failed(answer)

    # --- rounds ------------------------------------------------------------------------------

    def draw(self, kind: Kind = "plain") -> Drawing:
        """Draw fresh inputs with a fresh secret seed; the caller closes the parcel."""
        said, carried = self._referee(Draw(seed=secrets.randbits(62), kind=kind))
        if not isinstance(said, Drawn):
            raise self.failed(said)
        call_seed = secrets.randbits(62)
        self._seeds[said.draw] = call_seed
        return Drawing(number=said.draw, inputs=said.inputs, parcel=carried[0], seed=call_seed)

    def expect(self, draw: int) -> Layout:
        """Return what the outputs of a draw look like; the reference is computed now, or was."""
        said, _carried = self._referee(Expect(draw=draw, seed=self._seeds[draw]))
        if not isinstance(said, Expected):
            raise self.failed(said)
        return said.outputs

    def deal(self, count: int) -> Hand:
        """Draw fresh inputs `count` times, for timed calls; the caller closes the hand."""
        said, carried = self._referee(Deal(seed=secrets.randbits(62), count=count))
        if not isinstance(said, Dealt):
            raise self.failed(said)
        for draw in range(said.first, said.first + count):
            self._seeds[draw] = secrets.randbits(62)
        return Hand(first=said.first, inputs=said.inputs, parcels=carried)

    def lend(self, size: int) -> int:
        """Return memory that `size` bytes of results can be written to; the caller closes it."""
        if not self.lends:
            return region.make(size, "results")
        _said, carried = self._referee(Lend(size=size))
        return carried[0]

    def take(self, memory: int, size: int, outputs: tuple[Layout, ...], calls: list[int]) -> None:
        """Copy the outputs of some calls out of memory that a candidate may still write to."""
        begins = [0, *accumulate(map(total_bytes, outputs))]
        parts = tuple((begins[call], begins[call + 1]) for call in calls)
        self._referee(Take(parts=parts, size=size), [memory])

    def judge_taken(self, number: int, output: Layout, draw: int) -> str:
        """Compare one of the outputs that were taken; return what is wrong with it."""
        differs = difference(self.expect(draw), output)
        if differs:
            return differs
        said, _carried = self._referee(Compare(draw=draw, what="output", taken=number))
        if not isinstance(said, Compared):
            raise self.failed(said)
        return said.reason

    def forget(self, draw: int, count: int = 1) -> None:
        """Let the memory of draws go."""
        for number in range(draw, draw + count):
            self._seeds.pop(number, None)
        self._referee(Forget(draw=draw, count=count))

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
            answer = candidate.ask(written, self.limits.check_s, [memory])
            if isinstance(answer, Gone) or isinstance(answer[0], Raised):
                return fault_of(answer, stage, candidate.output.text())
            what: Literal["output", "inputs"] = "inputs" if order.what == "inputs" else "output"
            said, _carried = self._referee(Compare(draw=draw, what=what, share=share), [memory])
        finally:
            os.close(memory)
        if not isinstance(said, Compared):
            raise self.failed(said)
        return said

    def feed(self, drawing: Drawing, slot: int) -> tuple[Feed, list[int]]:
        """Return the order that puts drawn inputs into a slot."""
        return Feed(slot=slot, inputs=drawing.inputs), [drawing.parcel]

    def _referee(
        self, order: Order, carried: list[int] | None = None
    ) -> tuple[FromReferee, list[int]]:
        answer = self.referee.ask(order, self.limits.check_s, carried or [])
        if isinstance(answer, Gone):
            raise self.failed(answer)
        return answer

    def failed(self, answer: object) -> ReferenceFailed:
        """Return the error for a trusted child that gave no good answer."""
        said = answer[0] if isinstance(answer, tuple) else answer
        words = said.said() if isinstance(said, Gone) else str(said)[:300]
        text = " ".join(child.output.text()[-300:] for child in self._started)
        kind = Crowded if FULL.search(text) and self.nursery.device == "cuda" else ReferenceFailed
        return kind(self._clean(f"the reference failed: {words} {text}"))

    @property
    def alive(self) -> bool:
        return all(child.gone is None for child in self._started)

    def close(self) -> None:
        """End both."""
        for child in self._started:
            child.kill()
        self._drop_parcels()
        self._started = []

    def _drop_parcels(self) -> None:
        while self._parcels:
            os.close(self._parcels.pop())
