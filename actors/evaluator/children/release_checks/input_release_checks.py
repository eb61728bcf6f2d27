"""The release check of inputs that are equal in each draw: with other values of their kind."""

from __future__ import annotations

import copy

from actors.evaluator.children.release_checks.release_comparison import (
    ReleaseComparison,
    call_on_copies,
    map_tensors,
)
from actors.evaluator.children.release_checks.tensor_agreement import UntestableUseError
from actors.evaluator.children.tensors import fixed_inputs
from actors.evaluator.children.tensors.tensor_bytes import tensors_in

DRAWS = 3


class InputReleaseChecks(ReleaseComparison):
    """A winner that has such values built in is right wherever it was judged."""

    def check_fixed_inputs(self) -> None:
        plain, winner = self.pair()
        reason = "no input is the same in each draw, with other values of its kind"
        tried = False
        for number in self._fixed():
            inputs = self._with_other_values(number)
            if inputs is None:
                continue
            try:
                call_on_copies(copy.deepcopy(plain), inputs)
            except Exception as error:  # noqa: BLE001  # the module's own: it takes no others
                reason = f"the module itself: {error}"
                continue
            where = f"with other values in input {number}, which is the same in each draw: "
            self.expect(winner, plain, inputs, where=where)
            tried = True
        if not tried:
            raise UntestableUseError(reason)

    def _fixed(self) -> tuple[int, ...]:
        found = fixed_inputs.FixedInputs(self.inputs(0))
        found.compare(self.inputs(1))
        return found.kept(lambda: self.inputs(2))

    def _with_other_values(self, wanted: int) -> list[object] | None:
        """Return a draw with other values in one tensor; None where none are known."""
        inputs = self.inputs(DRAWS)
        changed = fixed_inputs.other_values(list(tensors_in(inputs))[wanted])
        if changed is None:
            return None
        numbers = iter(range(len(list(tensors_in(inputs)))))
        return map_tensors(inputs, lambda each: changed if next(numbers) == wanted else each)
