"""One draw of inputs, and what the task's own module makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from actors.evaluator.children import correctness, small_parts, wide_casts
from actors.evaluator.children.call_form import result_names
from actors.evaluator.children.input_rounding import RoundedInputs
from actors.evaluator.children.integer_losses import IntegerLosses, has_integers
from actors.evaluator.children.output_difference import ComparedOutput, describe_outputs
from actors.evaluator.children.random_state import RandomStart
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.tensor_copies import InputsBefore, clone, has_same_bytes
from actors.evaluator.ipc.orders import CallForm, InputKind
from actors.evaluator.ipc.referee_orders import CompareBytes, Compared


class OutputRules(NamedTuple):
    """What decides, besides the reference's outputs, whether a candidate's are right."""

    form: CallForm
    aliases: tuple[bool, ...]  # outputs that the task returns in its inputs
    floor: float  # the error that the user allows
    own_floors: tuple[float, ...]  # of outputs that have no float64
    losses: IntegerLosses  # of all draws so far


class Tolerance(NamedTuple):
    """What one output may be off by."""

    floor: float  # a relative error that passes
    lost: tuple[float, float]  # of integers: the share that eager loses, the largest difference
    leeway: float  # times what eager's own error allows


class ReferenceRound:
    """One draw of inputs, and the reference's outputs for it."""

    def __init__(self, inputs: list[object], kind: InputKind = "plain") -> None:
        self.inputs = inputs
        leeways = {"plain": 1.0, "large": correctness.LARGE_LEEWAY}
        self.leeway = leeways.get(kind, correctness.OTHER_KINDS_LEEWAY)
        self.is_written: list[bool] = []  # for each tensor, whether the reference writes to it
        # What the tensors held that it writes to, by number; nothing where they are large.
        self.before: dict[int, torch.Tensor] = {}
        self.eager: object = None
        self.exact: object = None
        self.is_counted = False  # what eager's integers lost
        self.rounded: RoundedInputs | None = None  # where nothing but inputs decides outputs

    def call(self, task: TaskModule, start: RandomStart) -> None:
        """Compute what is expected; the call may write to the inputs."""
        before = InputsBefore(self.inputs)
        if task.has_double:
            self.leeway *= wide_casts.LEEWAY if task.widens_casts else 1.0
            self.exact = task.double_outputs(clone(self.inputs), start)
        self.eager = task.eager_outputs(self.inputs, start)
        self.is_written = before.differences(self.inputs)
        copies = zip(before.copies(), self.is_written, strict=False)
        self.before = {number: each for number, (each, written) in enumerate(copies) if written}
        if task.is_repeated and not any(self.is_written):
            self.rounded = RoundedInputs(task, self.inputs, start)

    def compare_outputs(
        self, got: list[torch.Tensor], order: CompareBytes, rules: OutputRules
    ) -> Compared:
        """Compare outputs with those of the reference."""
        eager = list(tensor_bytes.tensors_in(self.eager))
        exact: list[torch.Tensor | None] = [None] * len(eager)
        if self.exact is not None:
            pairs = zip(tensor_bytes.tensors_in(self.exact), eager, strict=True)
            exact = [correctness.within_range(*pair) for pair in pairs]
        if not self.is_counted:
            rules.losses.add(eager, exact)
            self.is_counted = True
        names = result_names(self.eager, rules.form)
        inputs = zip(tensor_bytes.tensors_in(self.inputs), self.is_written, strict=False)
        given = [
            self.before.get(number) if is_written else each
            for number, (each, is_written) in enumerate(inputs)
        ]
        worst = worst_share = 0.0
        outputs = [ComparedOutput(*each) for each in zip(names, got, eager, exact, strict=True)]
        for number, output in enumerate(outputs):
            if order.only_own and rules.aliases[number]:
                continue
            floor = max((rules.floor, *rules.own_floors[number : number + 1]))
            lost = rules.losses.of(number)
            tolerance = Tolerance(floor, lost, self.leeway)
            found = _comparison(output, tolerance, given)
            if found.reason and self.rounded is not None:
                others = self.rounded.outputs(number, output.eager)
                found = _comparison(output, tolerance, given, others) if others else found
            worst = max(worst, found.max_error)
            if order.share:
                share = correctness.kernelbench_error(output.got, output.eager)
                worst_share = max(worst_share, share)
            if found.reason:
                lines: tuple[str, ...] = ()
                if order.describe:
                    lines = describe_outputs(outputs, number, found, floor, self.leeway)
                return Compared(
                    reason=found.reason, max_error=worst, wrong=found.wrong, difference=lines
                )
        return Compared(max_error=worst, share=worst_share if order.share else None)

    def compare_inputs(
        self, got: list[torch.Tensor], _order: CompareBytes, rules: OutputRules
    ) -> Compared:
        """Compare what a candidate's call has left of its inputs; they are compared last.

        What the task's own module writes to them is a result as well, compared roughly (1 % in
        float32): there is no float64 of it.  So is what it adds to them.
        """
        inputs, self.inputs = tensor_bytes.tensors_in(self.inputs), []
        if self.rounded is not None:
            self.rounded.forget_inputs()
        for number, (mine, own, is_written) in enumerate(
            zip(got, inputs, self.is_written, strict=True)
        ):
            if has_same_bytes(mine, own):
                continue
            if not is_written:
                return Compared(reason=f"input {number} is changed by the call")
            where = f"input {number}, to which the module writes"
            floor = max(rules.floor, math.sqrt(correctness.floor_of(own)))
            found = correctness.compare(mine, own, None, where, floor=floor)
            if not found.reason and number in self.before:
                before = self.before[number]
                found = small_parts.compare_change(mine, own, before, where, floor=rules.floor)
            if found.reason:
                return Compared(reason=found.reason, max_error=found.max_error, wrong=found.wrong)
        return Compared()


def _comparison(
    output: ComparedOutput,
    tolerance: Tolerance,
    inputs: Sequence[torch.Tensor | None],
    others: Sequence[torch.Tensor] = (),
) -> correctness.Comparison:
    """Compare one output; `others`: eager's for inputs that are rounded otherwise."""
    where, got, eager, exact = output
    floor, lost, leeway = tolerance
    if has_integers(eager):
        return correctness.compare_integers(got, eager, exact, where, lost=lost, others=others)
    return small_parts.compare(
        got, eager, exact, where, floor=floor, inputs=inputs, others=others, leeway=leeway
    )
