"""The inputs of timed blocks, in slots that the referee writes while a side is frozen.

Each call of a block has a slot of its own, with contents that no call had before.  So nothing can
be remembered, and nothing is on the clock but the calls.
"""

from __future__ import annotations

import math
import operator
import os
import secrets
import time
from collections.abc import Callable, Sequence

from actors.evaluator.ipc.layout_checks import PAGE_BYTES, slot_bytes, total_bytes
from actors.evaluator.ipc.orders import InputKind
from actors.evaluator.ipc.runner_orders import (
    CallDependent,
    CallRepeatedly,
    CopySlots,
    FromRunner,
    MapSlots,
    ReleaseTensors,
    SlotsMapped,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing import block_randomization, input_replacement
from actors.evaluator.timing.input_replacement import READ_AT_ANOTHER_TIME
from actors.evaluator.timing.net_time import TimedWindow
from actors.evaluator.timing.output_transfer import (
    ArenaOutputs,
    CollectedOutputs,
    HostOutputs,
    OutputTransfer,
)
from actors.evaluator.timing.sides import CandidateFaultError, Sides
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.state_checks import StateChecks
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import MAX_CALLS, SIDES, Side
from actors.evaluator.timing.touched_pages import (
    forget_touched,
    read_share,
    touched_bytes,
)

# What a look finds that may have said nothing: each kind has looks of its own.
FOUND_BY_LOOKS = {
    *READ_AT_ANOTHER_TIME,
    Accusation.INPUTS_TOUCHED_AHEAD,
    Accusation.CALLS_COMPUTED_TOGETHER,
    Accusation.WORK_NOT_JOINED,
}


class SlotTransfer:
    """Slots of both sides, and the way in which their outputs are read."""

    def __init__(
        self, fixture: ReferenceFixture, sides: Sides, spot_checks: SpotChecks, bytes_per_call: int
    ) -> None:
        """`bytes_per_call`: the bytes that one call reads and writes, at most."""
        self._fixture = fixture
        self._referee = fixture.referee
        self._sides = sides
        self._spot_checks = spot_checks
        self._bytes_per_call = bytes_per_call
        self._count = 0  # slots that are there
        self._can_decide = False  # there is a program for that
        self._slots_at = 0, 0  # their address in the candidate, as that says, and their size
        self._inode = 0  # of their memory on a host
        # A card that shares no memory: slots are copied to it on the clock.
        self._copies_slots = not fixture.on_host and not fixture.uses_device_memory
        self._outputs: OutputTransfer = CollectedOutputs(fixture, spot_checks, bytes_per_call)
        self._state_checks = StateChecks(fixture, sides)
        self.draw_s = 0.0  # for the contents of one slot
        self.tried: set[Accusation] = set()  # what looks could have found

    def choose_outputs(self) -> None:
        """Have outputs read where they are, if this machine permits it."""
        if self._fixture.uses_device_memory:
            self._outputs = ArenaOutputs(
                self._fixture, self._sides, self._spot_checks, lambda: self._slots_at
            )
            return
        host_outputs = HostOutputs(self._fixture, self._sides, self._spot_checks)
        if self._fixture.on_host and host_outputs.is_possible():
            self._outputs = host_outputs

    def collect_outputs(self) -> None:
        """Have the sides copy their outputs from now on."""
        self._outputs = CollectedOutputs(self._fixture, self._spot_checks, self._bytes_per_call)

    def prepare(self, count: int) -> None:
        """Have both sides use slots for this many calls, if they have fewer."""
        if self._count >= count:
            return
        zygote = self._fixture.zygote
        prepared, memory = self._referee.prepare_slots(count, zygote.decision_program)
        zygote.decision_program = prepared.program
        self.draw_s = prepared.draw_s
        inode = os.fstat(memory).st_ino
        self._can_decide = self._fixture.on_host or bool(prepared.program)
        order = MapSlots(inputs=self._fixture.facts.inputs, count=count, program=prepared.program)
        try:
            for side in SIDES:
                with self._sides.running(side):
                    _seconds, answer = self._sides.ask(side, order, [memory])
        finally:
            os.close(memory)
        self._inode = inode
        begin = answer.begin if isinstance(answer, SlotsMapped) else 0  # the candidate's
        self._slots_at = begin, count * slot_bytes(self._fixture.facts.inputs)
        self._count = count

    def rehearse(self, side: Side, block_s: float) -> float:
        """Return about how many microseconds a call takes, from blocks that repeat some inputs."""
        calls = 1
        self._referee.fill_slots(self._count)
        with self._sides.running(side):
            # It may prepare things; of a call that takes long that is little.
            seconds, _answer = self._sides.ask(side, CallRepeatedly(calls=1, slots=1))
            if seconds >= POLICY.long_call_s:
                return seconds * 1e6
            while True:
                order = CallRepeatedly(calls=calls, slots=min(calls, self._count))
                seconds, _answer = self._sides.ask(side, order)
                if seconds >= POLICY.rehearsal_share * block_s or calls >= MAX_CALLS:
                    return seconds / calls * 1e6
                calls *= POLICY.rehearsal_growth

    def timed_block(self, side: Side, calls: int) -> TimedWindow:
        """Return what a block took; some of the candidate's outputs are compared."""
        self._state_checks.give(side)
        self._outputs.prepare(side, calls)
        self._referee.fill_slots(calls)
        window, answer = self._window(side, calls, is_empty=False)
        window = self._state_checks.written_after(side, window)
        if side == "candidate":
            self._spot_checks.block_state = self._state_checks.deciding
            self._compare_some(answer, calls)
        else:
            self._spot_checks.note_reference_inputs(calls)
        return window

    def _compare_some(self, answer: FromRunner, calls: int) -> None:
        """Compare some of the candidate's outputs, now and then after new inputs were written."""
        facts = self._fixture.facts
        may_share = not self._outputs.refuses_inputs and not all(facts.aliases)
        is_possible = facts.is_repeated and may_share
        # Now, while the slots hold the block's inputs.
        self._state_checks.compare(calls, self._spot_checks.block_seed)
        if is_possible and secrets.randbelow(1000) < 1000 * POLICY.refilled_chance:
            self._spot_checks.compare_after_new_inputs(
                lambda: self._outputs.stash_some(answer, calls), calls
            )
        else:
            self._spot_checks.compare(self._outputs.stash_some(answer, calls), calls, has_left=True)

    def empty_block(self, calls: int) -> TimedWindow:
        """Return what an empty block of the reference took, which hands over as many outputs.

        It finds the machine as other blocks do: another process has just used the card.
        """
        self._outputs.prepare("reference", calls)
        self._referee.fill_slots(1)
        window, _answer = self._window("reference", calls, is_empty=True)
        return self._state_checks.written_after("reference", window)

    @property
    def _is_known(self) -> bool:
        """Whether it is known what decides outputs besides inputs: nothing, or a state."""
        return self._fixture.facts.is_repeated or bool(self._state_checks.deciding)

    @property
    def dependent_calls(self) -> int:
        """The most calls of a block whose inputs follow from outputs; 0: there is no such block."""
        facts = self._fixture.facts
        on_host = self._fixture.on_host
        most = POLICY.dependent_bytes if on_host else POLICY.gpu_dependent_bytes
        sizes = total_bytes(facts.inputs), total_bytes(facts.outputs)
        has_result = not all(facts.aliases) or self._spot_checks.writes_to_inputs
        is_possible = self._can_decide and not self._copies_slots and self._is_known and has_result
        is_small = min(sizes) > 0 and all(map(operator.le, sizes, most))
        if not is_possible or not is_small:
            return 0
        most_calls = min(self._count // 2, POLICY.dependent_calls)
        if self._state_checks.deciding:  # outputs of all calls are copied
            most_calls = min(most_calls, POLICY.chain_bytes // total_bytes(facts.outputs))
        return most_calls

    def dependent_block(self, side: Side, calls: int, *, is_empty: bool = False) -> TimedWindow:
        """Return what a block took in which each output decides the next call's inputs.

        Some of the candidate's outputs are compared.
        """
        if self._state_checks.deciding and not is_empty:
            self._state_checks.give(side)
        self._outputs.prepare(side, calls)
        self._referee.fill_slots(2 * calls)
        is_whole = bool(self.draw_s)  # draws that can't be mixed
        order = CallDependent(
            calls=calls,
            slots=2 * calls,
            is_empty=is_empty,
            seed=self._block_seed(),
            is_whole=is_whole,
        )
        window, answer = self._ordered_window(side, order)
        if side == "candidate":
            self._spot_checks.block_state = self._state_checks.deciding
            self._spot_checks.compare_dependent(
                lambda: self._outputs.stash_some(answer, calls), calls, is_whole=is_whole
            )
        return window

    def require_right_on_other_kinds(self, calls: int) -> None:
        """Have the candidate do a block of which some calls have inputs of other distributions.

        A candidate that knows checks from timed calls, by their number or the place of their
        inputs, could be right there on the task's own distribution alone.  A block that has no room
        for all kinds is followed by others.
        """
        if not self._fixture.facts.is_repeated:
            return
        kinds = list(self._fixture.input_kinds)
        secrets.SystemRandom().shuffle(kinds)
        memory = (
            POLICY.other_kinds_bytes
            if self._fixture.on_host
            else int(POLICY.other_kinds_memory_share * self._fixture.free_bytes)
        )
        count = max(1, min(calls, memory // self._bytes_per_call))
        began = time.monotonic()
        for begin in range(0, len(kinds), count):
            if begin and time.monotonic() - began > POLICY.other_kinds_s:
                break
            self._require_right_on(kinds[begin : begin + count], calls)

    def _require_right_on(self, kinds: Sequence[InputKind], calls: int) -> None:
        slots = secrets.SystemRandom().sample(range(calls), len(kinds))
        self._outputs.prepare("candidate", calls)
        self._referee.fill_slots(calls)
        for slot, kind in zip(slots, kinds, strict=True):
            self._referee.prepare_replacement(slot, kind)
        self._referee.replace_contents()
        _window, answer = self._window("candidate", calls, is_empty=False)
        where = "in a timed call on another kind of inputs"
        for slot in slots:  # one after the other: the copies of one call take memory enough
            self._spot_checks.only(slot)
            self._spot_checks.compare(self._outputs.stash_some(answer, calls), calls, where)

    def require_reads_at_their_turn(
        self, calls: int, usual_s: tuple[float, float], tries: int
    ) -> None:
        """Replace inputs while the candidate does a block; look at the outputs of their calls.

        That is tried until it has said something of both calls: on a busy machine it may not.

        A candidate may compute the calls of a block together, at its begin or at its end.  That is
        no call on inputs which it gets with the call, and has its output when it returns.
        `usual_s`: what its calls take in a block at least, and what the block does.
        """
        if not self._is_known or self._copies_slots or calls < POLICY.least_replaced:
            return
        told: set[Accusation] = set()
        for _try in range(tries):
            if len(told) < len(READ_AT_ANOTHER_TIME):
                told |= self._look_at_replaced(calls, usual_s)
        self.tried |= told

    def _look_at_replaced(self, calls: int, usual_s: tuple[float, float]) -> set[Accusation]:
        """Replace inputs in one block; return what of it could have been found."""
        replaced = input_replacement.by_lot(calls, secrets.SystemRandom())
        calls_s, usual_block_s = usual_s
        deciding, slots = self._state_checks.deciding, replaced.slots
        if deciding:  # the output of a call follows from the inputs of all calls before it
            slots = (secrets.choice(slots),)
            self._state_checks.give("candidate")
        self._outputs.prepare("candidate", calls)
        self._referee.fill_slots(calls)
        for slot in slots:
            self._referee.prepare_replacement(slot)
        begun_s = written_s = math.inf

        def replace(began: float) -> None:
            nonlocal begun_s, written_s
            time.sleep(replaced.after * calls_s)
            begun_s = time.perf_counter() - began
            self._referee.replace_contents()
            written_s = time.perf_counter() - began

        window, answer = self._window("candidate", calls, is_empty=False, meanwhile=replace)
        self._spot_checks.block_state = deciding
        told = set()
        is_before = replaced.coming in slots
        if is_before and replaced.was_before_its_turn(written_s, calls_s, window.block_s):
            self._require_output(answer, calls, replaced.coming, Accusation.INPUTS_READ_AHEAD)
            told.add(Accusation.INPUTS_READ_AHEAD)
        is_after = replaced.was_after_its_turn(begun_s, usual_block_s, window.block_s)
        if is_after and replaced.over is not None and replaced.over in slots:
            self._referee.restore_contents()
            self._require_output(answer, calls, replaced.over, Accusation.INPUTS_READ_LATE)
            told.add(Accusation.INPUTS_READ_LATE)
        return told

    def _require_output(
        self, answer: FromRunner, calls: int, call: int, accusation: Accusation
    ) -> None:
        """Accuse the candidate if a call's output is not that of what is in its slot."""
        self._spot_checks.only(call)
        stashed = self._outputs.stash_some(answer, calls)
        # What the task itself returns in an input's memory may be copied at the end of the block.
        only_own = accusation is Accusation.INPUTS_READ_LATE
        try:
            self._spot_checks.compare(stashed, calls, only_own=only_own)
        except CandidateFaultError:
            self._sides.accuse(accusation, READ_AT_ANOTHER_TIME[accusation])

    def stopped_block(self, calls: int, usual_s: float) -> tuple[float, float] | None:
        """Stop the candidate in the middle of a block; return the share of inputs that it has read.

        Also the share of its time that had passed; None where this can't be seen.  A candidate may
        compare what it has read ahead with its inputs at each call: then all outputs are right,
        whatever is written meanwhile.
        """
        block_bytes = calls * slot_bytes(self._fixture.facts.inputs)
        is_visible = self._fixture.on_host and block_bytes >= POLICY.least_pages * PAGE_BYTES
        if not is_visible or calls < POLICY.least_replaced:
            return None
        self._outputs.prepare("candidate", calls)
        self._referee.fill_slots(calls)
        if not all(map(forget_touched, self._sides.frozen_pids("candidate"))):
            return None
        first, last = POLICY.stopped_shares
        after = first + (last - first) * secrets.randbelow(1000) / 1000
        stopped_s, held_s, touched = 0.0, 0.0, 0

        def look(began: float) -> None:
            nonlocal stopped_s, held_s, touched
            time.sleep(after * usual_s)
            with self._sides.held("candidate") as pids:
                stopped_s = time.perf_counter() - began
                touched = max(touched_bytes(pid, self._inode) for pid in pids)
                held_s = time.perf_counter() - began - stopped_s

        window, answer = self._window("candidate", calls, is_empty=False, meanwhile=look)
        whole_s = min(usual_s, window.block_s - held_s)
        self._spot_checks.compare(self._outputs.stash_some(answer, calls), calls)
        self.tried.add(Accusation.INPUTS_TOUCHED_AHEAD)
        return read_share(touched, block_bytes), stopped_s / whole_s

    def _window(
        self,
        side: Side,
        calls: int,
        *,
        is_empty: bool,
        meanwhile: Callable[[float], None] = lambda _began: None,
    ) -> tuple[TimedWindow, FromRunner]:
        order = CallRepeatedly(calls=calls, slots=calls, is_empty=is_empty, seed=self._block_seed())
        return self._ordered_window(side, order, meanwhile)

    def _block_seed(self) -> int | None:
        return None if self._fixture.is_deterministic else secrets.randbits(62)

    def _ordered_window(
        self,
        side: Side,
        order: CallRepeatedly,
        meanwhile: Callable[[float], None] = lambda _began: None,
    ) -> tuple[TimedWindow, FromRunner]:
        time.sleep(block_randomization.pause_s(on_host=self._fixture.on_host))
        self._spot_checks.block_seed, self._spot_checks.block_state = order.seed, ()
        is_copied = self._copies_slots and not order.is_empty
        return self._sides.timed_window(
            side,
            order,
            self._outputs.hand_over_order(side, order.calls),
            before=CopySlots(count=order.calls) if is_copied else None,
            meanwhile=meanwhile,
        )

    def close(self) -> None:
        """Give all memory back; what a cancelled evaluation leaves, the next one frees."""
        self._outputs.close()
        self._state_checks.close()
        self._fixture.has_timing_memory = True
        if self._fixture.is_alive and not self._fixture.zygote.is_cancelled():
            self._fixture.runner.ask(ReleaseTensors(), self._fixture.limits.check_s)
            self._referee.release_timing_memory()
            self._fixture.has_timing_memory = False
