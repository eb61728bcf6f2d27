"""What timed calls change in the candidate's own state, compared with what the task's calls change.

Both sides are given the task's state before each block, and asked for theirs after it.  The
referee begins at the same state, makes the calls of the block, and compares what it has then.
"""

from __future__ import annotations

import os
import secrets

from msgspec.structs import replace

from actors.evaluator.ipc.layout_checks import Nest, Plain, difference, total_bytes
from actors.evaluator.ipc.runner_orders import SetState, StateWritten, WriteState
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_failures import wrong_result
from actors.evaluator.timing.net_time import TimedWindow
from actors.evaluator.timing.sides import CandidateFaultError, Sides
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side

NOTHING = Plain(kind="none")


class StateChecks:
    """The state of one candidate between its blocks; of most tasks calls change nothing."""

    def __init__(self, fixture: ReferenceFixture, sides: Sides) -> None:
        self._fixture = fixture
        self._sides = sides
        self._updated = fixture.facts.updated
        names, state = self._updated.keys, fixture.facts.state
        known = dict(zip(names, self._updated.items, strict=True))  # attributes are in no state
        known |= dict(zip(state.keys, state.items, strict=True)) if isinstance(state, Nest) else {}
        self._given = Nest(kind="dict", keys=names, items=tuple(known[name] for name in names))
        # Descriptors, for each side its own: no side can write to what the other one reads.
        self._begins: dict[Side, int] = {}
        self._ends: dict[Side, int] = {}
        # What decides the outputs of a block besides its inputs.
        self.deciding = names if fixture.facts.follows_state else ()

    def give(self, side: Side) -> None:
        """Give a side the task's state: a candidate doesn't choose where the referee begins.

        Each block of the candidate has other values of it.  Where the state follows from no input,
        what is computed from it could be kept for the next block.
        """
        if not self._updated.items:
            return
        referee, names = self._fixture.referee, self._updated.keys
        if side == "candidate":
            self._close(self._begins.pop(side, None))
            self._begins[side] = referee.share_state(names, secrets.randbits(62))
        elif side not in self._begins:
            self._begins[side] = referee.share_state(names)
        with self._sides.running(side):
            self._sides.ask(side, SetState(state=self._given), [self._begins[side]])

    def written_after(self, side: Side, window: TimedWindow) -> TimedWindow:
        """Have a side write its state after a block; return the window with that in its hand-over.

        A candidate could leave its updates until it is asked for them.
        """
        if not self._updated.items:
            return window
        seconds = self._write(side)
        return replace(window, hand_over_s=window.hand_over_s + seconds)

    def compare(self, calls: int, seed: int | None) -> None:
        """Compare by lot what the block's calls have changed."""
        if not self._updated.items or secrets.randbelow(1000) >= 1000 * POLICY.state_chance:
            return
        after = self._ends["candidate"]
        found = self._fixture.referee.compare_changes(self._updated.keys, after, calls, seed)
        if found.reason:
            reason = f"after {calls} timed calls: {found.reason}"
            raise CandidateFaultError(wrong_result(reason, "time", found.max_error))

    def _write(self, side: Side) -> float:
        """Have a side write its state; return the seconds."""
        size = total_bytes(self._updated)
        if side not in self._ends:
            self._ends[side] = self._fixture.referee.lend_memory(size)
        with self._sides.running(side):
            order = WriteState(names=self._updated.keys, limit=size)
            seconds, answer = self._sides.ask(side, order, [self._ends[side]])
        written = answer.state if isinstance(answer, StateWritten) else NOTHING
        differs = difference(self._updated, written, "state")
        if differs:
            raise CandidateFaultError(wrong_result(f"in a timed block: {differs}", "time"))
        return seconds

    def close(self) -> None:
        """Give the memory back."""
        for memory in (self._begins, self._ends):
            while memory:
                self._close(memory.popitem()[1])

    @staticmethod
    def _close(descriptor: int | None) -> None:
        if descriptor is not None:
            os.close(descriptor)
