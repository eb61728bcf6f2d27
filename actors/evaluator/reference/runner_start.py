"""How a runner gets its module: it imports the source, constructs the module, loads parameters.

The orders are `ReferenceFixture.start_orders`, for the task's own module and for candidates alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actors.evaluator.ipc.orders import CandidateRaised, Order
from actors.evaluator.ipc.runner_orders import FromRunner, ParametersLoaded
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from protocol.values import Stage


class StartOrder(NamedTuple):
    """One of the orders, and the stage that it belongs to."""

    order: Order
    carried: list[int]
    stage: Stage


class FailedStart(NamedTuple):
    """The answer to an order that was not carried out, and its stage."""

    answer: ChildFailure | tuple[FromRunner, list[int]]
    stage: Stage


def start_runner(
    runner: ChildClient[FromRunner],
    orders: Sequence[StartOrder],
    *,
    import_s: float,
    check_s: float,
) -> ParametersLoaded | FailedStart:
    """Give the orders one after the other, each within the limit of its stage."""
    for order, carried, stage in orders:
        answer = runner.ask(order, import_s if stage == "import" else check_s, carried)
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            break
        if isinstance(answer[0], ParametersLoaded):
            return answer[0]
    return FailedStart(answer, stage)
