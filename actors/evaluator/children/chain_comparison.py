"""Calls whose inputs follow from outputs, and whose outputs follow from a state; trusted.

The task's own module begins at the state that candidates get.  It has the inputs that follow from
the candidate's outputs, and makes all calls: so each state is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from actors.evaluator.children import module_updates
from actors.evaluator.children.reference_round import OutputRules, ReferenceRound
from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.stashed_outputs import StashedOutputs
from actors.evaluator.children.task_errors import task_errors_as
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.ipc.layout_checks import difference
from actors.evaluator.ipc.referee_orders import CompareBytes, CompareChain, Compared

InputsOfCall: TypeAlias = Callable[[int], list[object]]


class ChainComparison:
    """The first calls of one block, and the candidate's outputs of them."""

    def __init__(
        self,
        task: TaskModule,
        order: CompareChain,
        inputs_of: InputsOfCall,
        stashed: StashedOutputs,
        rules: OutputRules,
    ) -> None:
        """`inputs_of`: a fresh copy of a call's inputs, as the candidate's outputs decide them."""
        self._task = task
        self._order = order
        self._inputs_of = inputs_of
        self._stashed = stashed
        self._rules = rules

    def compare(self) -> Compared:
        """Return how the first output that is wrong differs.

        What other last digits of the state change as well is not wrong, and then the outputs of
        later calls say nothing.
        """
        order, task = self._order, self._task
        module_updates.begin_state(task, order.names)
        for call in range(len(order.outputs)):
            if call not in order.compared:
                self._make(call)
                continue
            inputs, seed = self._inputs_of(call), order.seed + call
            drawn = ReferenceRound([])
            drawn.exact = task.double_outputs(clone(inputs), seed)
            drawn.eager = task.eager_outputs(inputs, seed)
            expected, got = tensor_bytes.layout_of(drawn.eager), order.outputs[call]
            differs = difference(expected, got)
            if differs:
                return Compared(reason=differs)
            found = self._compared(drawn, self._stashed.value(call, got))
            if found.reason:
                return Compared() if self._is_unsteady(call, drawn, found) else found
        return Compared()

    def _make(self, call: int) -> None:
        """Make a call of the module, whose output is not needed."""
        inputs = self._inputs_of(call)
        seed_all(self._order.seed + call)
        with task_errors_as("Model.forward"), torch.no_grad():
            self._task.call(self._task.model, inputs)

    def _compared(self, drawn: ReferenceRound, outputs: object) -> Compared:
        got = list(tensor_bytes.tensors_in(outputs))
        return drawn.compare_outputs(got, CompareBytes(draw=0, what="output"), self._rules)

    def _is_unsteady(self, call: int, drawn: ReferenceRound, found: Compared) -> bool:
        """Whether last digits of the state before the block change as much of a call's output."""
        names, control = self._order.names, Compared()
        for number in range(module_updates.CONTROLS):
            module_updates.begin_state(self._task, names)
            module_updates.nudge(self._task, names, number)
            for before in range(call):
                self._make(before)
                if not before:  # a state of zeros has no last digits before the first call
                    module_updates.nudge(self._task, names, number)
            seed = self._order.seed + call
            control = self._compared(drawn, self._task.eager_outputs(self._inputs_of(call), seed))
            if control.reason:
                break
        return found.is_excused_by(control)
