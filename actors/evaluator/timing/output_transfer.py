"""How a block's outputs reach the referee: it reads them where they are, or a side copies them.

- `HostOutputs`: the judge reads the memory of the frozen side.
- `ArenaOutputs`: on a card the side allocates outputs in memory that the referee maps, too.
- `CollectedOutputs`: where neither is possible, the side writes its outputs into lent memory, on
  the clock; what that takes beyond an empty block of the trusted side counts as calls.

In each case the outputs that are compared are drawn by lot after the block.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.card_memory import arena_bytes
from actors.evaluator.ipc.layout_checks import (
    Layout,
    Leaf,
    is_sound,
    offsets,
    tensor_leaves,
    total_bytes,
)
from actors.evaluator.ipc.orders import Order
from actors.evaluator.ipc.referee_orders import OutputMemory
from actors.evaluator.ipc.runner_orders import (
    ArenaUsed,
    CollectOutputs,
    FromRunner,
    LocateOutputs,
    OutputAddresses,
    OutputsCollected,
    UseArena,
    UsePool,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_failures import Accusation, CandidateFault, wrong_result
from actors.evaluator.timing import process_memory
from actors.evaluator.timing.process_memory import MemoryPiece, ProcessMemoryError
from actors.evaluator.timing.sides import CandidateFaultError, Sides, rejection
from actors.evaluator.timing.spot_checks import ChosenOutput, SpotChecks
from actors.evaluator.timing.timing_statistics import Side

WORD_BYTES = 8


class OutputsOutOfReachError(Exception):
    """Outputs can't be read where they are: sides have to copy them."""


class OutputTransfer(Protocol):
    """How outputs of blocks are read."""

    # Whether it refuses outputs in the memory of the inputs.  If not, new inputs are written first.
    refuses_inputs: bool

    def prepare(self, side: Side, calls: int) -> None:
        """Prepare for blocks of this many calls; the side is frozen before and after."""

    def hand_over_order(self, side: Side, calls: int) -> tuple[Order, list[int]]:
        """Return the order that ends a block, on the clock."""

    def stash_some(self, answer: FromRunner, calls: int) -> list[ChosenOutput]:
        """Copy some of the candidate's outputs, drawn by lot only now."""

    def close(self) -> None:
        """Give back what was prepared."""


class HostOutputs:
    """Outputs in the memory of a frozen process."""

    refuses_inputs = False

    def __init__(self, fixture: ReferenceFixture, sides: Sides, spot_checks: SpotChecks) -> None:
        self._fixture = fixture
        self._sides = sides
        self._spot_checks = spot_checks

    def prepare(self, side: Side, calls: int) -> None:
        """Prepare nothing."""

    def hand_over_order(self, side: Side, calls: int) -> tuple[Order, list[int]]:
        """Ask where the outputs are."""
        return LocateOutputs(), []

    def stash_some(self, answer: FromRunner, calls: int) -> list[ChosenOutput]:
        """Read some outputs out of the candidate's process."""
        outputs, addresses = output_addresses(answer, calls)
        choices = self._spot_checks.choose(outputs)
        self._spot_checks.require_expected_size(choices)
        ends = list(accumulate(total_bytes(output) for _call, output in choices))
        begins = [0, *ends[:-1]] if ends else []
        pieces = [
            piece
            for (call, output), begin in zip(choices, begins, strict=True)
            for piece in pieces_of(output, begin, addresses[call])
        ]
        size = ends[-1] if ends else 0
        copied = shared_memory.allocate(size, "outputs")
        try:
            process_memory.read(self._sides.frozen_runner_pid("candidate"), copied, pieces)
            layouts = tuple(output for _call, output in choices)
            parts = list(zip(begins, ends, strict=True))
            if choices:
                self._fixture.referee.stash_outputs(copied, size, parts, strided=layouts)
        except ProcessMemoryError as error:
            raise CandidateFaultError(_unreadable(str(error.strerror))) from error
        finally:
            os.close(copied)
        return choices

    def is_possible(self) -> bool:
        """Whether this machine permits to read the memory of the reference."""
        copied = shared_memory.allocate(WORD_BYTES, "tried")
        try:
            pid = self._sides.frozen_runner_pid("reference")
            # Where a process has no memory, the answer differs from that of a refusal.
            process_memory.read(pid, copied, [MemoryPiece(begin=0, size=WORD_BYTES, address=0)])
        except ProcessMemoryError as error:
            return not process_memory.is_refusal(error)
        finally:
            os.close(copied)
        return True

    def close(self) -> None:
        """Hold nothing."""


class ArenaOutputs:
    """Outputs in device memory that the referee maps: an arena, or the slots of the inputs.

    The slots only for what the task itself returns there.  A candidate that returns copies while it
    is checked, and views in timed calls, has saved the copies.
    """

    refuses_inputs = True

    def __init__(
        self,
        fixture: ReferenceFixture,
        sides: Sides,
        spot_checks: SpotChecks,
        slots: Callable[[], tuple[int, int]],
    ) -> None:
        """`slots`: where the slots are in the candidate, as that says, and their size."""
        self._slots = slots
        self._fixture = fixture
        self._sides = sides
        self._spot_checks = spot_checks
        self._output_bytes = total_bytes(fixture.facts.outputs)
        self._has_pool = False  # the reference
        self._size = 0  # of the arena
        self._begin = 0  # its address in the candidate, as that says

    def prepare(self, side: Side, calls: int) -> None:
        """Give the candidate an arena for the outputs of its next blocks, if it needs a larger one.

        Nothing of the reference's outputs is read.  It has a pool without an arena, since a block
        in a pool takes longer besides its calls.
        """
        if side == "reference":
            self._give_pool()
            return
        size = arena_bytes(self._output_bytes, calls)
        if self._size >= size:
            return
        arena = self._fixture.referee.prepare_arena(size)
        try:
            with self._sides.running(side):
                order = UseArena(size=size, calls=calls)
                _seconds, answer = self._sides.ask(side, order, [arena])
        finally:
            os.close(arena)
        if not isinstance(answer, ArenaUsed):
            raise OutputsOutOfReachError
        self._size, self._begin = size, answer.begin

    def _give_pool(self) -> None:
        """Have the reference use a pool, before its first block."""
        if not self._has_pool:
            with self._sides.running("reference"):
                self._sides.ask("reference", UsePool())
            self._has_pool = True

    def hand_over_order(self, side: Side, calls: int) -> tuple[Order, list[int]]:
        """Ask where the outputs are."""
        return LocateOutputs(), []

    def stash_some(self, answer: FromRunner, calls: int) -> list[ChosenOutput]:
        """Have the referee copy some outputs out of the candidate's arena."""
        outputs, addresses = output_addresses(answer, calls)
        choices = self._spot_checks.choose(outputs)
        self._spot_checks.require_expected_size(choices)
        places = [self._places(output, addresses[call]) for call, output in choices]
        if choices:
            layouts = [output for _call, output in choices]
            self._fixture.referee.stash_from_arena(layouts, places)
        return choices

    def _places(self, output: Layout, addresses: Sequence[int]) -> list[tuple[OutputMemory, int]]:
        """Return where one output's tensors are; refuse those that must not be in the inputs."""
        leaves = tensor_leaves(output)
        places = [self._place(*each) for each in zip(leaves, addresses, strict=True)]
        aliases = self._fixture.facts.aliases
        for number, ((memory, _place), is_alias) in enumerate(zip(places, aliases, strict=False)):
            if memory == "slots" and not is_alias:
                reason = f"in a timed call: tensor {number} of the output is in an input's memory"
                raise CandidateFaultError(wrong_result(reason, "time"))
        return places

    def _place(self, leaf: Leaf, address: int) -> tuple[OutputMemory, int]:
        """Return where an output's tensor is in memory that the referee can read."""
        if leaf.device != "cuda":
            raise CandidateFaultError(
                wrong_result(f"in a timed call: output has device {leaf.device}", "time")
            )
        slots_begin, slots_size = self._slots()
        if not leaf.nbytes:
            return "arena", 0
        if 0 <= address - self._begin <= self._size - leaf.nbytes:
            return "arena", address - self._begin
        if slots_begin and 0 <= address - slots_begin <= slots_size - leaf.nbytes:
            return "slots", address - slots_begin
        raise OutputsOutOfReachError

    def close(self) -> None:
        """Hold nothing: the referee frees arenas with the slots."""


class CollectedOutputs:
    """Outputs that a side writes into lent memory."""

    refuses_inputs = False

    def __init__(
        self, fixture: ReferenceFixture, spot_checks: SpotChecks, bytes_per_call: int
    ) -> None:
        """`bytes_per_call`: the bytes that one call reads and writes."""
        self._fixture = fixture
        self._spot_checks = spot_checks
        self._bytes_per_call = bytes_per_call
        self._memory: dict[Side, tuple[int, int]] = {}  # descriptor and size

    def prepare(self, side: Side, calls: int) -> None:
        """Lend memory to a side, which the other side never had."""
        size = calls * self._bytes_per_call
        if self._memory.get(side, (0, 0))[1] != size:
            self._give_back(side)
            self._memory[side] = self._fixture.referee.lend_memory(size), size

    def hand_over_order(self, side: Side, calls: int) -> tuple[Order, list[int]]:
        """Have the side write its outputs."""
        memory, size = self._memory[side]
        return CollectOutputs(limit=size), [memory]

    def stash_some(self, answer: FromRunner, calls: int) -> list[ChosenOutput]:
        """Have the referee copy some outputs out of the lent memory."""
        memory, size = self._memory["candidate"]
        if not isinstance(answer, OutputsCollected) or len(answer.outputs) != calls:
            raise CandidateFaultError(_missing())
        if not all(map(is_sound, answer.outputs)) or sum(map(total_bytes, answer.outputs)) > size:
            raise CandidateFaultError(_unexpected())
        choices = self._spot_checks.choose(answer.outputs)
        ends = list(accumulate(map(total_bytes, answer.outputs)))
        parts = [(ends[call] - total_bytes(output), ends[call]) for call, output in choices]
        if choices:
            self._fixture.referee.stash_outputs(memory, size, parts)
        return choices

    def _give_back(self, side: Side) -> None:
        if side in self._memory:
            os.close(self._memory.pop(side)[0])

    def close(self) -> None:
        """Give the memory back."""
        for side in list(self._memory):
            self._give_back(side)


def output_addresses(answer: FromRunner, calls: int) -> tuple[list[Layout], list[Sequence[int]]]:
    """Return each output's layout and its tensors' addresses; refuse what can't be so."""
    if not isinstance(answer, OutputAddresses) or len(answer.kinds) != 2 * calls:
        raise CandidateFaultError(_missing())
    kinds = array("H", answer.kinds)
    if max(kinds) >= len(answer.layouts):
        raise CandidateFaultError(_missing())
    if not all(map(is_sound, answer.layouts)):
        raise CandidateFaultError(_unexpected())
    counts = [sum(1 for _leaf in tensor_leaves(layout)) for layout in answer.layouts]
    addresses = array("Q", answer.places[: len(answer.places) // WORD_BYTES * WORD_BYTES])
    ends = list(accumulate(counts[kind] for kind in kinds))
    if ends[-1] != len(addresses):
        raise CandidateFaultError(_missing())
    outputs = [answer.layouts[kind] for kind in kinds]
    return outputs, [
        addresses[end - counts[kind] : end] for end, kind in zip(ends, kinds, strict=True)
    ]


def pieces_of(layout: Layout, begin: int, addresses: Sequence[int]) -> list[MemoryPiece]:
    """Return the pieces of one value whose bytes begin at `begin`."""
    tensors = zip(tensor_leaves(layout), offsets(layout), addresses, strict=False)
    return [
        MemoryPiece(begin=begin + offset, size=leaf.nbytes, address=address)
        for leaf, offset, address in tensors
        if leaf.nbytes
    ]


def _missing() -> CandidateFault:
    return wrong_result("in a timed block: an output for each call is not there", "time")


def _unexpected() -> CandidateFault:
    return wrong_result("in a timed block: outputs are not what is expected", "time")


def _unreadable(why: str) -> CandidateFault:
    reason = f"its memory can't be read from outside: {why}"
    return rejection(Accusation.MEMORY_OUT_OF_REACH, reason)
