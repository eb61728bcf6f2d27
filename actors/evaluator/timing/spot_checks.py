"""The outputs of a fresh block that are compared: drawn by lot after it, and copied at once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import InputBatch
from actors.evaluator.sandbox.child_failures import wrong_result
from actors.evaluator.timing.sides import CandidateFaultError
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side

ChosenOutput: TypeAlias = tuple[int, Layout]  # the call's number, and the output's layout


class SpotChecks:
    """What is compared of the blocks on one batch of inputs."""

    def __init__(self, fixture: ReferenceFixture, bytes_per_call: int) -> None:
        """`bytes_per_call`: the bytes that one call reads and writes."""
        self._fixture = fixture
        self._bytes_per_call = bytes_per_call
        self._chosen: list[ChosenOutput] = []
        self._sides_with_changed_inputs: set[Side] = set()  # changed in timed calls

    def choose(self, outputs: Sequence[Layout]) -> list[ChosenOutput]:
        """Draw some of the calls' outputs by lot; none if the task draws random numbers."""
        if not self._fixture.is_deterministic:
            return []
        least = POLICY.min_outputs_compared if self._fixture.on_host else 1
        affordable = POLICY.outputs_compared_bytes // self._bytes_per_call
        count = max(least, min(POLICY.max_outputs_compared, affordable))
        calls = sorted({secrets.randbelow(len(outputs)) for _choice in range(count)})
        return [(call, outputs[call]) for call in calls]

    def stash(
        self,
        side: Side,
        choices: list[ChosenOutput],
        memory: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        *,
        strided: bool = False,
    ) -> None:
        """Have the referee copy the chosen outputs out of memory of this size.

        The reference's outputs are copied too, though they are not compared: both sides must find
        the same caches afterwards.  `parts`: where each chosen output begins and ends.
        """
        if not choices:
            return
        is_compared = side == "candidate"
        layouts = tuple(output for _call, output in choices) if strided else ()
        self._fixture.referee.stash_outputs(memory, size, parts, strided=layouts, keep=is_compared)
        if is_compared:
            self._chosen = choices

    def note_inputs(self, side: Side, *, changed: bool) -> None:
        """Remember whether a side's timed calls leave their inputs as they were."""
        if changed:
            self._sides_with_changed_inputs.add(side)

    def verify(self, batch: InputBatch) -> None:
        """Compare the candidate's copied outputs with what is expected of their inputs.

        This is done after all timed windows of a batch: the referee's threads would disturb them.
        """
        if self._sides_with_changed_inputs == {"candidate"}:
            raise CandidateFaultError(
                wrong_result("in a timed call: an input is changed by the call", "time")
            )
        choices, self._chosen = self._chosen, []
        for number, (call, output) in enumerate(choices):
            reason = self._fixture.referee.compare_stashed(number, output, batch.first + call)
            if reason:
                raise CandidateFaultError(wrong_result(f"in a timed call: {reason}", "time"))
