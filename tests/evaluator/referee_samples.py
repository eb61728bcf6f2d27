"""What the referee makes of a task and of an output, without its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.evaluator.children.reference_round import OutputRules, ReferenceRound
    from actors.evaluator.children.task_module import TaskModule
    from actors.evaluator.ipc.referee_orders import CompareBytes


def prepared_task(source: str) -> TaskModule:
    """Return a task on the host that knows whether it works in float64.

    Its file is written where the process works.
    """
    from actors.evaluator.children.task_module import TaskModule

    task = TaskModule(source, "cpu")
    task.make(1)
    task.find_precision(task.inputs(2))
    return task


def order_and_rules(floor: float = 0.0) -> tuple[CompareBytes, OutputRules]:
    """Return those of a comparison without any exception; `floor`: what the user allows."""
    from actors.evaluator.children.integer_losses import IntegerLosses
    from actors.evaluator.children.reference_round import OutputRules
    from actors.evaluator.ipc.orders import CallForm
    from actors.evaluator.ipc.referee_orders import CompareBytes

    rules = OutputRules(CallForm(), (False,), floor, (), IntegerLosses())
    return CompareBytes(draw=0, what="output"), rules


def reason(drawn: ReferenceRound, got: object, floor: float = 0.0) -> str:
    """Return what is wrong with an output."""
    from actors.evaluator.children.tensors.tensor_bytes import tensors_in

    return drawn.compare_outputs(list(tensors_in(got)), *order_and_rules(floor)).reason
