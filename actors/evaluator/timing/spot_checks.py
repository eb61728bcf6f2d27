"""What is compared of a timed block: outputs and inputs of calls that are drawn by lot after it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from actors.evaluator.ipc.layout_checks import Layout, tensor_leaves, total_bytes
from actors.evaluator.ipc.referee_orders import CompareChain, DrawDependent, SlotDrawn
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_failures import wrong_result
from actors.evaluator.timing.sides import CandidateFaultError
from actors.evaluator.timing.timing_policy import POLICY

FOLLOWING = "in a timed call whose inputs follow from the output before"
ChosenOutput: TypeAlias = tuple[int, Layout]  # the call's number, and the output's layout


class SpotChecks:
    """The comparisons of one candidate's blocks."""

    def __init__(self, fixture: ReferenceFixture, bytes_per_call: int) -> None:
        """`bytes_per_call`: the bytes that one call reads and writes."""
        self._fixture = fixture
        self._bytes_per_call = bytes_per_call
        self._only: list[int] = []  # the calls that are chosen next
        self._blocks = 0  # of which outputs were chosen
        self.block_seed: int | None = None  # of the block's random numbers, if it draws any
        self.block_state: tuple[str, ...] = ()  # given before it, where that decides outputs
        self._written: tuple[bool, ...] | None = None  # inputs, by the reference; None: unknown

    @property
    def writes_to_inputs(self) -> bool:
        """Whether the task's own module is known to do so."""
        return any(self._written or ())

    def only(self, *calls: int) -> None:
        """Have the outputs of these calls compared next, and no others."""
        self._only = sorted(calls)

    def choose(self, outputs: Sequence[Layout]) -> list[ChosenOutput]:
        """Draw some of the calls' outputs by lot; none if it is unknown what decides them.

        Of random numbers one: the referee draws those of all calls before it.
        """
        if not self._fixture.facts.is_repeated and not self.block_state:
            return []
        if self._only:
            calls, self._only = self._only, []
            return [(call, outputs[call]) for call in calls]
        self._blocks += 1
        if self._blocks > POLICY.thorough_blocks or self.block_seed is not None:
            call = secrets.randbelow(len(outputs))
            return [(call, outputs[call])]
        affordable = POLICY.outputs_compared_bytes // self._bytes_per_call
        count = max(1, min(POLICY.max_outputs_compared, affordable))
        calls = sorted({secrets.randbelow(len(outputs)) for _choice in range(count)})
        return [(call, outputs[call]) for call in calls]

    def require_expected_size(self, choices: Sequence[ChosenOutput]) -> None:
        """Refuse outputs that are larger than any that a call may have.

        Inputs may decide how large they are, and other kinds of inputs make them larger.
        """
        larger = min(POLICY.larger_outputs * self._bytes_per_call, POLICY.larger_outputs_bytes)
        most = max(self._bytes_per_call, larger)
        if any(total_bytes(output) > most for _call, output in choices):
            raise CandidateFaultError(
                wrong_result("in a timed block: outputs are larger than expected", "time")
            )

    def note_reference_inputs(self, calls: int) -> None:
        """Find out, once, which inputs the task's own module writes to."""
        if self._written is None:
            drawn = self._fixture.referee.draw_from_slot(secrets.randbelow(calls))
            self._fixture.referee.forget(drawn.draw)
            self._written = drawn.is_changed

    def compare(
        self,
        choices: Sequence[ChosenOutput],
        calls: int,
        where: str = "in a timed call",
        *,
        only_own: bool = False,
        has_left: bool = False,
    ) -> None:
        """Compare outputs that were copied with what is expected; raise the candidate's fault.

        `only_own`: leave out what the task itself returns in an input's memory.  `has_left`: no
        slot was written since its call, and what the task writes to its inputs is compared as well.
        """
        slots = [call for call, _output in choices] or [secrets.randbelow(calls)]
        if self.block_state:
            where += ", which follows the block's calls before it"
        elif self.block_seed is not None:
            where += ", whose random numbers follow those of the block's calls before it"
        referee = self._fixture.referee
        draws = []
        try:
            for number, slot in enumerate(slots):
                drawn = referee.draw_from_slot(slot, self.block_seed, self.block_state)
                draws.append(drawn.draw)
                self._require_unchanged_inputs(drawn)
                if choices:
                    output = choices[number][1]
                    reason = referee.compare_stashed(number, output, drawn.draw, only_own=only_own)
                    _require_none(reason, where)
                    if has_left and self.writes_to_inputs:
                        _require_none(referee.compare_left_inputs(slot, drawn.draw), where)
        finally:
            for draw in draws:
                referee.forget(draw)

    def compare_dependent(
        self, stash: Callable[[], list[ChosenOutput]], calls: int, *, is_whole: bool
    ) -> None:
        """Compare outputs of a block whose inputs follow from the outputs before them.

        Where one of them is not what follows from the output before it, the chain is broken, and
        what comes after it could be computed beside what comes before it.  So these are many.
        Where the calls follow a state as well, the referee repeats all calls before them.
        `stash` copies the chosen outputs.
        """
        affordable = POLICY.outputs_compared_bytes // self._bytes_per_call
        count = min(calls - 1, max(1, min(POLICY.dependent_compared, affordable)))
        chosen = secrets.SystemRandom().sample(range(1, calls), count)
        beside = range(max(chosen)) if self.block_state else [call - 1 for call in chosen]
        self.only(*{*beside, *chosen})
        copied = {call: (number, output) for number, (call, output) in enumerate(stash())}
        links = {
            call: DrawDependent(
                slot=call,
                other=calls + call,
                stashed=copied[call - 1][0],
                tensors=tuple(tensor_leaves(copied[call - 1][1])),
                is_whole=is_whole,
            )
            for call in copied
            if call - 1 in copied
        }
        if self.block_state:
            self._compare_chain(chosen, links, [output for _number, output in copied.values()])
        else:
            self._compare_links(chosen, links, copied)

    def _compare_links(
        self,
        chosen: Sequence[int],
        links: Mapping[int, DrawDependent],
        copied: Mapping[int, tuple[int, Layout]],
    ) -> None:
        """Compare outputs, each alone."""
        draws: list[int] = []
        try:
            for call in chosen:
                seed = None if self.block_seed is None else self.block_seed + call
                draws.append(self._fixture.referee.draw_dependent(links[call], seed))
                _require_none(
                    self._fixture.referee.compare_stashed(*copied[call], draws[-1]), FOLLOWING
                )
        finally:
            for draw in draws:
                self._fixture.referee.forget(draw)

    def _compare_chain(
        self, chosen: Sequence[int], links: Mapping[int, DrawDependent], outputs: Sequence[Layout]
    ) -> None:
        """Compare outputs that follow from the state before the block as well."""
        order = CompareChain(
            names=self.block_state,
            links=tuple(links.values()),
            outputs=tuple(outputs),
            compared=tuple(sorted(chosen)),
            seed=self.block_seed or 0,
        )
        _require_none(self._fixture.referee.compared(order).reason, FOLLOWING)

    def compare_after_new_inputs(self, stash: Callable[[], list[ChosenOutput]], calls: int) -> None:
        """Compare an output once all inputs are replaced: it must not lie in their memory.

        Outputs that the task itself returns there are left out.  A candidate could return copies
        while it is checked, and views in timed calls.  `stash` copies the chosen output.
        """
        referee = self._fixture.referee
        call = secrets.randbelow(calls)
        drawn = referee.draw_from_slot(call, self.block_seed)
        try:
            self._require_unchanged_inputs(drawn)
            referee.expected_layout(drawn.draw)
            referee.fill_slots(calls)
            self.only(call)
            for _call, output in stash():
                reason = referee.compare_stashed(0, output, drawn.draw, only_own=True)
                _require_none(reason and f"after the next inputs were written: {reason}")
        finally:
            referee.forget(drawn.draw)

    def _require_unchanged_inputs(self, drawn: SlotDrawn) -> None:
        written = self._written or (False,) * len(drawn.is_changed)
        for number, (is_changed, is_written) in enumerate(
            zip(drawn.is_changed, written, strict=True)
        ):
            if is_changed and not is_written:
                _require_none(f"input {number} is changed by the call")


def _require_none(reason: str, where: str = "in a timed call") -> None:
    """Raise the candidate's fault if there is a reason."""
    if reason:
        raise CandidateFaultError(wrong_result(f"{where}: {reason}", "time"))
