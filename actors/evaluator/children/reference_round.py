"""One draw of inputs, and what the task's own module makes of it."""

from __future__ import annotations

import torch

from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.tensor_copies import has_same_bytes
from actors.evaluator.ipc.referee_orders import Compared


class ReferenceRound:
    """One draw of inputs, and the reference's outputs for it."""

    def __init__(self, inputs: list[object]) -> None:
        self.inputs = inputs
        self.is_written: list[bool] = []  # for each tensor, whether the reference writes to it
        self.eager: object = None
        self.exact: object = None

    def compare_inputs(self, got: list[torch.Tensor]) -> Compared:
        """Compare the inputs that a candidate's call has left; they are compared last."""
        inputs, self.inputs = tensor_bytes.tensors_in(self.inputs), []
        for number, (mine, own, is_written) in enumerate(
            zip(got, inputs, self.is_written, strict=True)
        ):
            # Where the task's own module writes to an input, a candidate may write to it or not.
            if not is_written and not has_same_bytes(mine, own):
                return Compared(reason=f"input {number} is changed by the call")
        return Compared()
