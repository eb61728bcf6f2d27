"""What judging a task takes of a card's memory at its worst moment, by the sizes of its tensors.

Three processes hold copies: the referee, the reference's runner and the candidate's.  Large inputs
are drawn one draw at a time, are not cloned, and are compared where they lie.  Pure; the table in
`tests/evaluator/test_card_memory.py` has the figures of some sizes.
"""

from __future__ import annotations

from msgspec.structs import replace

from protocol.values import Value

# With more bytes of inputs and parameters, or of outputs, eager is the truth, and no float64.
DOUBLE_BYTES = 1 << 31
CONTEXT_BYTES = 3 << 29  # of the reference's and the candidate's processes on the card
PARAMETER_COPIES = 10  # two states, their buffers, the modules of three processes, and one more
# Bytes of an arena besides those of outputs: what calls need for themselves.
ARENA_SPARE_BYTES, MAX_ARENA_SPARE_BYTES = 1 << 27, 1 << 30
REHEARSAL_SLOTS = 4  # stay mapped when more are prepared
SLOT_SHARE = 0.5  # of the free memory, for the inputs and outputs of a block
OUTPUT_COPIES = 2.25  # outputs of a block: of both sides, and gaps between those in an arena
MIXED_DRAWS = 3  # that slots are mixed of, and the contents of one that was written anew


class TaskBytes(Value, frozen=True, kw_only=True):
    """Bytes of a task's tensors."""

    inputs: int
    outputs: int
    parameters: int = 0
    working: int = 0  # what a call of the task allocates besides its outputs, at its worst moment
    has_double: bool = False  # whether outputs are compared with float64, too
    is_mixed: bool = False  # whether slots are filled from two draws, which are kept

    @property
    def a_call(self) -> int:
        """What a call reads and writes, as a rule."""
        return self.inputs + self.outputs

    def fits_double(self, free: int) -> bool:
        """Whether a card with so many free bytes has room for float64 copies, too."""
        largest = max(self.inputs + self.parameters, self.outputs)
        return largest <= DOUBLE_BYTES and replace(self, has_double=True).most <= free

    @property
    def steps(self) -> dict[str, int]:
        """The bytes of each step of judging, with parameters and processes, at its worst moment."""
        held = PARAMETER_COPIES * self.parameters + CONTEXT_BYTES
        return {
            "prepare": self._prepare + self._own_calls + held,
            "check": self._check + self._all_calls + held,
            "time": self.timing(1) + held,
        }

    @property
    def most(self) -> int:
        """The bytes that a card must have free."""
        return max(self.steps.values())

    @property
    def _own_calls(self) -> int:
        """What calls in the referee take for themselves; in float64 twice as much."""
        return self.working * (2 if self.has_double else 1)

    @property
    def _all_calls(self) -> int:
        """What calls take for themselves in the three processes; their allocators keep it."""
        return self._own_calls + 2 * self.working

    @property
    def _prepare(self) -> int:
        """A draw and its clone; outputs of two calls, and those that the second one returned.

        With float64: a draw and its double; an output, and twice a double of it.
        """
        if self.has_double:
            return 3 * self.inputs + 5 * self.outputs
        return 2 * self.inputs + 3 * self.outputs

    @property
    def _check(self) -> int:
        """The worst of the moments of a round.

        The candidate holds its inputs and two outputs, the referee a draw and the output before.
        When inputs are compared, the referee has the new output as well, and the candidate's inputs
        are copied once more.  When an output is, the new one has just been cloned, or lies beside
        the candidate's copy.  With float64 each output has a double, the new one twice while it is
        computed from the double of a clone.
        """
        inputs, outputs = self.inputs, self.outputs
        if self.has_double:
            return 5 * inputs + 9 * outputs
        return max(3 * inputs + 4 * outputs, 2 * inputs + 5 * outputs)

    def timing(self, calls: int) -> int:
        """Return the bytes of timing blocks of this many calls.

        Slots, what calls take for themselves, outputs of both sides (a call's output replaces that
        of the block before, so one more), and of a call that is compared the draw, the copied
        output, the expected one and its clone; with float64 as in a check.
        """
        earlier = REHEARSAL_SLOTS if calls > REHEARSAL_SLOTS else 0
        slots = (calls + earlier + MIXED_DRAWS * self.is_mixed) * self.inputs + self._all_calls
        inputs, outputs = (4, 5) if self.has_double else (1, 3)
        compared = inputs * self.inputs + outputs * self.outputs
        return slots + compared + (calls + 1) * self.outputs + arena_bytes(self.outputs, calls)

    def block_calls(self, free: int, most: int) -> int:
        """Return the calls of a block that a card with so many free bytes has room for.

        `most`: no more than this; at least one.
        """
        per_call = self.inputs + OUTPUT_COPIES * self.outputs
        calls = max(1, min(most, int(SLOT_SHARE * free / max(per_call, 1))))
        while calls > 1 and self.timing(calls) > free:
            calls -= 1
        return calls

    def refusal(self, free: int, whole: int) -> str:
        """Return why a card can't be used, in one line; "" if it can."""
        if self.most <= free:
            return ""
        step = max(self.steps, key=self.steps.__getitem__)
        tensors = self.inputs + self.outputs + self.parameters
        return (
            f"too large for this card: its tensors take {gib(tensors)}, judging it takes "
            f"{gib(self.most)} (to {step} it), and {gib(free)} of {gib(whole)} are free: use a "
            "card with more memory, end other programs on this one, or judge smaller inputs"
        )


def arena_bytes(outputs: int, calls: int) -> int:
    """Return the size of an arena for the outputs of a block, in bytes."""
    spare = min(8 * outputs + ARENA_SPARE_BYTES, MAX_ARENA_SPARE_BYTES)
    return (calls + 1) * outputs * 9 // 8 + spare


def gib(size: float) -> str:
    """Return bytes for people."""
    return f"{size / 2**30:.1f} GiB"
