"""What timed calls change in the candidate's own state, compared with what the task's calls change.

The candidate is asked for its state before each block, and now and then after it.  The referee
begins at the first, makes the calls of the block, and compares what it has then with the second.
"""

from __future__ import annotations

import os
import secrets
from typing import Literal, TypeAlias

from msgspec.structs import replace

from actors.evaluator.ipc.layout_checks import Plain, difference, total_bytes
from actors.evaluator.ipc.runner_orders import StateWritten, WriteState
from actors.evaluator.reference.call_start import BlockBegin
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_failures import wrong_result
from actors.evaluator.timing.net_time import TimedWindow
from actors.evaluator.timing.sides import CandidateFaultError, Sides
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side

Moment: TypeAlias = Literal["reference", "before", "after"]  # whose state, and when
NOTHING = Plain(kind="none")


class StateChecks:
    """The state of one candidate between its blocks; of most tasks calls change nothing."""

    def __init__(self, fixture: ReferenceFixture, sides: Sides) -> None:
        self._fixture = fixture
        self._sides = sides
        self._updated = fixture.facts.updated
        self._memory: dict[Moment, int] = {}  # descriptors

    def note(self, side: Side) -> None:
        """Have a side write its state; both do, so that both come to their blocks alike."""
        if self._updated.items:
            self._write(side, "before" if side == "candidate" else "reference")

    def written_after(self, side: Side, window: TimedWindow) -> TimedWindow:
        """Have a side write its state after a block; return the window with that in its hand-over.

        A candidate could leave its updates until it is asked for them.
        """
        if not self._updated.items or not self._fixture.on_host:
            return window
        seconds = self._write(side, "after" if side == "candidate" else "reference")
        return replace(window, hand_over_s=window.hand_over_s + seconds)

    def block_begin(self) -> BlockBegin | None:
        """Return the state before the candidate's last block, where that decides its outputs."""
        if not self._fixture.facts.follows_state:
            return None
        return BlockBegin(names=self._updated.keys, memory=self._memory["before"])

    def compare(self, calls: int, seed: int | None) -> None:
        """Compare by lot what the block's calls have changed."""
        if not self._updated.items or secrets.randbelow(1000) >= 1000 * POLICY.state_chance:
            return
        if not self._fixture.on_host:
            self._write("candidate", "after")
        before, after = self._memory["before"], self._memory["after"]
        found = self._fixture.referee.compare_changes(
            self._updated.keys, before, after, calls, seed
        )
        if found.reason:
            reason = f"after {calls} timed calls: {found.reason}"
            raise CandidateFaultError(wrong_result(reason, "time", found.max_error))

    def _write(self, side: Side, moment: Moment) -> float:
        """Have a side write its state to the memory for it, which the other side never has.

        Return the seconds.
        """
        size = total_bytes(self._updated)
        if moment not in self._memory:
            self._memory[moment] = self._fixture.referee.lend_memory(size)
        with self._sides.running(side):
            order = WriteState(names=self._updated.keys, limit=size)
            seconds, answer = self._sides.ask(side, order, [self._memory[moment]])
        written = answer.state if isinstance(answer, StateWritten) else NOTHING
        differs = difference(self._updated, written, "state")
        if differs:
            raise CandidateFaultError(wrong_result(f"in a timed block: {differs}", "time"))
        return seconds

    def close(self) -> None:
        """Give the memory back."""
        while self._memory:
            os.close(self._memory.popitem()[1])
